"""What the model is told besides the conversation.

`assembly` makes the system prompt of sections, `instructions` finds AGENTS.md,
`context` is the snapshot of what is true outside (`git` looks at the work tree), `tokens` estimates sizes,
`compaction` decides what becomes of a conversation that grows too large.
Only `instructions` and `git` do IO, and it is bounded.
"""
