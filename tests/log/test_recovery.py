from __future__ import annotations

import errno
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshd.errors import Damaged, DshError, NoSpace, NotFound
from dshd.log import fault
from dshd.log.codec import Event, encode
from dshd.log.disk import RealDisk
from dshd.log.memory import Everything, MemoryDisk, Prefix, Seeded
from dshd.log.reader import scan
from dshd.log.recovery import open_log, read_log, reopen_copy
from dshd.log.repair import repair
from dshd.log.survey import Region
from dshd.log.vocabulary import gap_event
from tests.amount import examples
from tests.log.kit import KNOWN, LOG, batch, disk_with, header, lines, note, opened, reopened, seqs

# A header, an acknowledged batch, and one that was on its way to disk when the power went.
ACKED = lines(header(), batch(1, 3))
LAST = lines(batch(4, 6))
LATER = lines(batch(7, 8))


def torn_files(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.listdir(LOG.parent) if name.startswith("log.torn-")]


# -- a whole log ------------------------------------------------------------------------------------


def test_a_whole_log_opens_as_it_is() -> None:
    disk, found = opened(ACKED + LAST)
    assert seqs(found) == list(range(7))
    assert (found.next_seq, found.synced, found.size) == (7, 6, len(ACKED + LAST))
    assert (found.torn, found.damage, found.unsupported) == (None, None, None)
    assert disk.listdir(LOG.parent) == ["log.jsonl"]


def test_what_was_read_is_synced_before_an_opening_ends() -> None:
    disk = disk_with(ACKED)
    file = disk.open_log(LOG)
    file.append(LAST)  # and the daemon is killed: the page cache shows it, the disk doesn't have it
    file.close()
    trace = disk.trace()
    assert reopened(disk).next_seq == 7
    assert [call for call, path in trace if path == str(LOG)][-1] == "fdatasync"
    assert disk.crash().peek(LOG) == ACKED + LAST


def test_what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_is_believed() -> None:
    """The daemon was killed while the sync failed: nobody cut the lines away, nobody left a note."""
    disk = disk_with(ACKED)
    file = disk.open_log(LOG)
    file.append(LAST)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.close()
    assert reopened(disk).next_seq == 7
    assert disk.crash().peek(LOG) == ACKED + LAST


def test_only_what_no_line_proves_to_be_durable_is_written_again() -> None:
    disk = disk_with(ACKED + LAST)
    trace = disk.trace()
    written: list[int] = []
    write = disk.calls.pwrite
    disk.calls.pwrite = lambda fd, data, offset: written.append(offset) or write(fd, data, offset)  # type: ignore
    reopened(disk)
    assert written == [len(ACKED)]
    assert ("ftruncate", str(LOG)) not in trace


def test_a_log_whose_sync_fails_at_opening_is_not_believed() -> None:
    disk = disk_with(ACKED)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(DshError, match=r"can't open /state/.*Input/output error"):
        reopened(disk)


def test_with_each_the_events_are_given_and_not_collected() -> None:
    given_events: list[int] = []
    _file, found = open_log(
        disk_with(ACKED + b"torn"), LOG, KNOWN, each=lambda event: given_events.append(event.seq)
    )
    assert given_events == [0, 1, 2, 3]
    assert found.events == []


def test_a_hundred_thousand_lines_open_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with path.open("wb") as out:
        out.write(encode(header()))
        out.writelines(encode(note(seq, "x" * 100, synced=seq - 1)) for seq in range(1, 100_001))
        out.write(b"torn")
    count = 0

    def each(event: Event) -> None:
        nonlocal count
        count += 1
        if count == 80_000:  # tracing is slow: a fifth of the way tells as much
            tracemalloc.start()

    try:
        _file, found = open_log(RealDisk(), path, KNOWN, each=each)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert _file is not None
    _file.close()
    assert count == found.next_seq == 100_001
    assert path.stat().st_size > 15_000_000
    assert 100_000 < peak < 6_000_000  # collected, 20,000 of them take more than ten


# -- the torn tail ----------------------------------------------------------------------------------


