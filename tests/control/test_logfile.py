"""Finding places in a log, and reading it whatever its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshd.control.logfile import LogFile, as_line
from dshd.errors import Damaged, DshError
from dshd.log.codec import Event, encode
from dshd.log.memory import MemoryDisk
from tests.amount import examples

PATH = Path("/log.jsonl")


def log_of(*lines: bytes) -> LogFile:
    disk = MemoryDisk()
    disk.write_synced(PATH, b"".join(lines))
    return LogFile(disk, PATH)


def line(seq: int, type: str = "todo/write", time: int | None = None, **data: Any) -> bytes:
    return encode(Event(seq, 1000 + seq if time is None else time, type, data))


def many(count: int, **data: Any) -> list[bytes]:
    return [line(seq, **data) for seq in range(count)]


def test_a_line_is_believed_with_its_checksum_and_its_newline_only() -> None:
    raw = line(3, text="x\u2028y")
    found = as_line(10, raw)
    assert found is not None
    assert (found.offset, found.seq, found.time, found.type, found.next_seq) == (10, 3, 1003, "todo/write", 4)
    assert (found.end, found.crc) == (10 + len(raw), raw[-11:-3].decode())
    assert as_line(0, raw[:-1]) is None
    assert as_line(0, raw.replace(b"x", b"z", 1)) is None
    assert as_line(0, b"\x00" * 100 + b"\n") is None
    assert as_line(0, b"\n") is None


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=300), st.integers(-1, 310))
@settings(max_examples=examples(50))
def test_every_line_is_found_by_its_seq(sizes: list[int], seq: int) -> None:
    lines = [line(i, text="x" * size) for i, size in enumerate(sizes)]
    log = log_of(*lines)
    expected = sum(map(len, lines[: max(seq, 0)]))
    assert log.locate(seq) == expected
    found = log.line_at(seq)
    assert (found.raw if found else None) == (lines[seq] if 0 <= seq < len(lines) else None)
    assert log.last_seq() == len(lines) - 1


def test_a_line_is_found_in_a_long_log_with_few_reads() -> None:
    lines = many(20_000, text="x" * 100)
    log = log_of(*lines)
    log._disk.calls.counts.clear()  # type: ignore[attr-defined]
    assert log.line_at(12_345) is not None
    assert log._disk.calls.counts["pread"] < 40  # type: ignore[attr-defined]


def test_behind_a_gap_the_next_seq_is_the_one_behind_it() -> None:
    gap = encode(Event(2, 1, "log/gap", {"first": 2, "last": 9, "file": "x"}))
    log = log_of(*many(2), gap, line(10), line(11))
    assert [one.next_seq for one in log.lines()] == [1, 2, 10, 11, 12]
    assert log.locate(5) == log.locate(10)


def test_pieces_end_at_the_seq_asked_for_or_about_the_size() -> None:
    log = log_of(*many(100, text="x" * 1000))
    assert [one.seq for one in log.piece(0, 5).lines] == list(range(6))
    piece = log.piece(0, None, size=10_000)
    assert piece.more
    assert 9 <= len(piece.lines) <= 11
    rest = log.piece(piece.offset, None)
    assert [one.seq for one in (*piece.lines, *rest.lines)] == list(range(100))
    assert log.piece(log.size(), None).lines == []


def test_times_are_found_although_clocks_go_back() -> None:
    times = [10, 20, 15, 30, 40]
    log = log_of(*(line(seq, time=time) for seq, time in enumerate(times)))
    found = log.line_at(3)
    assert found is not None
    assert log.locate_time(25) == found.offset
    assert log.locate_time(5) == 0
    assert log.locate_time(50) == log.size()


def turns(count: int, filler: int) -> list[bytes]:
    lines: list[bytes] = []
    for turn in range(1, count + 1):
        lines.append(line(len(lines), "turn/start", turn=turn))
        lines += [line(len(lines) + i, text="x" * 1000) for i in range(filler)]
    return lines


@pytest.mark.parametrize("filler", [0, 3, 700])
def test_turns_are_found_from_both_ends(filler: int) -> None:
    lines = turns(5, filler)
    log = log_of(*lines)
    starts = [sum(map(len, lines[: turn * (filler + 1)])) for turn in range(5)]
    assert [log.locate_turn(number) for number in (1, 3, 5, 6)] == [
        starts[0],
        starts[2],
        starts[4],
        log.size(),
    ]
    assert [log.last_turns(count) for count in (0, 1, 2, 5, 9)] == [
        log.size(),
        starts[4],
        starts[3],
        starts[0],
        0,
    ]


def put_off(first: int, turn: int) -> list[bytes]:
    return [
        line(first, "turn/start", turn=turn), line(first + 1, "inbox/spliced", cause="hold"),
        line(first + 2, "turn/end", turn=turn, reason="completed"),
    ]  # fmt: skip


@pytest.mark.parametrize("deferred", [1, 20, 6000])
def test_turns_that_were_put_off_are_not_among_the_last(deferred: int) -> None:
    worked = [
        line(0, "turn/start", turn=1), line(1, "step/start", turn=1, step=1),
        line(2, "turn/end", turn=1, reason="completed"),
        line(3, "turn/start", turn=2), line(4, "step/rejected", by="x"),
        line(5, "turn/end", turn=2, reason="completed"),
        line(6, "turn/start", turn=3), line(7, "turn/end", turn=3, reason="blocked"),
    ]  # fmt: skip
    lines = [*worked]
    for turn in range(4, 4 + deferred):
        lines += put_off(len(lines), turn)
    runs = line(len(lines), "turn/start", turn=4 + deferred)
    log = log_of(*lines, runs)
    starts = [sum(map(len, worked[:n])) for n in (0, 3, 6)]
    last = sum(map(len, lines))
    assert [log.last_turns(count) for count in (1, 2, 3, 4)] == [last, *reversed(starts)]


def test_text_that_looks_like_a_turn_is_none() -> None:
    fake = line(1, text='\n{"seq":1,"time":2,"type":"turn/start","data":{"turn":7')
    log = log_of(line(0, "turn/start", turn=1), fake)
    assert log.last_turns(1) == 0
    assert log.locate_turn(7) == log.size()


def test_the_torn_tail_is_not_read() -> None:
    lines = many(3)
    log = log_of(*lines, b"\x00" * 50 + b"\n", line(4))
    assert [one.seq for one in log.lines()] == [0, 1, 2]
    assert log.damage is None


def test_of_a_damaged_log_the_good_lines_are_read_and_the_damage_is_named() -> None:
    lines = many(6)
    late = encode(Event(6, 1, "todo/write", {}, synced=5))
    bad = lines[2].replace(b"todo", b"toda")
    log = log_of(*lines[:2], bad, *lines[3:], late)
    assert [one.seq for one in log.lines()] == [0, 1, 3, 4, 5, 6]
    assert log.damage is not None
    assert "line 3" in log.damage


def test_a_log_that_is_not_there_is_an_error_with_its_path() -> None:
    log = LogFile(MemoryDisk(), PATH)
    assert not log.exists()
    for look in (log.size, log.sync, lambda: list(log.lines())):
        with pytest.raises(Damaged, match=r"log\.jsonl is missing"):
            look()
    assert issubclass(Damaged, DshError)
