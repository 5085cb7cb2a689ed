from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from dshd.errors import Faulted, NoSpace, NotFound, Unavailable
from dshd.log import fault
from dshd.log.codec import Event, encode
from dshd.log.disk import Disk, OsCalls, RealDisk
from dshd.log.memory import MemoryDisk
from dshd.log.recovery import open_log, reopen_copy
from dshd.log.threads import Threads
from dshd.log.writer import LogWriter
from tests.log.kit import KNOWN, LOG, disk_with, header, lines, note, reopened, seqs

BASE = lines(header())


def writer_on(disk: Disk, path: Path = LOG, threads: Threads | None = None) -> LogWriter:
    file, found = open_log(disk, path, KNOWN)
    assert file is not None
    return LogWriter(file, next_seq=found.next_seq, synced=found.synced, size=found.size, threads=threads)


def next_lines(writer: LogWriter, count: int = 1, text: str = "") -> tuple[bytes, int]:
    """The lines that the session's owner would hand over now, and the seq of the last."""
    first, last = writer.next_seq, writer.next_seq + count - 1
    events = [
        note(seq, text, synced=writer.synced if seq == first else None) for seq in range(first, last + 1)
    ]
    return lines(events), last


async def write(writer: LogWriter, count: int = 1, *, sync: bool = True, text: str = "") -> None:
    await writer.append(*next_lines(writer, count, text), sync=sync)


# -- when all goes well -----------------------------------------------------------------------------


async def test_a_batch_is_one_write_and_one_sync() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    before = disk.counts.copy()
    await write(writer, 64)
    assert disk.counts["write"] - before["write"] == 1
    assert disk.counts["fdatasync"] - before["fdatasync"] == 1
    assert (writer.next_seq, writer.synced, writer.size) == (65, 64, writer.file.size)
    assert seqs(reopened(disk.crash())) == list(range(65))


async def test_soon_lines_are_seen_at_once_and_synced_with_the_next_now_line() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 3, sync=False)
    assert (writer.next_seq, writer.synced) == (4, 0)
    assert reopened_copy(disk) == [0, 1, 2, 3]
    assert seqs(reopened(disk.crash())) == [0]
    await write(writer)
    assert (writer.next_seq, writer.synced) == (5, 4)
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3, 4]


def reopened_copy(disk: MemoryDisk) -> list[int]:
    return seqs(reopened(disk.copy()))


async def test_syncing_what_is_left_syncs_once_and_only_if_something_is_left() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 3, sync=False)
    before = disk.counts["fdatasync"]
    await writer.sync()
    await writer.sync()
    assert disk.counts["fdatasync"] == before + 1
    assert writer.synced == 3
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3]


async def test_short_writes_are_continued_unnoticed() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    disk.short_write(7, times=20)
    await write(writer, 5)
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3, 4, 5]


async def test_appends_and_syncs_of_several_tasks_take_turns() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    inside = 0

    async def pause() -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await trio.testing.wait_all_tasks_blocked()
        inside -= 1

    disk.pause = pause
    first, second = lines(note(1)), lines(note(2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: writer.append(first, 1, sync=False))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(writer.sync)
        nursery.start_soon(lambda: writer.append(second, 2, sync=True))
    assert seqs(reopened(disk.crash())) == [0, 1, 2]


async def test_a_cancel_never_stops_a_batch_half_way() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    gate = trio.Event()
    disk.pause = gate.wait
    told: list[int] = []

    async def append() -> None:
        await write(writer, 3)
        told.append(writer.synced)  # no checkpoint before: the owner folds here
        await trio.lowlevel.checkpoint()
        told.append(-1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        gate.set()
    assert told == [3]
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3]


async def test_a_batch_that_is_cancelled_while_it_waits_for_its_turn_is_not_written() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    gate = trio.Event()
    disk.pause = gate.wait
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, writer)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0) as scope:
            await writer.append(lines(note(2)), 2, sync=True)
        assert scope.cancelled_caught
        gate.set()
    assert writer.next_seq == 2
    assert seqs(reopened(disk.crash())) == [0, 1]


