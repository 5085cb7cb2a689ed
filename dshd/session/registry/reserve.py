"""The reserve of disk space: given up once for a closing event, taken back when there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from dshd.log.store import Store
from dshd.session.registry.hops import Hops

POLL_S: Final = 60.0  # how often room for it is looked for, once it is given up


class Reserve:
    """``give`` gives it up and says whether it was held; ``start`` runs a coroutine function beside all."""

    def __init__(
        self, store: Store, hops: Hops, give: Callable[[], bool], start: Callable[..., None]
    ) -> None:
        self._store = store
        self._hops = hops
        self._give = give
        self._start = start

    def give(self) -> bool:
        """Give it up; whether it was held. It is taken back later."""
        held = self._give()
        if held:
            self._start(self._take_back)
        return held

    async def hold(self) -> None:
        """Take it, now or as soon as there is room."""
        if not await self._hops.read(self._store.reserve.hold):
            self._start(self._take_back)

    async def _take_back(self) -> None:
        while not self._store.reserve.held:
            await trio.sleep(POLL_S)
            await self._hops.read(self._store.reserve.hold)
