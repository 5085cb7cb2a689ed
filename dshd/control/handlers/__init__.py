"""How each method is answered, by family; which method is whose is in `dshd.control.methods`.

`daemon`, `looking` · `sessions`, `settings`, `transfer`, `fsck` · `saying`, `stopping`, `waiting` · `queue`,
`schedules`, `jobs`, `agents`, `messages`, `approvals`, `prompts`, `logs`.
"""
