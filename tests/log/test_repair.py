from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshd.errors import NoSpace, NotFound, Unsupported
from dshd.log import fault
from dshd.log.codec import encode
from dshd.log.disk import RealDisk
from dshd.log.memory import Everything, MemoryDisk
from dshd.log.recovery import Opened, repair
from dshd.log.repair import salvage
from tests.amount import examples
from tests.log.kit import LOG, SESSION, batch, disk_with, header, lines, note, opened, reopened, seqs

DATA = lines(header(mode="full", depth=0), batch(1, 3), batch(4, 6), batch(7, 8))
NOW = 99_000


def zeroed(data: bytes, start: int, end: int | None = None) -> bytes:
    end = start + 1 if end is None else end
    return data[:start] + bytes(end - start) + data[end:]


def jumps(found: Opened) -> list[tuple[int, int]]:
    """Pairs of neighbours whose seqs don't follow each other."""
    pairs = zip(seqs(found), seqs(found)[1:], strict=False)
    return [pair for pair in pairs if pair[1] != pair[0] + 1]


def test_any_damaged_line_is_repaired_with_one_gap() -> None:
    for at in range(len(lines(header(mode="full", depth=0))), DATA.index(b'{"seq":7')):
        disk = disk_with(zeroed(DATA, at))
        report = repair(disk, LOG, now=NOW)
        bad = DATA[:at].count(b"\n")
        assert report.next_seq == 10
        assert not report.header
        found = reopened(disk)
        assert (found.damage, found.torn, found.unsupported) == (None, None, None)
        assert seqs(found) == list(range(10))
        gap = found.events[bad]
        assert (gap.type, gap.data) == ("log/gap", {"first": bad, "last": bad, "file": f"log.damaged-{bad}"})
        assert found.events[9].type == "log/repaired"
        assert found.events[9].synced == 8
        assert found.events[9].data["regions"][0]["line"] == bad + 1
        assert disk.peek(LOG.with_name(f"log.damaged-{bad}")) == zeroed(DATA, at)
        good = [line for number, line in enumerate(DATA.splitlines(keepends=True)) if number != bad]
        assert [line for line in good if line in disk.peek(LOG)] == good


def test_a_repaired_log_has_exactly_one_jump_and_opens() -> None:
    disk = disk_with(zeroed(DATA, DATA.index(b'{"seq":2'), DATA.index(b'{"seq":5')))
    repair(disk, LOG, now=NOW)
    found = reopened(disk)
    assert jumps(found) == [(2, 5)]
    assert found.events[2].data == {"first": 2, "last": 4, "file": "log.damaged-2"}
    assert found.damage is None


def test_several_regions_have_a_gap_each_and_the_torn_tail_is_left_out() -> None:
    data = zeroed(zeroed(DATA, DATA.index(b'{"seq":2')), DATA.index(b'{"seq":5')) + b"torn"
    disk = disk_with(data)
    report = repair(disk, LOG, now=NOW)
    assert [(region.first_seq, region.last_seq) for region in report.regions] == [(2, 2), (5, 5)]
    found = reopened(disk)
    assert [event.seq for event in found.events if event.type == "log/gap"] == [2, 5]
    assert (found.damage, found.torn, found.next_seq) == (None, None, 10)
    assert disk.peek(LOG.with_name("log.damaged-2")) == data


def test_a_second_writers_lines_are_dropped_without_a_gap() -> None:
    second = encode(note(6, "the other writer", synced=5))
    start = DATA.index(b'{"seq":7')
    disk = disk_with(DATA[:start] + second + DATA[start:])
    report = repair(disk, LOG, now=NOW)
    found = reopened(disk)
    assert [event.type for event in found.events].count("log/gap") == 0
    assert seqs(found) == list(range(10))
    assert found.events[6].data["text"] == "number 6"
    assert found.events[9].data["regions"][0]["reason"] == "its seq is 6, not 7"
    assert second in disk.peek(LOG.with_name(report.file or ""))


def test_missing_seqs_get_a_gap_though_no_byte_is_bad() -> None:
    disk = disk_with(DATA[: DATA.index(b'{"seq":4')] + DATA[DATA.index(b'{"seq":7') :])
    repair(disk, LOG, now=NOW)
    found = reopened(disk)
    assert jumps(found) == [(4, 7)]
    assert found.events[4].data == {"first": 4, "last": 6, "file": "log.damaged-4"}


def test_a_repaired_log_can_be_damaged_and_repaired_again() -> None:
    disk = disk_with(zeroed(DATA, DATA.index(b'{"seq":2')))
    repair(disk, LOG, now=NOW)
    file = disk.open_log(LOG)
    file.append(lines(batch(10, 12), batch(13, 13)))
    file.close()
    data = disk.peek(LOG)
    disk.poke(LOG, zeroed(data, data.index(b'"log/gap"')))
    report = repair(disk, LOG, now=NOW)
    assert report.file == "log.damaged-2.2"
    found = reopened(disk)
    assert (found.damage, found.next_seq) == (None, 15)
    assert found.events[2].data["file"] == "log.damaged-2.2"


@pytest.mark.parametrize("data", [DATA, DATA + b"torn", DATA[: DATA.index(b'{"seq":8')]])
def test_a_log_that_is_not_damaged_is_left_alone(data: bytes) -> None:
    disk = disk_with(data)
    disk.before(lambda call, path: pytest.fail(f"{call} {path}"))
    assert repair(disk, LOG).regions == ()


def test_a_format_that_is_not_known_is_not_repaired() -> None:
    data = zeroed(lines(header(version=2), batch(1, 3), batch(4, 5)), 300)
    disk = disk_with(data)
    with pytest.raises(Unsupported, match="newer dshd"):
        repair(disk, LOG)
    assert disk.peek(LOG) == data