async def test_a_stalled_disk_delays_its_own_session_alone(autojump_clock: trio.testing.MockClock) -> None:
    stalled, other = disk_with(BASE), disk_with(BASE)
    gate = trio.Event()
    stalled.pause = gate.wait
    slow, fast = writer_on(stalled), writer_on(other)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, slow)
        with trio.fail_after(1):
            await write(fast)
        await trio.sleep(60)
        assert (slow.synced, fast.synced) == (0, 1)
        gate.set()
    assert slow.synced == 1


async def test_the_kernels_disk_is_written_in_a_thread_of_the_given_ones(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(BASE)
    threads, busy = Threads(1), threading.Event()
    writer = writer_on(RealDisk(), path, threads)
    with trio.fail_after(30):
        await write(writer, 100)
        await write(writer, 100, sync=False)
        await writer.sync()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, lambda: busy.wait(30))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(write, writer)
            await trio.testing.wait_all_tasks_blocked()
            assert writer.next_seq == 201
            busy.set()
    writer.close()
    assert reopened(RealDisk(), path).next_seq == 202


# -- it is closed -----------------------------------------------------------------------------------


class SlowCalls(OsCalls):
    """A write takes half of what it is given, and waits before it does so a second time."""

    def __init__(self) -> None:
        self.half = threading.Event()
        self.go_on = threading.Event()

    def write(self, fd: int, data: memoryview) -> int:
        if self.half.is_set():
            assert self.go_on.wait(30)
            return super().write(fd, data)
        taken = super().write(fd, data[: len(data) // 2])
        self.half.set()
        return taken


async def test_a_batch_in_the_thread_when_it_is_closed_never_goes_on_in_another_file(tmp_path: Path) -> None:
    path, other = tmp_path / "sabcdefg" / "log.jsonl", tmp_path / "other"
    path.parent.mkdir()
    path.write_bytes(BASE)
    calls, threads = SlowCalls(), Threads(2)
    writer = writer_on(Disk(calls), path, threads)
    number = writer.file._fd
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, writer, 10)
            await threads.run(lambda: calls.half.wait(30))
            writer.close()
            with other.open("wb"):  # it has the lowest number that is free
                calls.go_on.set()
                await trio.testing.wait_all_tasks_blocked()
                await threads.run(bool)
                with contextlib.suppress(Unavailable):
                    await writer.sync()  # after the batch, whatever it says
    assert other.read_bytes() == b""
    assert reopened(RealDisk(), path).next_seq == 11
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


async def test_who_writes_after_it_was_closed_is_told_why_and_nothing_is_noted_beside_it() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 2, sync=False)
    writer.close(NotFound("it was removed"))
    calls = disk.trace()
    for late in (write(writer), writer.sync()):
        with pytest.raises(NotFound, match="it was removed"):
            await late
    with pytest.raises(NotFound, match="it was removed"), writer.using():
        pass
    assert (calls, writer.fault, writer.usable) == ([], None, False)
    assert fault.read(disk, LOG) is None


def test_who_reads_its_file_has_it_until_they_are_done() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    with writer.using() as file, writer.using():
        writer.close()
        assert b"".join(file.pieces(0, writer.size)) == BASE
    with pytest.raises(KeyError):
        file.truncate(0)


# -- the disk is full -------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_refuses_the_batch_and_serves_again_when_there_is_room(error: int) -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer)
    disk.short_write(20)
    disk.fail("write", error, skip=1, times=3)
    for _ in range(3):
        with pytest.raises(NoSpace) as refused:
            await write(writer, 2)
        assert refused.value.outcome == "not-written"
        assert (writer.next_seq, writer.fault) == (2, None)
    await write(writer, 2)
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3]


