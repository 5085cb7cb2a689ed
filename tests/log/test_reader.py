from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.log import reader
from dshd.log.disk import PIECE, RealDisk
from dshd.log.reader import find, read_header, read_lines, scan
from tests.log.kit import LOG, batch, disk_with, header, lines, note

DATA = lines(header(), batch(1, 40), batch(41, 60, "a longer text " * 30), batch(61, 99))


def split(data: bytes, **more: int) -> list[tuple[int, bytes]]:
    return list(read_lines(disk_with(data), LOG, **more))


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
def test_lines_end_at_the_newline_byte_and_nowhere_else(parts: list[bytes], size: int) -> None:
    data = b"\n".join(parts)
    disk = disk_with(data)
    with disk.open_read(LOG) as file:
        found = list(reader._lines(file, 0, size=size))
    assert b"".join(line for _offset, line in found) == data
    assert [line.rstrip(b"\n") for _offset, line in found] == [p for p in data.split(b"\n")][: len(found)]
    assert all(data[offset : offset + len(line)] == line for offset, line in found)
    assert all(line.find(b"\n") in (-1, len(line) - 1) for _offset, line in found)
    assert all(line.endswith(b"\n") for _offset, line in found[:-1])


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085", "\r", "\x0b", "\x0c", "\x1c"])
def test_other_line_ends_are_part_of_the_line(end: str) -> None:
    assert split(f"a{end}b\nc{end}d\n".encode()) == [
        (0, f"a{end}b\n".encode()),
        (len(f"a{end}b\n".encode()), f"c{end}d\n".encode()),
    ]


def test_reading_may_begin_at_a_line_and_stop_before_the_end() -> None:
    assert split(b"one\ntwo\nthree", start=4) == [(4, b"two\n"), (8, b"three")]
    assert split(b"one\ntwo\nthree", start=4, end=8) == [(4, b"two\n")]
    assert split(b"one\ntwo\nthree", end=6) == [(0, b"one\n"), (4, b"tw")]
    assert split(b"one\n", start=4) == []
    assert split(b"one\n", start=400) == []


def test_what_never_ends_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_LINE", 2 * PIECE)
    data = b"x" * (7 * PIECE) + b"\nnext\n"
    pieces = split(data)
    assert [len(piece) for _offset, piece in pieces] == [
        3 * PIECE,
        3 * PIECE,
        PIECE + 1,
        5,
    ]
    assert b"".join(piece for _offset, piece in pieces) == data


def test_a_log_of_any_length_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with path.open("wb") as out:
        for _ in range(60):
            out.write((b"x" * 1000 + b"\n") * 1000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_lines(RealDisk(), path)) == 60_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * PIECE


def test_a_header_is_read_without_the_rest() -> None:
    disk = disk_with(DATA)
    assert read_header(disk, LOG) == header()
    for data in (b"", b"garbage\n" + DATA, lines(note(1)), DATA[:20]):
        disk.poke(LOG, data)
        assert read_header(disk, LOG) is None


def test_a_header_is_read_in_one_read_of_a_long_log() -> None:
    disk = disk_with(DATA + bytes(5 * PIECE))
    before = disk.counts["pread"]
    read_header(disk, LOG)
    assert disk.counts["pread"] == before + 1


@pytest.mark.parametrize("probe", [20, 300, 64 * 1024])
def test_every_event_is_found_by_its_seq(probe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PROBE", probe)
    disk = disk_with(DATA)
    for seq in range(100):
        found = find(disk, LOG, seq)
        assert found is not None
        offset, line = found
        assert DATA[offset : offset + len(line)] == line
        assert line.startswith(b'{"seq":%d,' % seq)
    assert find(disk, LOG, 100) is None


@pytest.mark.parametrize("probe", [20, 1000])
def test_events_around_bad_bytes_are_found_and_those_in_them_are_not(
    probe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PROBE", probe)
    start, end = DATA.index(b'{"seq":30,'), DATA.index(b'{"seq":50,')
    disk = disk_with(DATA[:start] + bytes(end - start - 1) + b"\n" + DATA[end:])
    for seq in range(100):
        assert (find(disk, LOG, seq) is None) == (30 <= seq < 50)
    assert find(disk_with(b""), LOG, 0) is None
    assert find(disk_with(bytes(5000)), LOG, 0) is None


def test_a_scan_tells_offsets_that_hold_the_lines() -> None:
    glued = DATA.replace(b"\n", b"", 1)
    for item in scan(disk_with(glued), LOG):
        if isinstance(item, tuple):
            offset, _event, line = item
            assert glued[offset : offset + len(line)] == line