def test_a_last_batch_cut_at_any_byte_is_cut_to_its_whole_lines() -> None:
    for cut in range(len(LAST)):
        disk, found = opened(ACKED + LAST[:cut])
        whole = LAST[:cut].count(b"\n")
        kept = ACKED + b"".join(LAST.splitlines(keepends=True)[:whole])
        assert seqs(found) == list(range(4 + whole))
        assert disk.crash().peek(LOG) == kept
        assert (found.next_seq, found.size, found.synced) == (4 + whole, len(kept), 3 + whole)
        assert found.damage is None
        rest = (ACKED + LAST[:cut])[len(kept) :]
        if rest:
            assert found.torn is not None
            assert found.torn.file == f"log.torn-{4 + whole}"
            assert (found.torn.start, found.torn.bytes) == (len(kept), len(rest))
            assert disk.crash().peek(LOG.with_name(found.torn.file)) == rest
        else:
            assert torn_files(disk) == []


def zeroed(data: bytes, at: int, count: int = 1) -> bytes:
    return data[:at] + bytes(count) + data[at + count :]


def test_any_zeroed_byte_of_the_last_batch_is_a_torn_tail() -> None:
    for at in range(len(LAST)):
        disk, found = opened(zeroed(ACKED + LAST, len(ACKED) + at))
        assert found.damage is None
        bad = LAST[:at].count(b"\n")
        assert seqs(found) == list(range(4 + bad))
        assert disk.peek(LOG) == ACKED + b"".join(LAST.splitlines(keepends=True)[:bad])
        assert torn_files(disk) == [f"log.torn-{4 + bad}"]
        assert reopened(disk).torn is None


def test_the_same_byte_is_damage_once_a_later_line_tells_that_the_batch_was_synced() -> None:
    for at in range(len(LAST)):
        data = zeroed(ACKED + LAST + LATER, len(ACKED) + at)
        disk, found = opened(data)
        bad = LAST[:at].count(b"\n")
        assert found.damage is not None
        assert (found.damage.first_seq, found.damage.last_seq, found.damage.line) == (
            4 + bad,
            4 + bad,
            5 + bad,
        )
        assert [event for event in found.events if event.type == "log/gap"] == [gap_event(4 + bad, 4 + bad)]
        assert seqs(found) == list(range(9))
        assert disk.peek(LOG) == data
        assert disk.listdir(LOG.parent) == ["log.jsonl"]


def test_any_zeroed_byte_of_an_acknowledged_line_is_damage() -> None:
    for at in range(len(ACKED)):
        disk, found = opened(zeroed(ACKED + LAST, at))
        assert found.damage is not None
        assert found.damage.start <= at < found.damage.end
        assert found.damage.line == ACKED[:at].count(b"\n") + 1
        assert disk.peek(LOG) == zeroed(ACKED + LAST, at)


def test_zeros_in_the_middle_of_the_last_batch_with_good_lines_after_are_a_torn_tail() -> None:
    big = [note(4, "a" * 6000, synced=3), note(5, "b" * 6000), note(6, "c"), note(7, "d")]
    data = bytearray(ACKED + lines(big))
    data[4096:8192] = bytes(4096)
    _disk, found = opened(bytes(data))
    assert found.damage is None
    assert seqs(found) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [1, 4096, 5000, 3 * 1024 * 1024])
def test_a_tail_of_zeros_is_a_torn_tail(size: int) -> None:
    disk, found = opened(ACKED + bytes(size))
    assert seqs(found) == [0, 1, 2, 3]
    assert found.torn is not None
    assert found.torn.bytes == size
    assert disk.peek(LOG) == ACKED


def test_a_block_of_zeros_over_several_acknowledged_lines_is_one_damage() -> None:
    data = ACKED + LAST + LATER
    start, end = data.index(b'{"seq":2'), data.index(b'{"seq":5')
    _disk, found = opened(zeroed(data, start, end - start))
    assert found.damage is not None
    assert (found.damage.first_seq, found.damage.last_seq) == (2, 4)
    assert (found.damage.start, found.damage.end) == (start, end)
    assert seqs(found) == [0, 1, 2, 5, 6, 7, 8]


