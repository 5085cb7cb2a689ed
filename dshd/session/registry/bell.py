"""Rung for each session whose row in the list may be another now, for those who follow the list.

It says whose, and not what: who hears it looks, when there is time and room for that, so ten rings are one
look. While nobody listens, a ring is a look at an empty dict.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dshd.session.disk.proposals import Signal


class Ear:
    """One listener's. What it holds is bounded by how many sessions there are."""

    def __init__(self) -> None:
        self._rung: set[str] = set()
        self._signal = Signal()

    def hear(self, id: str) -> None:
        self._rung.add(id)
        self._signal.fire()

    def take(self) -> set[str]:
        """The sessions that it was rung for since the last time."""
        rung, self._rung = self._rung, set()
        return rung

    async def rung(self) -> None:
        """Returns when there is something to `take`. Cancellation: at any time, nothing is lost."""
        while not self._rung:
            await self._signal.wait()


class Bell:
    def __init__(self) -> None:
        self._ears: dict[Ear, None] = {}

    def ring(self, id: str) -> None:
        """The row of this session is another, or may be: it came, changed, or went."""
        for ear in self._ears:
            ear.hear(id)

    @contextlib.contextmanager
    def heard(self) -> Iterator[Ear]:
        """Within, it is listened to."""
        ear = Ear()
        self._ears[ear] = None
        try:
            yield ear
        finally:
            del self._ears[ear]
