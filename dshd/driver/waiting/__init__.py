"""What a turn waits for, without a place of its own: `waits` (a provider, until its time has come),
`approvals` (calls that a person must allow), `room` (on a full disk).
"""