def test_a_log_that_does_not_exist_is_not_repaired() -> None:
    with pytest.raises(NotFound):
        repair(MemoryDisk(), LOG)


@pytest.mark.parametrize("call", ["create", "write", "fsync", "rename", "link"])
def test_a_repair_that_fails_leaves_the_damaged_log(call: str) -> None:
    data = zeroed(DATA, DATA.index(b'{"seq":2'))
    disk = disk_with(data)
    disk.fail(call, errno.ENOSPC)
    with pytest.raises(NoSpace):
        repair(disk, LOG, now=NOW)
    assert disk.peek(LOG) == data
    repair(disk, LOG, now=NOW)
    assert reopened(disk).damage is None


def test_a_crash_at_any_call_of_a_repair_leaves_the_old_log_or_the_new_one_and_the_old_bytes() -> None:
    data = zeroed(DATA, DATA.index(b'{"seq":2'))
    disk = disk_with(data)
    points: list[MemoryDisk] = []
    disk.before(lambda _call, _path: points.extend((disk.crash(), disk.crash(Everything()))))
    repair(disk, LOG, now=NOW)
    whole = disk.peek(LOG)
    for left in points:
        assert left.peek(LOG) in (data, whole)
        everything = [left.peek(LOG.with_name(name)) for name in left.listdir(LOG.parent)]
        assert data in everything
        repair(left, LOG, now=NOW)
        assert reopened(left).next_seq == 10
    assert len(points) > 8


def test_what_a_foreign_hand_cut_off_a_faulted_log_becomes_a_gap() -> None:
    disk = disk_with(DATA[: DATA.index(b'{"seq":4')])
    fault.write(disk, LOG, fault.FaultNote(disk.stat(LOG).inode, len(DATA), 8, "cut"))
    report = repair(disk, LOG, now=NOW)
    assert [(region.first_seq, region.last_seq) for region in report.regions] == [(4, 8)]
    found = reopened(disk)
    assert seqs(found) == [0, 1, 2, 3, 4, 9]
    assert found.damage is None


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_whatever_is_damaged_can_be_repaired(random: Random) -> None:
    data = bytearray(DATA)
    for _ in range(random.randint(1, 5)):
        at, size = random.randrange(len(data)), random.choice((0, 1, 1, 20, 300))
        data[at : at + random.choice((0, size))] = random.choice((bytes(size), b"\n", bytes(data[:size])))
    disk, found = opened(bytes(data))
    if found.damage is None:
        return
    report = repair(disk, LOG, now=NOW)
    assert report.file is not None
    assert disk.peek(LOG.with_name(report.file)) == bytes(data)
    whole = reopened(disk)
    assert (whole.damage, whole.torn) == (None, None)
    assert whole.next_seq == report.next_seq
    kept = {event for event in map(encode, found.events) if b'"log/gap"' not in event}
    assert kept - set(map(encode, whole.events)) == set()


def test_the_kernels_disk_repairs_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / SESSION / "log.jsonl"
    path.parent.mkdir()
    path.write_bytes(zeroed(DATA, DATA.index(b'{"seq":2')))
    report = repair(RealDisk(), path)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["log.damaged-2", "log.jsonl"]
    assert report.size == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    assert reopened(RealDisk(), path).damage is None


# -- headers ----------------------------------------------------------------------------------------


def test_a_damaged_header_is_written_anew_from_what_it_still_tells() -> None:
    for at in range(DATA.index(b"\n") + 1):
        disk = disk_with(zeroed(DATA, at))
        report = repair(disk, LOG, now=NOW)
        assert report.header
        found = reopened(disk)
        assert (found.damage, found.unsupported) == (None, None)
        data = found.events[0].data
        assert (data["version"], data["id"]) == (1, SESSION)
        assert data["mode"] in ("full", "read-only")
        assert data["dir"] in ("/src/api", "/")
        assert data["name"] in ("api", SESSION)
        assert seqs(found) == list(range(10))
        assert [event.type for event in found.events].count("log/gap") == 0


@pytest.mark.parametrize(
    "data", [b"", bytes(5000), b"garbage", b"garbage\n" * 9, b'{"data":[]}\n', b'{"data":1}']
)
def test_a_log_without_anything_good_gets_the_most_careful_header(data: bytes) -> None:
    disk = disk_with(data)
    repair(disk, LOG, now=NOW)
    found = reopened(disk)
    assert found.events[0].data == salvage(b"", SESSION, NOW)
    assert (found.events[0].data["mode"], found.events[0].data["dir"]) == ("read-only", "/")
    assert found.next_seq == 2


def test_a_header_that_is_lost_with_the_lines_after_it_leaves_a_gap() -> None:
    disk = disk_with(zeroed(DATA, 0, DATA.index(b'{"seq":3')))
    repair(disk, LOG, now=NOW)
    found = reopened(disk)
    assert seqs(found) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert found.events[1].data == {"first": 1, "last": 2, "file": "log.damaged-0"}


def test_the_caller_may_know_better_what_a_header_holds() -> None:
    disk = disk_with(zeroed(DATA, 5))
    repair(disk, LOG, now=NOW, make_header=lambda _raw, session, _now: {"version": 1, "id": session, "x": 1})
    assert reopened(disk).events[0].data == {"version": 1, "id": SESSION, "x": 1}


def test_garbage_before_a_good_header_is_dropped_and_the_header_kept() -> None:
    disk = disk_with(b"garbage\n" + DATA)
    report = repair(disk, LOG, now=NOW)
    assert not report.header
    assert disk.peek(LOG).startswith(DATA)
