"""Writing a log: each batch in one hop through a thread, and what a failure leaves behind.

The session's owner decides a batch, encodes it, and awaits `LogWriter.append`; nothing else
appends. One hop does all of it: check that nobody touched the file, write, sync. When `append`
returns there was no checkpoint since the thread ended, so the owner folds before anybody else runs.

========================  ==========================================  ====================
what failed               what is done                                what is raised
========================  ==========================================  ====================
write: disk full          cut to the end before this batch, synced    NoSpace, not written
write: anything else      cut to the last *synced* end; faulted       Faulted
sync: anything, once      cut to the last *synced* end; faulted       Faulted
the file changed          cut to the last *synced* end; faulted       Faulted
it was closed             nothing                                     what it was closed with
========================  ==========================================  ====================

A full disk is no fault: the next append may succeed. Its cut is synced because "not written" must
hold after a power cut, too. A fault is final: a second sync would succeed and mean nothing. The cut
of a fault is a best effort, as is the note beside the log (`dshd.log.fault`); the way out is
`dshd.log.recovery.reopen_copy`.

A file that a thread uses is closed when the thread is done with it, and not before: its number could be
another file's by then, and that one would be written to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import trio

from dshd.errors import DshError, Faulted, NoSpace, Unavailable
from dshd.log import fault
from dshd.log.disk import FULL, Changed, Disk, LogFile, explain
from dshd.log.threads import Threads
from dshd.order import InOrder

T = TypeVar("T")


async def hop(disk: Disk, work: Callable[[], T], threads: Threads | None = None) -> T:
    """Run a blocking function of this room where it belongs: in a thread, or here for a memory disk.

    Cancellation: can't be cancelled once it runs; a pending cancel is seen at the next checkpoint.
    """
    if disk.inline:
        await disk.linger()
        return work()
    if threads is not None:
        return await threads.run(work)
    with trio.CancelScope(shield=True):
        result = await trio.to_thread.run_sync(work)
    return result


class LogWriter:
    """The writer of one open log.

    ``next_seq`` is the seq of the next line, ``synced`` and ``synced_size`` say up to where all is
    durable, ``size`` is the end of the last good line; ``fault`` is None or a sentence, for good.
    After a fault ``next_seq`` is ``synced`` + 1: what came after is withdrawn.
    """

    def __init__(
        self, file: LogFile, *, next_seq: int, synced: int, size: int, threads: Threads | None
    ) -> None:
        self.file = file
        self.next_seq = next_seq
        self.synced = synced
        self.size = size
        self.synced_size = size
        self.fault: str | None = None
        self._closed: DshError | None = None
        self._users = 0
        self._what = "the disk failed under session"
        self._threads = threads
        self._in_order = InOrder()

    async def append(self, data: bytes, last_seq: int, *, sync: bool) -> None:
        """Write the lines ``next_seq`` to ``last_seq``; with ``sync`` also make all lines durable.

        Raises `NoSpace` (nothing changed; usable again) or `Faulted` (this and every later time).

        Cancellation: before it begins, or not at all; then it returns normally, and the cancel is
        seen at the caller's next checkpoint. There is no deadline: callers wait with their own.

        Durability: with ``sync``, on return everything up to ``last_seq`` is on disk. Without, the
        lines are in the page cache and readers of the file see them.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        async with self._in_order:
            self.refuse_if_ended()
            await self._hop(data, sync)
            self.size += len(data)
            self.next_seq = last_seq + 1
            if sync:
                self._all_synced()

    @property
    def rests(self) -> bool:
        """Nothing is being written, and all that was is durable."""
        return self.size == self.synced_size and not self._in_order.busy

    async def sync(self) -> None:
        """Make durable what was appended without. Failure, cancellation as for `append`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        async with self._in_order:
            self.refuse_if_ended()
            if self.size > self.synced_size:
                await self._hop(b"", True)
                self._all_synced()

    async def _hop(self, data: bytes, sync: bool) -> None:
        with self.using() as file:
            await hop(file.disk, lambda: self._write(data, sync), self._threads)

    @contextlib.contextmanager
    def using(self) -> Iterator[LogFile]:
        """The file, which stays open until the end of the block. Raises what it was closed with."""
        if self._closed is not None:
            raise self._closed
        self._users += 1
        try:
            yield self.file
        finally:
            self._users -= 1
            self._close_unused()

    def close(self, why: DshError | None = None) -> None:
        """Close the file, without syncing: now, or when those who use it are done. Who wants to write
        from now on is refused with ``why``. Blocks as long as the kernel takes."""
        self._closed = why or Unavailable(f"{self.file.path} was closed.", outcome="not-written")
        self._close_unused()

    def _close_unused(self) -> None:
        if self._closed is not None and not self._users:
            self.file.close()

    @property
    def usable(self) -> bool:
        """Neither faulted nor closed."""
        return self.fault is None and self._closed is None

    def _all_synced(self) -> None:
        self.synced, self.synced_size = self.next_seq - 1, self.size

    # -- in the thread

    def _write(self, data: bytes, sync: bool) -> None:
        try:
            self.file.check()
            self._append(data)
            if sync:
                self.file.sync()
        except Changed as change:
            self._what = "another program changed the log of session"
            raise self._faulted(str(change), "not-written") from change
        except OSError as error:
            raise self._faulted(f"{os.strerror(error.errno or 0)} on {self.file.path}") from error

    def _append(self, data: bytes) -> None:
        try:
            self.file.append(data)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.file.truncate(self.size)
            self.file.sync()
            self._all_synced()
            raise self._no_space(error) from error

    def _no_space(self, error: OSError) -> NoSpace:
        told = explain(error, "write", self.file.path)
        assert isinstance(told, NoSpace)
        return told

    # -- faults

    def _faulted(self, why: str, outcome: str = "unknown") -> Faulted:
        self.fault = why
        with contextlib.suppress(OSError):
            self.file.truncate(self.synced_size)
            self.file.sync()
        note = fault.FaultNote(self.file.inode, self.synced_size, self.synced, why)
        with contextlib.suppress(OSError):
            fault.write(self.file.disk, self.file.path, note)
        self.next_seq, self.size = self.synced + 1, self.synced_size
        return self._refusal(outcome)

    def refuse_if_ended(self) -> None:
        """Raises `Faulted`, or what it was closed with, if nothing can be written any more."""
        if self._closed is not None:
            raise self._closed
        if self.fault is not None:
            raise self._refusal("not-written")

    def _refusal(self, outcome: str) -> Faulted:
        session = self.file.path.parent.name
        return Faulted(
            f"{self._what} {session}: {self.fault}.",
            hint=f"dshctl reopen {session}",
            outcome=outcome,
        )