def test_the_tail_is_safe_elsewhere_before_it_is_cut() -> None:
    data = ACKED + LAST[:-5]
    points: list[MemoryDisk] = []
    disk = disk_with(data)
    disk.before(lambda _call, _path: points.append(disk.crash()))
    reopened(disk)
    points.append(disk.crash())
    for left in points:
        kept = [left.peek(LOG.with_name(name)) for name in torn_files(left)]
        cut = left.peek(LOG)
        assert cut == data or any(cut + tail == data for tail in kept)
        assert reopened(left).next_seq == 6
    assert len(points) > 4


def test_two_tails_torn_at_the_same_seq_are_both_kept() -> None:
    disk = disk_with(ACKED + b"first")
    reopened(disk)
    disk.poke(LOG, ACKED + b"second")
    found = reopened(disk)
    assert found.torn is not None
    assert found.torn.file == "log.torn-4.2"
    assert disk.peek(LOG.with_name("log.torn-4")) == b"first"
    assert disk.peek(LOG.with_name("log.torn-4.2")) == b"second"


def test_a_full_disk_keeps_a_tail_from_being_cut_not_the_log_from_being_opened_later() -> None:
    disk = disk_with(ACKED + b"torn")
    disk.limit(free=0)
    with pytest.raises(NoSpace):
        reopened(disk)
    assert disk.peek(LOG) == ACKED + b"torn"
    disk.limit()
    assert reopened(disk).next_seq == 4


@given(st.randoms(use_true_random=False), st.integers(1, 12), st.integers(1, 6000))
@settings(max_examples=examples(100))
def test_no_power_cut_loses_a_synced_line_or_passes_for_damage(random: Random, count: int, size: int) -> None:
    disk = disk_with(ACKED)
    file = disk.open_log(LOG)
    batches = [lines(batch(4, 6, "s" * size)), lines(batch(7, 6 + count, "u" * size))]
    file.append(batches[0])
    file.sync()
    file.append(batches[1])
    after = disk.crash(Seeded(random))
    found = reopened(after)
    assert found.damage is None
    assert seqs(found)[:7] == list(range(7))
    assert seqs(found) == list(range(found.next_seq))
    assert (ACKED + b"".join(batches)).startswith(after.peek(LOG))


@pytest.mark.parametrize("survivor", [None, Everything(), Prefix(0), Prefix(1), Prefix(70)])
def test_any_prefix_of_what_was_not_synced_opens(survivor: Everything | None) -> None:
    disk = disk_with(ACKED)
    disk.open_log(LOG).append(LAST)
    found = reopened(disk.crash(survivor))
    assert 4 <= found.next_seq <= 7
    assert found.damage is None


# -- damage -----------------------------------------------------------------------------------------


def test_an_empty_file_has_lost_its_header_and_is_damaged() -> None:
    _disk, found = opened(b"")
    assert found.damage is not None
    assert found.damage.reason == "the file is empty"


@pytest.mark.parametrize("data", [b"garbage\n", bytes(9000), encode(header())[:-1], encode(note(1))])
def test_a_header_is_never_a_torn_tail(data: bytes) -> None:
    disk, found = opened(data)
    assert found.damage is not None
    assert found.damage.first_seq == 0
    assert disk.peek(LOG) == data


def test_a_session_without_its_log_is_damaged_and_one_without_directory_unknown() -> None:
    disk = disk_with(ACKED)
    disk.unlink(LOG)
    with pytest.raises(Damaged, match=r"log.jsonl is missing"):
        reopened(disk)
    disk.remove_tree(LOG.parent)
    with pytest.raises(NotFound):
        reopened(disk)


def test_an_unreadable_log_is_an_error_that_names_it(tmp_path: Path) -> None:
    disk = disk_with(ACKED)
    disk.fail("pread", errno.EIO)
    with pytest.raises(DshError, match=r"log.jsonl: Input/output error"):
        reopened(disk)
    disk.fail("open", errno.EACCES, path="log.jsonl")
    with pytest.raises(DshError, match=r"permission denied on /state/sessions/sabcdefg/log.jsonl"):
        reopened(disk)
    assert disk.peek(LOG) == ACKED


