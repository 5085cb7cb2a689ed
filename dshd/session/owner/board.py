"""When the next schedule is due, of all sessions, loaded or not; one task for all, none for none.

Derived: each session that is loaded tells (`Board.note`), and all that have schedules are loaded once at the
start, for they are marked active. After that they may leave memory; what was told stays.

The wall clock decides, however it jumps, and whether the machine slept: it is looked at again after every
change, and at least every `LOOK_S`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from dshd.errors import DshError
from dshd.session.deciding.firing import was_set_back
from dshd.session.fold.schedules import HOME, Schedule, Schedules, standing
from dshd.session.fold.state import State

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0  # how long a wall clock that jumps can go unnoticed
AGAIN_S: Final = 60.0  # after a firing that could not be written


class Board:
    """``fire`` settles what is due in a session; ``ended`` is told of a run's end: (key, outcome)."""

    def __init__(
        self, now: Callable[[], int], start: Callable[..., None], fire: Callable[[str], Awaitable[None]],
        ended: Callable[[str, str], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._now = now
        self._start = start
        self._fire = fire
        self._ended = ended
        self._known: dict[str, Schedules] = {}
        self._due: dict[str, int] = {}  # {session: when the first of its schedules is due}
        self._firing: set[str] = set()
        self._runs = False
        self._changed = trio.Event()

    # --- being told

    def note(self, id: str, state: State) -> None:
        """The schedules that a session has now."""
        schedules = state.schedules
        if self._known.get(id) is schedules or (not schedules and id not in self._known):
            return
        self._known[id] = schedules
        dues = [one.due for one in schedules.values() if one.due is not None]
        self._due.pop(id, None)
        if dues:
            self._due[id] = min(dues)
        self._wake()

    def run_ended(self, state: State) -> None:
        """A turn of a run has ended: if a schedule made it, that wants to know."""
        key, turn = state.settings.get("key"), state.turns.get(state.last_turn)
        if not isinstance(key, str) or turn is None or "@" not in key or not state.settings.get("run"):
            return
        if key.partition("@")[0] in self._known.get(HOME, {}):
            self._start(self._ended, key, turn.reason)

    def gone(self, id: str) -> None:
        """The session was removed."""
        self._known.pop(id, None)
        self._due.pop(id, None)

    # --- asking

    def all(self) -> list[tuple[str, Schedule]]:
        """``(session, schedule)`` of all."""
        return [(id, one) for id, schedules in self._known.items() for one in schedules.values()]

    def of(self, id: str) -> Schedules:
        return self._known.get(id, {})

    def where(self, schedule: str) -> str | None:
        """The session that has it."""
        return next((id for id, schedules in self._known.items() if schedule in schedules), None)

    @property
    def busy(self) -> bool:
        """Whether anything is scheduled, now or as soon as somebody resumes it."""
        return any(standing(schedules) for schedules in self._known.values())

    # --- the clock

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
        if not self._runs and self._due:
            self._runs = True
            self._start(self._run)

    async def _run(self) -> None:
        try:
            while self._due:
                wait = self._next() - self._now()
                with trio.move_on_after(min(max(0.0, wait / 1000), LOOK_S)):
                    await self._changed.wait()
                self._look()
        finally:
            self._runs = False

    def _next(self) -> int:
        """Never one that is being fired: what becomes of that is noted, or it is tried again."""
        dues = (due for id, due in self._due.items() if id not in self._firing)
        return min(dues, default=self._now() + round(LOOK_S * 1000))

    def _look(self) -> None:
        now = self._now()
        for id in [id for id in self._due if id not in self._firing]:
            if self._due[id] <= now or any(was_set_back(one, now) for one in self._known[id].values()):
                self._firing.add(id)
                self._start(self._fire_one, id)

    async def _fire_one(self, id: str) -> None:
        known = self._known.get(id)
        try:
            await self._fire(id)
            if known is not None and self._known.get(id) is known:
                log.error("schedules of %s: nothing became of what was due", id)
                await trio.sleep(AGAIN_S)
        except DshError as error:
            log.warning("schedules of %s: %s; tried again in a minute", id, error)
            await trio.sleep(AGAIN_S)
        except Exception:  # the boundary: a mistake of ours in one is not the end of the others
            log.exception("schedules of %s failed; tried again in a minute", id)
            await trio.sleep(AGAIN_S)
        finally:
            self._firing.discard(id)
            self._wake()