async def test_a_disk_that_fills_up_in_the_middle_of_a_batch_keeps_none_of_it() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    for free in range(0, 300, 13):
        disk.limit(free=free)
        with pytest.raises(NoSpace):
            await write(writer, 4)
        assert disk.peek(LOG) == BASE
        assert disk.crash().peek(LOG) == BASE  # "not written" holds after a power cut, too
    disk.limit()
    await write(writer, 4)
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3, 4]


async def test_soon_lines_survive_the_refusal_of_a_later_batch() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 2, sync=False)
    disk.limit(free=10)
    with pytest.raises(NoSpace):
        await write(writer, 4)
    assert (writer.next_seq, writer.synced) == (3, 2)
    disk.limit()
    await write(writer)
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3]


async def test_one_of_several_batches_may_fit_where_the_whole_does_not() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    small, _last = next_lines(writer)
    disk.limit(free=len(small) + 10)
    with pytest.raises(NoSpace):
        await write(writer, 4)
    await write(writer)
    with pytest.raises(NoSpace):
        await write(writer)
    assert seqs(reopened(disk.crash())) == [0, 1]


async def test_a_full_disk_whose_cut_can_not_be_synced_is_a_fault() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    disk.fail("write", errno.ENOSPC)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(Faulted):
        await write(writer)
    assert writer.fault is not None


# -- faults -----------------------------------------------------------------------------------------


async def faulted(writer: LogWriter, count: int = 2) -> Faulted:
    with pytest.raises(Faulted) as caught:
        await write(writer, count)
    return caught.value


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
async def test_the_first_failed_sync_is_final_though_the_next_one_would_succeed(error: int) -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer)
    await write(writer, 2, sync=False)
    disk.fail("fdatasync", error)
    told = await faulted(writer)
    assert told.outcome == "unknown"
    assert told.hint == "dshctl reopen sabcdefg"
    assert os.strerror(error) in told.message
    assert (writer.next_seq, writer.synced, writer.size) == (2, 1, writer.synced_size)
    assert reopened_copy(disk) == [0, 1]
    refused = await faulted(writer)
    assert refused.outcome == "not-written"
    with pytest.raises(Faulted):
        await writer.sync()


async def test_a_failed_write_cuts_back_to_the_synced_end() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer)
    await write(writer, 2, sync=False)
    disk.short_write(100)
    disk.fail("write", errno.EIO, skip=1)
    await faulted(writer)
    assert reopened_copy(disk) == [0, 1]


async def test_a_failed_sync_of_soon_lines_is_a_fault_too() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 2, sync=False)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(Faulted):
        await writer.sync()
    assert writer.fault is not None
    assert (writer.next_seq, writer.synced) == (1, 0)


async def test_a_fault_is_left_into_a_new_file_that_holds_what_was_synced() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 3)
    disk.fail("fdatasync", errno.EIO)
    await faulted(writer)
    reopen_copy(disk, LOG, writer.synced_size, source=writer.file)
    writer.close()
    again = writer_on(disk)
    assert (again.next_seq, again.fault) == (4, None)
    await write(again, 2)
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3, 4, 5]


async def test_a_restart_in_the_same_boot_does_not_believe_the_page_cache() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer)
    disk.fail("fdatasync", errno.EIO)
    disk.fail("ftruncate", errno.EIO)  # the cut fails, too: the cache goes on showing the lost lines
    await faulted(writer, 3)
    inode = disk.stat(LOG).inode
    assert disk.peek(LOG).count(b"\n") == 5
    assert seqs(reopened(disk)) == [0, 1]  # killed and started again, on the same disk
    assert disk.stat(LOG).inode != inode
    assert seqs(reopened(disk.crash())) == [0, 1]


async def test_a_fault_on_a_disk_that_does_nothing_any_more_is_still_a_fault() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    for call in ("fdatasync", "fsync", "ftruncate", "write", "create"):
        disk.fail(call, errno.EIO, times=-1)
    await faulted(writer)
    await faulted(writer)
    assert writer.fault is not None
    writer.close()


