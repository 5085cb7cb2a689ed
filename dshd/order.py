"""One after the other, in the order of arrival."""

from __future__ import annotations

import trio


class InOrder:
    """``async with`` it. Doesn't yield when nobody waits, neither on entering nor on leaving."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()

    async def __aexit__(self, *exc: object) -> None:
        self._lock.release()

    @property
    def busy(self) -> bool:
        """Whether somebody is in."""
        return self._lock.locked()