def test_a_seq_written_twice_by_a_second_writer_is_damage_when_it_was_durable() -> None:
    second = lines(batch(4, 4, "the other writer"))
    _disk, found = opened(ACKED + LAST[: LAST.index(b"\n") + 1] + second + lines(batch(5, 6)))
    assert found.damage is not None
    assert found.damage.reason == "its seq is 4, not 5"
    assert seqs(found) == list(range(7))
    assert found.events[4].data["text"] == "number 4"


def test_a_seq_written_twice_at_the_very_end_is_cut_off() -> None:
    disk, found = opened(ACKED + lines(note(3, "again", synced=2)))
    assert found.damage is None
    assert seqs(found) == [0, 1, 2, 3]
    assert disk.peek(LOG) == ACKED


def test_seqs_that_are_missing_without_a_gap_are_damage_when_the_next_line_proves_them() -> None:
    _disk, found = opened(ACKED + LATER)
    assert found.damage is not None
    assert (found.damage.first_seq, found.damage.last_seq) == (4, 6)
    assert found.damage.start == found.damage.end == len(ACKED)


def test_seqs_that_are_missing_and_not_proven_are_a_torn_tail() -> None:
    _disk, found = opened(ACKED + lines(note(5), note(6)))
    assert found.damage is None
    assert seqs(found) == [0, 1, 2, 3]


def test_a_gap_is_the_one_jump_that_is_accepted() -> None:
    _disk, found = opened(ACKED + encode(gap_event(4, 9)) + lines(batch(10, 11)))
    assert (found.damage, found.torn, found.next_seq) == (None, None, 12)
    _disk, found = opened(ACKED + encode(gap_event(4, 9)) + lines(batch(11, 12)))
    assert found.damage is not None
    assert found.damage.first_seq == 10


def test_two_lines_glued_together_are_bad_and_the_second_one_still_counts() -> None:
    glued = ACKED[:-1] + LAST
    _disk, found = opened(glued)
    assert found.damage is not None  # line 3 has no newline, and line 4 says that 3 was durable
    assert (found.damage.first_seq, found.damage.last_seq) == (3, 3)
    assert seqs(found) == list(range(7))


def test_two_lines_glued_in_the_last_batch_are_a_torn_tail() -> None:
    first, second, third = LAST.splitlines(keepends=True)
    _disk, found = opened(ACKED + first + second[:-1] + third)
    assert found.damage is None
    assert seqs(found) == [0, 1, 2, 3, 4]


def test_a_line_cut_in_the_middle_of_a_long_log_hides_nothing_after_it() -> None:
    events = [header(), *(note(seq, synced=seq - 1) for seq in range(1, 7000))]
    raw = [encode(event) for event in events]
    raw[2999] = raw[2999][:20] + b"\n"
    disk, found = opened(b"".join(raw))
    assert found.damage is not None
    start = sum(map(len, raw[:2999]))
    assert found.damage.sentence() == f"damaged at line 3000 (bytes {start}-{start + 20} of log.jsonl)"
    assert seqs(found) == list(range(7000))
    items = list(scan(disk, LOG))
    assert [item.first for item in items if isinstance(item, Region)] == [2999]
    assert len(items) == 7000


