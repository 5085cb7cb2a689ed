"""What runs a session's turns.

`driver` opens turns while there is something to do and a place to do it (`places`), and ends each of them
(`ending`); `phases` is its table. A turn's way:

- `opening`: `turn/start` and the claim; `turn`: round and round until nothing is owed;
- `prestep`: the four gates before a step (`plugged`: who has a word there, `deferring`: for how long one may
  put it off); `compacting`: what grows too
  large is made smaller, on the way or between turns because somebody asked (`wishes`);
- `requests`, with `history`: what the model gets; `asking`: until there is an answer, or until a steer that
  is in a hurry cuts that short;
- `step`: the answer's tool calls, and what follows; `waiting`: what a step waits for, however long.

`run` is what a turn carries, and may be lost in a crash; `port` is all that the driver knows of the session
that owns it and of the daemon.
"""
