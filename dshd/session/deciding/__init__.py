"""What may happen: each module is a kind of request, decided on a `scratch` in one step, without IO.

To messages: `sending` with `agreeing` (the settings that a send asks for), `queueing` (edits and moves),
`undoing` (taking back). To turns: `retrying`, `budget` (may it go on?), `raising` (of budgets), `closing`
(how it ends, whatever happened), `approving` (asking a person, and the answer). To the session: `lifecycle`.
To schedules: `scheduling` (they come and go),
`when` (they are due), `firing` (what becomes of that). To jobs: `jobbing`. To subagents: `subagenting`.

A decision emits events, or refuses by raising before its first. So it can be tried anew, and may share a
batch with others.
"""
