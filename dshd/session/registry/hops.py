"""Where the registry's blocking work is done: readers' threads, and the log writers'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from dshd.log.disk import Disk
from dshd.log.threads import Threads
from dshd.log.writer import hop

T = TypeVar("T")

READERS: Final = 8  # threads that load, list and check; never the log writers'


class Hops:
    """``threads`` are the log writers'."""

    def __init__(self, disk: Disk, threads: Threads | None) -> None:
        self.threads = threads
        self._disk = disk
        self._readers = Threads(READERS)

    async def read(self, work: Callable[[], T]) -> T:
        return await hop(self._disk, work, self._readers)

    async def write(self, work: Callable[[], T]) -> T:
        return await hop(self._disk, work, self.threads)
