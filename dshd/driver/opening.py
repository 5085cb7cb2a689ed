"""How a turn opens and what its steps claim: decisions on a scratch, no IO.

`turn/start` and the claim are one batch, so a crash leaves both or none. What is durable at that
instant is in the batch; what comes later waits for the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from dshd.session.deciding import queueing
from dshd.session.deciding.budget import Stop
from dshd.session.deciding.closing import Ending, close_turn
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import inbox
from dshd.session.fold.events import Message
from dshd.session.fold.state import State
from dshd.session.fold.who import SYSTEM

RESUME_NOTICE: Final = (
    "Notice: the daemon was stopped while you worked on this, and has started again. "
    "Go on from where you were; results above that are marked unknown need a look first."
)


@attrs.frozen(slots=True)
class Opened:
    """A turn that has begun. ``claimed``: its first batch; ``retry``: it goes on with an earlier one, and
    calls the model though it has claimed nothing; ``notice``: what to tell the model; ``resumed``: it has a
    step that waits."""

    turn: int
    claimed: tuple[Message, ...]
    retry: bool = False
    notice: str | None = None
    resumed: bool = False


def open_turn(
    s: Scratch, stops: Callable[[State], Stop | None] = lambda state: None, *, hooked: bool = False
) -> Opened | None:
    """Emit `turn/start` and the first claim; None if nothing is to be done (any more), or if a budget is
    used up: then the turn has ended, and what it claimed is back. ``stops`` knows.
    ``hooked``: hooks are to be told of such an end."""
    opened = _open(s)
    stop = stops(s.state) if opened is not None else None
    if stop is None:
        return opened
    close_turn(s, Ending(reason="budget", cause=stop.what, budget=stop.to_json(), hooked=hooked))
    return None


def _open(s: Scratch) -> Opened | None:
    if s.state.turn is not None:
        return None
    queueing.expire(s)
    queueing.come_due(s)
    if not s.state.goes_on:
        return None
    number = s.state.next_turn
    if (again := s.state.again) is not None:
        notice = RESUME_NOTICE if s.state.resume is not None else None
        s.emit("turn/start", {"turn": number, "retry_of": again})
        return Opened(number, (), retry=True, notice=notice)
    s.emit("turn/start", {"turn": number})
    return Opened(number, claim(s, first_step=True))


def waiting(s: Scratch, *, first_step: bool) -> inbox.Claimed:
    """What a step would take now; what has expired is ended first, unseen, and what is parked stays."""
    queueing.expire(s)
    there = inbox.claimable(s.state.queues, first_step=first_step)
    return tuple((q, m) for q, m in there if not s.state.is_parked(m.id))


def claim(s: Scratch, *, first_step: bool) -> tuple[Message, ...]:
    """Take what this step takes."""
    claimed = waiting(s, first_step=first_step)
    turn = s.state.turn
    if claimed and turn is not None:
        s.emit(
            "inbox/spliced",
            {"cause": "claim", "by": dict(SYSTEM), "turn": turn.number, "ops": inbox.claim_ops(claimed)},
        )
    return tuple(m for _, m in claimed)
