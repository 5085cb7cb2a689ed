"""`dshctl attach`: a terminal on one session.

From the keys to the daemon and back: `editor` (bytes from a terminal to a line that is typed; no IO),
`spoken` (what a typed line means), `outbox` (what was said and isn't acknowledged yet), `link` (the
connection, and finding the daemon again), `conversation` (what the daemon tells, what is asked of it),
`attached` (the one loop, which has all the others), `questions` (approvals, asked in place), `live` (events
to lines, streamed text as it comes; no IO), `screen` (lines above, the line that is typed below; or plain
lines).

What holds everywhere: nothing here decides about the session. What was typed is in exactly one place: in
the line, in the outbox until it is acknowledged or refused, or back in the line's history. Leaving stops
nothing.
"""
