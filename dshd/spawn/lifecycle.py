"""The life of one call, as a table.

A command *runs* until its main process ends or it is told to stop. Then what is left of its tree is
*ending*: everybody got SIGTERM and has a short grace. Who is still there after it is *killing*: SIGKILL,
in passes, until nobody is left or the time for that is over (a process in uninterruptible sleep takes
no signal). Then the rest of the output is *draining*: nobody of the tree can write any more, but a
stranger who was handed the pipe can, so that has a limit too. Every state but *done* has a way on for
``stop`` and for its own deadline, so a call always ends.

`main-exited` while descendants live leads to *ending*, not to *draining*: a call's children don't
outlive it.
"""

from __future__ import annotations

from typing import Literal

State = Literal["running", "ending", "killing", "draining", "done"]
Event = Literal["alone", "main-exited", "stop", "deadline", "drained"]
# alone: no descendant is left · deadline: the state's own time is over, or the tree outgrows it
# drained: the pipes are empty

TABLE: dict[State, dict[Event, State]] = {
    "running": {"alone": "draining", "main-exited": "ending", "stop": "ending", "deadline": "ending"},
    "ending": {"alone": "draining", "main-exited": "ending", "stop": "ending", "deadline": "killing"},
    "killing": {"alone": "draining", "main-exited": "killing", "stop": "killing", "deadline": "draining"},
    "draining": {"stop": "draining", "drained": "done", "deadline": "done"},
    "done": {},
}

KILL_LIMIT = 2.0  # s; longer than any process needs that isn't in uninterruptible sleep
DRAIN_LIMIT = 0.5  # s; for pipes that somebody outside the tree holds and keeps writing to
LEFTOVER_GRACE = 0.2  # s; SIGTERM to SIGKILL for what a command left in the background


class Illegal(Exception):
    """An event that the state has no exit for. A bug."""


def step(state: State, event: Event) -> State:
    """The next state. Raises Illegal and changes nothing if there is none."""
    try:
        return TABLE[state][event]
    except KeyError:
        raise Illegal(f"{event} while {state}") from None
