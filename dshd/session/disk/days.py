"""What all sessions spent today: the local day, from midnight to midnight, whatever the zone does.

- **Derived.** Each session's fold keeps its last day (`spending`), and so a crash loses none of it: what is
  known of a session that isn't loaded comes with its view, and that is believed only if it fits its log. The
  sum is complete once all have been listed; a limit on the day waits for that (`known`).
- **But for what is deleted.** What a session spent stays spent when it is removed: its last day is written to
  ``STATE/spent.json`` before its directory goes. Of a session that is still there after a crash, its own log
  is believed. Only for a day; deletable, if nobody minds the sum.
- **Another of the same id** (an import keeps its id, and begins with nothing spent) adds to that, and takes
  its place in nothing: before it is there, what was spent under its id is nobody's (`part`).

Blocking parts: `read` and `write`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final

import orjson
import trio

from dshd.log import aside
from dshd.log.disk import Disk
from dshd.log.sealed import seal
from dshd.session.fold import spending
from dshd.session.fold.spending import KEPT, QUARTER_MS, Quarters, Usage

NAME: Final = "spent.json"
NOBODY: Final = ""  # no session's id: under it is what was spent by sessions whose id another has now
Json = dict[str, Any]


class Days:
    """``zone``: of the day; None is the system's."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone
        self._of: dict[str, Quarters] = {}  # {session id: its last day}
        self._at: dict[int, dict[str, Usage]] = {}  # the same by quarter: {quarter: {session id: usage}}
        self._sums: dict[int, Usage] = {}  # of quarters that were summed up since they changed
        self._deleted: set[str] = set()
        self._all = trio.Event()

    def note(self, id: str, lately: Quarters) -> None:
        """This is a session's last day now."""
        before = self._of.get(id, {})
        if lately is before:
            return
        for quarter in before.keys() | lately.keys():
            if before.get(quarter) != lately.get(quarter):
                self._put(id, quarter, lately.get(quarter))
        self._of[id] = lately

    def _put(self, id: str, quarter: int, usage: Usage | None) -> None:
        self._sums.pop(quarter, None)
        if usage is not None:
            self._at.setdefault(quarter, {})[id] = usage
        else:
            self._at.get(quarter, {}).pop(id, None)

    def today(self, now: int) -> Usage:
        """``{tokens, cost, currency, ...}`` spent since midnight; ``raised``: added to the day's limit."""
        begin, end = self._day(now)
        first, last = begin // QUARTER_MS, end // QUARTER_MS
        return spending.total({q: self._sum(q) for q in self._at if first <= q < last}, begin, end)

    def _sum(self, quarter: int) -> Usage:
        found = self._sums.get(quarter)
        if found is None:
            found = {}
            for usage in self._at[quarter].values():
                found = spending.add(found, usage)
            self._sums[quarter] = found
        return found

    def _day(self, now: int) -> tuple[int, int]:
        today = datetime.fromtimestamp(now / 1000, self._zone)
        midnight = today.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        if self._zone is None:
            midnight = midnight.replace(tzinfo=None)
        tomorrow = midnight + timedelta(days=1)
        return round(midnight.timestamp() * 1000), round(tomorrow.timestamp() * 1000)

    # --- whether it is all

    def complete(self) -> None:
        """All sessions have been noted once."""
        self._all.set()

    async def known(self, config: Any) -> None:
        """Wait until the sum is complete, if there is a limit that it counts to."""
        if _is_limited(config):
            await self._all.wait()

    def counted(self, config: Any, now: int) -> Usage:
        """`today`, if there is a limit that it counts to."""
        return self.today(now) if _is_limited(config) else {}

    # --- what is kept

    def of(self, id: str) -> Quarters:
        return self._of.get(id, {})

    def delete(self, id: str) -> None:
        """It is about to be removed; what it spent stays."""
        self._deleted.add(id)

    def part(self, id: str) -> bool:
        """Another session of this id is about to come: what a deleted one spent stays, as nobody's. Whether
        there was such a one."""
        if id not in self._deleted:
            return False
        mine, nobodys = self.of(id), self.of(NOBODY)
        sums = {q: spending.add(nobodys.get(q, {}), mine.get(q)) for q in nobodys.keys() | mine.keys()}
        self.note(id, {})
        self.note(NOBODY, sums)
        self._deleted = self._deleted - {id} | {NOBODY}
        return True

    def deleted(self, now: int) -> dict[str, Quarters]:
        """What is to be kept of sessions that are no more; older days are let go of."""
        self.forget(now)
        return {id: found for id in self._deleted if (found := self._of.get(id))}

    def restore(self, deleted: Mapping[str, Quarters]) -> None:
        """What was kept, but for sessions that are there."""
        for id, lately in deleted.items():
            self._deleted.add(id)
            self.note(id, lately)

    def forget(self, now: int) -> None:
        """Let go of what can be of no day any more."""
        oldest = now // QUARTER_MS - KEPT
        for id in list(self._of):
            if all(quarter <= oldest for quarter in self._of[id]):
                self.note(id, {})
                del self._of[id]
        self._deleted &= self._of.keys()
        self._at = {quarter: by for quarter, by in self._at.items() if by}


def _is_limited(config: Any) -> bool:
    return bool(config.budget.day_cost or config.policy.day_cost)


# --- on disk ------------------------------------------------------------------------------------------


def write(disk: Disk, state: Path, deleted: Mapping[str, Quarters]) -> None:
    """Durability: on return it is on disk, or (`OSError`) what was there still is."""
    body = orjson.dumps({id: spending.to_json(lately) for id, lately in deleted.items()})
    disk.write_atomic(state / NAME, seal(body))


def read(disk: Disk, state: Path) -> dict[str, Quarters]:
    """What was written; nothing, if the file is not whole."""
    lost = "so what removed sessions spent lately is forgotten"
    return aside.read(disk, state / NAME, _parsed, lost) or {}


def _parsed(body: bytes) -> dict[str, Quarters]:
    return {id: spending.from_json(lately) for id, lately in orjson.loads(body).items()}
