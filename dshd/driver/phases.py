"""What a session's driver does: a table of phases, and the scope of the activity that runs.

    idle ──wake──▶ running ──abort──▶ aborting ──done──▶ idle
      └─maintain─▶ maintenance ──abort──▶ leaving ──done──▶ idle

Rules:

- A session has at most one activity. Its cancel scope covers *work* only (gates, model stream,
  tool bodies, waits), never the bookkeeping, which must be written whatever happened.
- Why an activity was cancelled is recorded before its scope is (after it, all cancellations look
  alike), and the first cause wins. Only time itself cancels without a word: a turn's time is the scope's
  deadline, which moves while the work waits for somebody else.
- ``wake`` outside of idle changes no phase: the live driver looks by itself, and whoever goes
  idle asks again in the same step. That is the whole latch.
- An abort while idle finds nothing to stop, and arms nothing.
- Maintenance touches no turn, and aborting it none either. What was to run meanwhile runs when it is done.
- Publicly, ``aborting`` is ``running`` and ``leaving`` ``maintenance``: what the activity does last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import attrs
import trio

from dshd.session.deciding.budget import Stopwatch
from dshd.session.fold.turns import Abort
from dshd.session.shown.activities import Activity

PHASES: Final[dict[str, dict[str, str]]] = {
    "idle": {"wake": "running", "maintain": "maintenance", "abort": "idle", "close": "closed"},
    "running": {"wake": "running", "next": "running", "abort": "aborting", "done": "idle"},
    "maintenance": {"wake": "maintenance", "abort": "leaving", "done": "idle"},
    "leaving": {"wake": "leaving", "abort": "leaving", "done": "idle"},
    "aborting": {"wake": "aborting", "abort": "aborting", "next": "running", "done": "idle"},
    "closed": {},
}
PUBLIC: Final = {"aborting": "running", "leaving": "maintenance", "closed": "idle"}


class IllegalPhase(RuntimeError):
    """An event that the phase has no exit for; nothing changed."""


class Phase:
    """The machine: `on` changes the phase or raises `IllegalPhase`."""

    def __init__(self) -> None:
        self.name = "idle"

    def on(self, event: str) -> str:
        try:
            self.name = PHASES[self.name][event]
        except KeyError:
            raise IllegalPhase(f"{event} while {self.name}") from None
        return self.name

    @property
    def public(self) -> str:
        return PUBLIC.get(self.name, self.name)


@attrs.define(eq=False)
class Work:
    """The activity of one turn (0: of maintenance). ``cause``: why it was cancelled; ``doing``: one short
    line; ``since``: Unix ms; ``waits``: set while it waits for something outside, ``until`` (Unix ms) if
    that is known; ``asked`` and ``clears``: see `remember`; ``most``: s that it may work for;
    ``cut``: of what `hurry` cuts short."""

    turn: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    cause: str | None = None
    doing: str | None = None
    since: int | None = None
    waits: str | None = None
    until: int | None = None
    stop_at_boundary: bool = False
    asked: Abort | None = None
    clears: frozenset[str] = frozenset()
    most: float = math.inf
    cut: trio.CancelScope | None = None
    watch: Stopwatch = attrs.field(factory=Stopwatch)

    @property
    def worked(self) -> int:
        """ms of work so far; waiting for something outside is none."""
        return round(self.watch.worked(trio.current_time()) * 1000)

    def says(self, doing: str | None, since: int, waits: str | None = None, until: int | None = None) -> None:
        """What it does from now on; what ``waits`` takes no time of the turn's."""
        self.doing, self.since, self.waits, self.until = doing, since, waits, until
        now = trio.current_time()
        self.watch.pause(now) if waits is not None else self.watch.go(now)
        self.may_work(self.most)

    def shows(self, activity: Activity) -> None:
        """The same, of a wait."""
        self.says(activity.doing, activity.since or 0, activity.waits, activity.until)

    def may_work(self, most: float) -> None:
        """For ``most`` s in all; past that, its scope is cancelled."""
        self.most = most
        self.scope.deadline = self.watch.ends(most, trio.current_time())

    @property
    def out_of_time(self) -> bool:
        """Whether its time, and nobody, has cancelled it."""
        return self.cause is None and self.scope.cancelled_caught

    def remember(self, asked: Abort, clears: Iterable[str]) -> None:
        """What an abort asked for, and what it clears: the disk may be too full to take it now."""
        self.asked = asked if self.asked is None else self.asked.joined_by(asked)
        self.clears |= frozenset(clears)

    def cancel(self, cause: str) -> bool:
        """Cancel the work, at once; whether this call was the first."""
        first = self.cause is None
        if first:
            self.cause = cause
            self.scope.cancel()
        return first