def test_several_damages_and_a_torn_tail_are_told_apart() -> None:
    data = ACKED + LAST + LATER + lines(note(9, synced=8)) + b"torn"
    data = zeroed(zeroed(data, data.index(b'{"seq":2')), data.index(b'{"seq":5'))
    disk, found = opened(data)
    assert [(region.first_seq, region.last_seq) for region in found.regions] == [(2, 2), (5, 5)]
    assert found.torn is not None
    assert (found.torn.seq, found.torn.file) == (10, "")
    assert found.next_seq == 10
    assert disk.peek(LOG) == data


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_whatever_happens_to_the_bytes_opening_ends_in_a_verdict(random: Random) -> None:
    data = bytearray(ACKED + LAST + LATER)
    for _ in range(random.randint(1, 5)):
        at, size = random.randrange(len(data)), random.choice((0, 1, 1, 20, 300))
        data[at : at + random.choice((0, size))] = random.choice((bytes(size), b"\n", bytes(data[:size])))
    disk, found = opened(bytes(data))
    if found.damage is None and found.unsupported is None:
        assert seqs(found) == list(range(found.next_seq))
        again = reopened(disk)
        assert (again.torn, again.next_seq, again.events) == (None, found.next_seq, found.events)
    else:
        assert disk.peek(LOG) == bytes(data)


# -- versions ---------------------------------------------------------------------------------------


def test_a_newer_format_is_not_driven_and_says_so() -> None:
    data = lines(header(version=2), note(1)) + b"torn"
    disk, found = opened(data)
    assert found.unsupported is not None
    assert "written by a newer dshd: its format is 2" in found.unsupported
    assert seqs(found) == [0, 1]
    assert disk.peek(LOG) == data


@pytest.mark.parametrize("version", [0, None, "1", 1.5])
def test_another_format_is_not_taken_for_a_newer_one(version: object) -> None:
    _disk, found = opened(lines(header(version=version)))  # type: ignore[arg-type]
    assert found.unsupported is not None
    assert "newer dshd:" not in found.unsupported


def test_an_unknown_event_is_shown_but_not_driven() -> None:
    data = lines(header(), Event(1, 1, "dream/start", {}), note(2)) + b"torn"
    disk, found = opened(data)
    assert found.unsupported is not None
    assert 'event 1 is "dream/start"' in found.unsupported
    assert seqs(found) == [0, 1, 2]
    assert disk.peek(LOG) == data


def test_an_unknown_event_that_may_be_passed_over_stops_nobody() -> None:
    _disk, found = opened(lines(header(), Event(1, 1, "dream/start", {}, ignorable=True), note(2)))
    assert found.unsupported is None
    assert seqs(found) == [0, 1, 2]


def test_a_log_that_does_not_begin_with_a_header_is_not_driven() -> None:
    _disk, found = opened(lines(note(0), note(1)))
    assert found.unsupported == 'its first event is "note", not a session header'


# -- reading without writing ------------------------------------------------------------------------


def test_reading_tells_the_same_and_changes_nothing() -> None:
    for data in (ACKED + LAST, ACKED + b"torn", zeroed(ACKED + LAST, 300), lines(header(version=9)), b""):
        disk, written = opened(data)
        fresh = disk_with(data)
        fresh.before(lambda call, path: pytest.fail(f"{call} {path}"))
        read = read_log(fresh, LOG, KNOWN)
        assert read.events == written.events
        assert (read.next_seq, read.damage, read.unsupported) == (
            written.next_seq,
            written.damage,
            written.unsupported,
        )
        assert (read.torn is None) == (written.torn is None)
        assert disk.exists(LOG)


# -- leaving a fault --------------------------------------------------------------------------------


def test_reopening_copies_the_synced_prefix_into_a_new_file() -> None:
    disk = disk_with(ACKED + LAST)
    before = disk.stat(LOG).inode
    reopen_copy(disk, LOG, len(ACKED))
    assert disk.stat(LOG).inode != before
    assert disk.crash().peek(LOG) == ACKED
    assert disk.listdir(LOG.parent) == ["log.jsonl"]


def test_reopening_takes_the_bytes_of_the_open_file_when_its_name_is_gone() -> None:
    disk = disk_with(ACKED + LAST)
    file = disk.open_log(LOG)
    disk.unlink(LOG)
    reopen_copy(disk, LOG, len(ACKED), source=file)
    assert disk.crash().peek(LOG) == ACKED


