"""What runs a session's turns.

`driver` opens turns while there is something to do and a place to do it (`places`), and ends each of them;
`phases` is its table. A turn's way: `opening` (`turn/start` and the claim), `turn` (round and round until
nothing is owed), `prestep` (the four gates; with `prompting`, the second of them, `gates`, who is asked, and
`waterfall`, how), `request` and `history` (what the model gets; `calling`, what plugins make of it), `asking`
(attempt after attempt, until there is an answer), `chunks` (what streams, written down), `waits` (what a step
waits for, however long), `step` (the answer's tool calls, and what follows), `approvals` (calls that a person
must allow).
A steer that is in a hurry cuts a step short (`hurry`; its calls: `cutting`).
What grows too large is made smaller on the way (`compacting`, and `overflow` where the model says so), or
between turns because somebody asked (`wishes`, `maintenance`); `room` waits for it on a full disk.

`run` is what a turn carries, and may be lost in a crash; `port` is all that the driver knows of the session
that owns it and of the daemon.
"""
