"""The disk itself: watched, made to fail, cut off from power."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from dshd.log.disk import Disk
from dshd.log.memory.calls import Calls, Fault
from dshd.log.memory.nodes import File, copied_tree, walk
from dshd.log.memory.survivors import Cut, Nothing, Survivor


class MemoryDisk(Disk):
    """See the package's docstring. A new one holds nothing but ``/``."""

    inline = True
    calls: Calls

    def __init__(self) -> None:
        super().__init__(Calls())
        self.pause: Callable[[], Awaitable[None]] | None = None  # what a hop takes; or just a checkpoint

    async def linger(self) -> None:
        if self.pause is None:
            return await trio.lowlevel.cancel_shielded_checkpoint()
        with trio.CancelScope(shield=True):
            await self.pause()

    # -- watching

    @property
    def counts(self) -> Counter[str]:
        """How often each call was made, by its name (``write``, ``fdatasync``, ``create``, ...)."""
        return self.calls.counts

    @property
    def used(self) -> int:
        """Bytes in all files."""
        return self.calls.used()

    def trace(self) -> list[tuple[str, str]]:
        """Start to list the calls, as (name, path), in the list that is returned."""
        self.calls.trace = []
        return self.calls.trace

    def before(self, hook: Callable[[str, str], None] | None) -> None:
        """Call ``hook(call, path)`` before each call that changes something; it may raise."""
        self.calls.before = hook

    # -- faults

    def fail(self, call: str, error: int, *, path: str = "", skip: int = 0, times: int = 1) -> None:
        """Let ``times`` calls (-1: all) fail with this errno, after ``skip``, where paths end in ``path``."""
        self.calls.faults.append(Fault(call, path, skip, times, error))

    def short_write(self, take: int, *, path: str = "", skip: int = 0, times: int = 1) -> None:
        """Let writes take only ``take`` bytes, without an error."""
        self.calls.faults.append(Fault("write", path, skip, times, take=take))

    def heal(self) -> None:
        """No scripted faults, no limits, no hook any more."""
        self.calls.faults = []
        self.calls.before = None
        self.limit()

    def limit(self, *, free: int | None = None, files: int | None = None) -> None:
        """Leave room for ``free`` more bytes, and for ``files`` more files; None: no limit."""
        self.calls.capacity = None if free is None else self.calls.used() + free
        present = len(list(walk(self.calls.root))) - 1
        self.calls.max_files = None if files is None else present + files

    # -- the power cut

    def crash(self, survivor: Survivor | None = None) -> MemoryDisk:
        """The disk after the power went now (by default only what was synced is left)."""
        after = MemoryDisk()
        after.calls.inodes = self.calls.inodes
        cut = Cut(survivor or Nothing())
        after.calls.root = cut.directory(self.calls.root, "")
        return after

    def copy(self) -> MemoryDisk:
        """The same disk again, nothing open, no faults: to try several things from one state."""
        other = MemoryDisk()
        other.calls.root = copied_tree(self.calls.root)
        other.calls.inodes = self.calls.inodes
        return other

    # -- a hand in the files, past all discipline (tests damage logs with it)

    def peek(self, path: Path | str) -> bytes:
        return bytes(self._reach(path).cache)

    def poke(self, path: Path | str, data: bytes) -> None:
        """Put other bytes in a file, durably, as a bad disk or a foreign program would."""
        file = self._reach(path)
        file.cache, file.durable, file.dirty = bytearray(data), bytearray(data), []

    def _reach(self, path: Path | str) -> File:
        node = self.calls.find(str(path))
        assert isinstance(node, File), f"no file {path}"
        return node
