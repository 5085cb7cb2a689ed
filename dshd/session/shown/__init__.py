"""What is shown: pure functions of a state, in the protocol's shapes.

`views` are the shapes, `scheduled` those of schedules, `jobs` of jobs, `agents` of
subagents. `why` says what a message waits for,
`parking` whether a session waits for a person, `usage` what was spent.
"""
