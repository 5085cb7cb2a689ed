"""Proposals: what a ledger is asked to decide, and how whoever asked comes to know.

One is decided on a scratch, with others; it is settled when that is durable, or refused. Nothing that an
onlooker raises keeps the others from knowing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import attrs
import trio

from dshd.errors import DshError, Internal, Stalled
from dshd.session.deciding.scratch import Scratch

log = logging.getLogger(__name__)
T = TypeVar("T")

BUG = "this is a bug in dshd; its log has the details."
Decide = Callable[[Scratch], T]


@attrs.define(eq=False)
class Proposal(Generic[T]):
    """Something to be decided. It is ``settled`` once it is decided and durable, or refused.

    ``due`` is by when (Trio's time) whoever asked wants to know, if not for ever; ``tell`` is called once,
    in the step in which they can.
    """

    decide: Decide[T]
    due: float | None = None
    tell: Callable[[Proposal[T]], None] | None = None
    value: T | None = None
    error: DshError | None = None
    settled: bool = False
    overdue: bool = False
    _done: trio.Event | None = None

    @property
    def done(self) -> trio.Event:
        """Set once there is something to `unwrap`."""
        if self._done is None:
            self._done = trio.Event()
            if self.settled or self.overdue:
                self._done.set()
        return self._done

    @property
    def awaited(self) -> bool:
        """Whether anybody wants to know what becomes of it."""
        return self._done is not None or self.tell is not None

    def settle(self, error: DshError | None = None) -> None:
        if error is not None:
            self.error = error
        self.settled = True
        self._answer()

    def give_up(self) -> None:
        """It is decided all the same; whoever asked isn't kept waiting."""
        self.overdue = True
        self._answer()

    def _answer(self) -> None:
        if self._done is not None:
            self._done.set()
        if self.tell is not None:
            tell, self.tell = self.tell, None
            contained(tell, self)

    def unwrap(self) -> T:
        """What was decided. Raises what it was refused with, or `Stalled`."""
        if not self.settled:
            raise Stalled("the disk has not answered for 10 s; whether this was written is not known.",
                          outcome="unknown")  # fmt: skip
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


class Signal:
    """Wakes whoever waits for the next change."""

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def fire(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()

    @property
    def awaited(self) -> bool:
        return self._event is not None and bool(self._event.statistics().tasks_waiting)


def decide_one(scratch: Scratch, proposal: Proposal[Any]) -> bool:
    """Decide one; False if the scratch is spoilt and all must be decided anew without it."""
    before = len(scratch.events)
    try:
        proposal.value = proposal.decide(scratch)
    except DshError as error:
        proposal.error = error
    except Exception:
        log.exception("a proposal failed")
        proposal.error = Internal(BUG, outcome="not-written")
        return False
    return proposal.error is None or len(scratch.events) == before


def contained(look: Callable[..., None], *args: Any) -> None:
    try:
        look(*args)
    except Exception:
        log.exception("a look at a batch failed")


def settle(batch: list[Proposal[Any]]) -> None:
    for proposal in batch:
        proposal.settle()


def refuse(batch: list[Proposal[Any]], error: DshError) -> None:
    """All of them, those that were refused before, too: on a scratch that is no more."""
    for proposal in batch:
        proposal.settle(error)
