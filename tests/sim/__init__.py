"""A deterministic simulator: the real core and driver, and a world made from one number.

Real are sessions, registry, driver, log and recovery (`dshd.session`, `dshd.driver`, `dshd.log`). Made up
are the clock, the disk (`dshd.log.memory`: it tears, fails once and then "succeeds", fills, and loses
unsynced blocks in any order), the model, the tools, the plugin and the clients. Everything that happens
in a *history* follows from its `plan.Plan`, and that from a seed: the same seed plays the same history to
the byte, so a failure is a number.

A plan is played from its beginning to its end, and then once more from each of its *branches*: what the disk
and the world were at that instant, had the daemon died there. So one beginning serves a dozen histories.

- `plan`: what happens, as data; making it from a seed, printing it.
- `clockwork`: Trio without dice, time and waiting.
- `world`: one life of the daemon, from its start to its death; `actors`: the model, the tools, a plugin.
- `play`: a plan's actions, one life after the other, until all is at rest; `clients`: what is asked.
- `oracle`: what a log may say, told a second time and independently of the fold.
- `surface`: its half for what the model sees, and for compactions;
- `check`: what must hold at each death, at each opening and at the end.
- `folded`: what one history's check has done already for the next;
- `coverage`: what was reached, and what never.
- `shrink`: the smallest plan that still fails.
- `bugs`: planted ones, to show that it would be noticed.
- `schedules`: histories of what is sent by the clock, apart from the others.

``python -m tests.sim --help`` runs it by hand.
"""