async def test_other_logs_of_the_disk_go_on() -> None:
    disk = disk_with(BASE)
    other = LOG.parent.with_name("sother00") / "log.jsonl"
    disk.create_dir_synced(other.parent)
    disk.write_atomic(other, BASE)
    first, second = writer_on(disk), writer_on(disk, other)
    disk.fail("fdatasync", errno.EIO, path=str(LOG))
    await faulted(first)
    await write(second)
    assert second.synced == 1


def append_to(disk: MemoryDisk) -> None:
    file = disk.open_log(LOG)
    file.append(encode(Event(2, 5, "note", {"text": "a second writer"})))
    file.close()


MEDDLING: dict[str, tuple[Callable[[MemoryDisk], None], str]] = {
    "removed": (lambda disk: disk.unlink(LOG), "was removed"),
    "renamed away": (lambda disk: disk.rename_synced(LOG, LOG.with_name("x")), "was removed"),
    "replaced": (lambda disk: disk.write_atomic(LOG, BASE), "was replaced"),
    "truncated": (lambda disk: disk.open_log(LOG).truncate(10), "has 10 bytes, not"),
    "emptied": (lambda disk: disk.open_log(LOG).truncate(0), "has 0 bytes, not"),
    "appended to": (append_to, "bytes, not"),
    "linked": (lambda disk: disk.calls.link(str(LOG), "/other"), "has 2 links, not 1"),
    "its directory removed": (lambda disk: disk.remove_tree(LOG.parent), "was removed"),
    "its directory renamed": (lambda disk: disk.rename_synced(LOG.parent, Path("/x")), "was removed"),
}


@pytest.mark.parametrize("how", MEDDLING)
async def test_a_log_that_changed_under_the_writer_is_a_fault_and_nothing_is_written(how: str) -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer)
    meddle, says = MEDDLING[how]
    meddle(disk)
    with pytest.raises(Faulted, match=says) as caught:
        await write(writer)
    assert caught.value.outcome == "not-written"
    assert not disk.exists(LOG) or b"number 2" not in disk.peek(LOG)
    assert writer.synced == 1


async def test_what_somebody_appended_to_a_log_is_cut_off() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer)
    good = disk.peek(LOG)
    append_to(disk)
    await faulted(writer)
    assert disk.peek(LOG) == good


async def test_a_log_that_was_emptied_is_damaged_after_a_restart_and_never_an_empty_session() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 3)
    disk.open_log(LOG).truncate(len(BASE))
    await faulted(writer)
    found = reopened(disk)
    assert found.damage is not None
    assert (found.damage.first_seq, found.damage.last_seq) == (1, 3)


@pytest.mark.parametrize("how", ["removed", "replaced", "renamed away"])
async def test_a_log_whose_name_was_taken_is_reopened_from_the_open_file(how: str) -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer, 3)
    MEDDLING[how][0](disk)
    await faulted(writer)
    reopen_copy(disk, LOG, writer.synced_size, source=writer.file)
    assert seqs(reopened(disk.crash())) == [0, 1, 2, 3]


async def test_the_kernels_disk_faults_on_a_log_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "sabcdefg" / "log.jsonl"
    path.parent.mkdir()
    path.write_bytes(BASE)
    writer = writer_on(RealDisk(), path)
    with trio.fail_after(30):
        await write(writer)
        good = path.read_bytes()
        os.replace(path, tmp_path / "away")
        path.write_bytes(b"something else")
        await faulted(writer)
    reopen_copy(RealDisk(), path, writer.synced_size, source=writer.file)
    writer.close()
    assert path.read_bytes() == good
    assert (path.parent / "log.foreign").read_bytes() == b"something else"


async def test_the_note_of_a_fault_names_file_end_and_reason() -> None:
    disk = disk_with(BASE)
    writer = writer_on(disk)
    await write(writer)
    disk.fail("fdatasync", errno.EIO)
    await faulted(writer)
    left = fault.read(disk, LOG)
    assert left is not None
    assert (left.size, left.seq, left.inode) == (writer.synced_size, 1, disk.stat(LOG).inode)
    assert "Input/output error" in left.reason