def test_reopening_keeps_a_foreign_file_that_stood_in_the_logs_place() -> None:
    disk = disk_with(ACKED + LAST)
    file = disk.open_log(LOG)
    disk.write_atomic(LOG, b"an old backup")
    reopen_copy(disk, LOG, len(ACKED + LAST), source=file)
    assert disk.crash().peek(LOG) == ACKED + LAST
    assert disk.peek(LOG.with_name("log.foreign")) == b"an old backup"


def test_reopening_a_log_that_lost_synced_bytes_is_refused() -> None:
    disk = disk_with(ACKED)
    with pytest.raises(Damaged, match="shorter than"):
        reopen_copy(disk, LOG, len(ACKED) + 1)
    assert disk.listdir(LOG.parent) == ["log.jsonl"]


def noted(disk: MemoryDisk, size: int, seq: int) -> None:
    fault.write(disk, LOG, fault.FaultNote(disk.stat(LOG).inode, size, seq, "EIO"))


def test_an_opening_after_a_fault_believes_the_synced_prefix_alone() -> None:
    disk = disk_with(ACKED + LAST)
    noted(disk, len(ACKED), 3)
    before = disk.stat(LOG).inode
    assert seqs(reopened(disk)) == [0, 1, 2, 3]
    assert disk.stat(LOG).inode != before
    assert not disk.crash().exists(LOG.with_name(fault.NAME))


def test_a_note_about_another_file_does_no_harm() -> None:
    disk = disk_with(ACKED)
    noted(disk, len(ACKED), 3)
    note_bytes = disk.peek(LOG.with_name(fault.NAME))
    reopened(disk)
    file = disk.open_log(LOG)
    file.append(LAST)
    file.sync()
    disk.write_atomic(LOG.with_name(fault.NAME), note_bytes)
    assert reopened(disk).next_seq == 7


def test_no_log_is_continued_with_a_note_beside_it() -> None:
    disk = disk_with(ACKED)
    noted(disk, len(ACKED + LAST), -1)  # a sync failed, then a power cut took what was not durable
    file, found = open_log(disk, LOG, KNOWN)
    assert file is not None
    assert found.damage is None
    file.append(LAST + encode(note(7, "more")))
    file.sync()
    file.close()
    assert reopened(disk).next_seq == 8
    assert not disk.crash().exists(LOG.with_name(fault.NAME))


def test_a_stale_note_goes_before_its_inode_is_given_out_again() -> None:
    disk = disk_with(ACKED + LAST)
    disk.write_atomic(LOG.with_name(fault.NAME), b'{"inode": [1, 99], "size": 10, "seq": 0, "reason": "EIO"}')
    assert reopened(disk).next_seq == 7
    assert not disk.crash().exists(LOG.with_name(fault.NAME))


@pytest.mark.parametrize("content", [b"", b"{", bytes(500), b"[]", b"{}", b'{"inode":3}'])
def test_a_note_that_can_not_be_read_does_no_harm(content: bytes) -> None:
    disk = disk_with(ACKED + LAST)
    disk.write_atomic(LOG.with_name(fault.NAME), content)
    assert reopened(disk).next_seq == 7


def test_no_crash_while_leaving_a_fault_loses_a_synced_line() -> None:
    disk = disk_with(ACKED + LAST)
    noted(disk, len(ACKED), 3)
    points: list[MemoryDisk] = []
    disk.before(lambda _call, _path: points.extend((disk.crash(), disk.crash(Everything()))))
    reopened(disk)
    for left in points:
        found = reopened(left)
        assert seqs(found) == [0, 1, 2, 3]
        assert found.damage is None
    assert len(points) > 8


def test_a_faulted_log_that_was_cut_by_somebody_is_damaged_not_shorter() -> None:
    disk = disk_with(ACKED)
    noted(disk, len(ACKED + LAST), 6)
    found = reopened(disk)
    assert found.damage is not None
    assert (found.damage.first_seq, found.damage.last_seq) == (4, 6)
    assert seqs(found) == [0, 1, 2, 3, 4]
    assert found.events[4] == gap_event(4, 6)


