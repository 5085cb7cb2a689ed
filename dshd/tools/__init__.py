"""What the model can have done, and within which bounds.

A call's way: `registry` (the tools of a session, from `builtin`), `arguments` (checked), `policy` (may it?
by rules, on the `commands` in a line of shell, on the host in an address (`urls`), and by `grants`: what a
person has allowed; `outlook` says before there is one what would decide), `scheduler` (which run together),
then the tool itself, as `tool` says: `bash`, `files`, `search` (with `search_worker` and `globs`), `todo`,
`fetch` (from the web), `mcp` (what servers bring), `jobs` (what goes on in the background), `agents` (work
for others).
What comes back is kept in bounds by `output` and `text`; `threads` does what blocks.

What keeps a call where it belongs: `containment` for the tools that name files, `sandbox` for commands, with
`places` (never writable), `guarded` (what must not come into being) and `sockets` (what can't be reached).
"""
