"""What became of a message: one receipt each, for ever.

    held ─▶ pending ◀─▶ claimed ─▶ entered ─▶ settled
      ╲________╲___________╲─▶ rejected · removed · cleared · expired · superseded · aborted

The table below is the whole law (held and pending also change into each other, and an ended
message comes back by `undo`); a fold that would break it is a bug and raises. `settled` returns
to `entered` when its turn is retried: the receipt then speaks of the newest attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from dshd.session.fold.events import Message, Queue
from dshd.session.fold.values import evolve, shared

ENDED_BY_DECISION: Final = ("rejected", "removed", "cleared", "expired", "superseded", "aborted")

_WAITING = {"pending", "held", "claimed", "removed", "cleared", "expired", "superseded"}
_BACK = {"pending", "held"}
TRANSITIONS: Final[dict[str, set[str]]] = {
    "new": {"pending", "held", "entered"},
    "pending": _WAITING,
    "held": _WAITING,
    "claimed": {*_BACK, "entered", "rejected", "aborted", "cleared"},
    "entered": {"settled"},
    "settled": {"entered"},
    **{state: _BACK for state in ENDED_BY_DECISION},
}


class IllegalTransition(ValueError):
    """The log says something that can't have happened."""


@attrs.frozen(slots=True, weakref_slot=False)
class Stop(Mapping[str, Any]):
    """One state of a receipt's way, as a mapping: the first four are always in it, others if they are
    known. A dict of them takes three times the memory, and a session has hundreds."""

    state: str
    at: int
    seq: int
    by: Any
    cause: str | None = None
    turn: int | None = None
    step: int | None = None
    outcome: str | None = None

    def __getitem__(self, name: str) -> Any:
        if name in _ALWAYS:
            return getattr(self, name)
        value = getattr(self, name) if name in _SOMETIMES else None
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        yield from _ALWAYS
        yield from (name for name in _SOMETIMES if getattr(self, name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_ALWAYS: Final = ("state", "at", "seq", "by")
_SOMETIMES: Final = ("cause", "turn", "step", "outcome")


@attrs.frozen(slots=True, weakref_slot=False)
class Receipt:
    """``way``: every state with Unix ms, seq and who; ``attempts``: turn numbers, oldest first.

    ``first`` is where the way begins; only its state, where all else of it is what the message says: that
    is so of nearly all that wait, and thousands may. ``later``: the rest of the way.
    ``requeues`` counts the returns after a failure (three, and the message is held).
    ``superseded``: the messages that this one replaced.
    """

    message: Message
    state: str
    queue: Queue | None
    seq: int
    turn: int | None = None
    step: int | None = None
    outcome: str | None = None
    first: Stop | str | None = None
    later: tuple[Stop, ...] = ()
    attempts: tuple[int, ...] = ()
    requeues: int = 0
    superseded: tuple[str, ...] = ()

    @property
    def way(self) -> tuple[Stop, ...]:
        first = self.first
        if first is None:
            return self.later
        return (self._spelt_out(first), *self.later)

    @property
    def arrived(self) -> int:
        """The seq at which it came to be what it is now: when it was sent, came due, or was given back."""
        return self.later[-1].seq if self.later else self.seq

    def _spelt_out(self, first: Stop | str) -> Stop:
        if isinstance(first, Stop):
            return first
        return Stop(first, self.message.created, self.seq, self.message.source)

    def to(
        self, state: str, *, at: int, seq: int, by: Any = None, cause: str | None = None, **changes: Any
    ) -> Receipt:
        """The receipt after one more step of its way; raises `IllegalTransition`. ``cause``: of the
        splice that brought it back to a queue."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"{self.message.id}: {self.state} -> {state} at seq {seq}")
        get = changes.get
        stop = Stop(state, at, seq, shared(by), cause, get("turn"), get("step"), get("outcome"))
        if self.first is None:
            return evolve(self, state=state, first=stop, **changes)
        if "message" in changes:  # another may say another thing about who and when
            changes["first"] = self._spelt_out(self.first)
        return evolve(self, state=state, later=(*self.later, stop), **changes)

    @property
    def ended(self) -> bool:
        return self.state == "settled" or self.state in ENDED_BY_DECISION


def first_receipt(message: Message, queue: Queue, *, at: int, seq: int, by: Any) -> Receipt:
    state = "held" if queue == "held" else "pending"
    plain = at == message.created and by == message.source
    return Receipt(message, state, queue, seq, first=state if plain else Stop(state, at, seq, shared(by)))