def test_the_note_is_plain_json() -> None:
    disk = disk_with(ACKED)
    noted(disk, 10, 3)
    note_fields = json.loads(disk.peek(LOG.with_name("log.faulted")))
    assert note_fields == {"inode": list(disk.stat(LOG).inode), "size": 10, "seq": 3, "reason": "EIO"}


def test_the_kernels_disk_opens_cuts_and_reopens_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(ACKED + LAST[:-3])
    found = reopened(RealDisk(), path)
    assert found.next_seq == 6
    assert sorted(os.listdir(tmp_path)) == ["log.jsonl", "log.torn-6"]
    reopen_copy(RealDisk(), path, len(ACKED))
    assert path.read_bytes() == ACKED


def test_behind_a_torn_region_nothing_is_damage_any_more() -> None:
    first, second, third = LAST.splitlines(keepends=True)
    data = ACKED + zeroed(first, 5) + second + b"garbage\n" + encode(note(2, "again")) + third
    disk, found = opened(data)
    assert found.damage is None
    assert (found.next_seq, disk.peek(LOG)) == (4, ACKED)


def test_a_reopening_that_cannot_copy_enough_leaves_the_file_of_that_name_where_it_is() -> None:
    disk = MemoryDisk()
    path = Path("/log.jsonl")
    disk.write_synced(path, b"ours")
    ours = disk.open_log(path)
    disk.write_synced(Path("/other"), b"theirs")
    disk.rename_synced(Path("/other"), path)
    with pytest.raises(Damaged):
        reopen_copy(disk, path, 10, source=ours)
    assert disk.read_bytes(path) == b"theirs"
    reopen_copy(disk, path, 4, source=ours)
    assert disk.read_bytes(path) == b"ours"
    assert disk.read_bytes(Path("/log.foreign")) == b"theirs"


@pytest.mark.parametrize(
    ("put", "word", "way_out"),
    [
        (lambda log: log.mkdir(), "is a directory", "rm"),
        (lambda log: os.mkfifo(log), "is no file", "rm"),
        (lambda log: log.symlink_to("nowhere"), "is a link to nothing", "rm"),
        (lambda log: None, "is missing", "rm"),
    ],
)
def test_what_is_no_log_is_told_with_the_way_out_and_keeps_nobody_waiting(
    tmp_path: Path, put: Callable[[Path], None], word: str, way_out: str
) -> None:
    log = tmp_path / "s1234567" / "log.jsonl"
    log.parent.mkdir()
    put(log)
    for look in (open_log, read_log):
        with pytest.raises(Damaged, match=word) as told:
            look(RealDisk(), log, KNOWN)
        assert told.value.hint == f"dshctl {way_out} s1234567"


@pytest.mark.parametrize(
    ("put", "word"),
    [
        (lambda place: place.write_text("notes"), "is a file, and no session"),
        (lambda place: os.mkfifo(place), "is no directory, and no session"),
        (lambda place: place.symlink_to("nowhere"), "is a link to nothing, and no session"),
    ],
)
def test_what_is_no_session_at_all_is_told_with_where_it_is(
    tmp_path: Path, put: Callable[[Path], None], word: str
) -> None:
    place = tmp_path / "notes"
    put(place)
    for look in (open_log, read_log):
        with pytest.raises(Damaged, match=f"^{place} {word}") as told:
            look(RealDisk(), place / "log.jsonl", KNOWN)
        assert told.value.hint == f"ls -l {place}"


def test_a_link_is_read_and_becomes_a_file_by_a_repair(tmp_path: Path) -> None:
    log = tmp_path / "s1234567" / "log.jsonl"
    log.parent.mkdir()
    log.with_name("elsewhere").write_bytes(ACKED)
    log.symlink_to("elsewhere")
    assert read_log(RealDisk(), log, KNOWN).next_seq == 4
    with pytest.raises(Damaged, match="is a symbolic link") as told:
        open_log(RealDisk(), log, KNOWN)
    assert told.value.hint == "dshctl fsck --repair s1234567"
    repair(RealDisk(), log)
    assert not log.is_symlink()
    assert log.read_bytes() == ACKED
    assert log.with_name("elsewhere").read_bytes() == ACKED
