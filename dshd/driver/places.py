"""How many turns work at once on each route, and who is next.

A turn takes a place of its session's route before it opens, gives it up while it waits for something
outside, and takes one again before it goes on. Who finds none stands in line: first is who has waited longest
since it last ran, as the log says (`since`). So a session with a long queue is no faster than one with a
single message, and a restart changes nothing of the order: until the sessions that have something to do are
all opened, nobody is let in (`settling`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import attrs
import trio

from dshd import reasons
from dshd.plural import count
from dshd.session.fold.state import State


def since(state: State) -> int:
    """Unix ms since when the session could have gone on, had there been a place."""
    if state.turn is not None:
        wait = state.turn.wait
        return state.turn.started_at if wait is None else (wait.until or wait.since)
    ended = state.turns.get(state.last_turn)
    waits = [max(m.created, m.due or 0) for queue in ("next-turn", "next-step") for m in state.queues[queue]]
    return max(min(waits, default=0), ended.ended_at if ended is not None else 0)


@attrs.define(eq=False)
class _Standing:
    since: int
    number: int
    let_in: trio.Event = attrs.field(factory=trio.Event)


class Places:
    """``most`` gives how many there are of each route; it is asked again each time."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._taken: dict[str, int] = {}
        self._line: dict[str, list[_Standing]] = {}
        self._numbers = 0
        self._settling = False

    @property
    def most(self) -> int:
        return self._most()

    def is_full(self, route: str) -> bool:
        """Whether one that comes now has to wait."""
        full = self._taken.get(route, 0) >= self.most
        return full or self._settling or bool(self._line.get(route))

    async def take(self, route: str, since: int) -> None:
        """Return with a place.

        Cancellation: while it stands in line; then it has none.
        """
        if not self.is_full(route):
            self._let_in(route)
            return
        self._numbers += 1
        mine = _Standing(since, self._numbers)
        line = self._line.setdefault(route, [])
        line.append(mine)
        line.sort(key=lambda one: (one.since, one.number))
        try:
            await mine.let_in.wait()
        except trio.Cancelled:
            self.give(route) if mine.let_in.is_set() else line.remove(mine)
            raise

    def give(self, route: str) -> None:
        """Give a place up; whoever is next has it."""
        self._taken[route] -= 1
        self.look()

    def look(self) -> None:
        """Let in whom there are places for: there may be more of them now."""
        for route, line in self._line.items():
            while line and not self._settling and self._taken.get(route, 0) < self.most:
                self._let_in(route)
                line.pop(0).let_in.set()

    def _let_in(self, route: str) -> None:
        self._taken[route] = self._taken.get(route, 0) + 1

    @contextlib.contextmanager
    def settling(self, wanted: int) -> Iterator[None]:
        """Within, nobody is let in, if ``wanted`` is more than there are places: then all stand in line."""
        self._settling = wanted > self.most
        try:
            yield
        finally:
            self._settling = False
            self.look()


class Seat:
    """One session's place, or none. ``seeks``: it stands in line."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._route: str | None = None
        self.seeks = False

    @property
    def taken(self) -> bool:
        return self._route is not None

    def would_wait(self, route: str) -> bool:
        return self._route is None and self._places.is_full(route)

    @property
    def words(self) -> str:
        """What it waits for."""
        most = self._places.most
        return reasons.waiting(f"{count(most, 'session runs', 'sessions run')} already")

    async def take(self, route: str, since: int) -> None:
        """Have a place of this route. Cancellation: while it stands in line."""
        if self._route is not None:
            return
        self.seeks = True
        try:
            await self._places.take(route, since)
        finally:
            self.seeks = False
        self._route = route

    def leave(self) -> None:
        if self._route is not None:
            route, self._route = self._route, None
            self._places.give(route)
