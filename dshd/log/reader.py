"""Reading logs, from the file, in bounded memory.

A reader holds one piece of 1 MiB and one line. Lines end at 0x0A and nowhere else; what has no end
for `MAX_LINE` bytes is no line and comes in pieces, so that a gigabyte of zeros is read like
anything else.

`read_lines` believes nothing, `survey` judges the whole file (`dshd.log.survey`), `scan` gives the
good events of a log in whatever state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dshd.log.codec import MAX_LINE, BadLine, Event, decode
from dshd.log.disk import PIECE, Disk, ReadFile
from dshd.log.survey import Region, Start, Survey

_PROBE = 64 * 1024


def read_lines(
    disk: Disk, path: Path, *, start: int = 0, end: int | None = None, size: int = PIECE
) -> Iterator[tuple[int, bytes]]:
    """``(offset, line)`` for each line from byte ``start`` (the beginning of a line) on.

    The newline is part of the line; only the last may lack it, and pieces of what is over
    `MAX_LINE`. Reads to ``end``, or to what is the end when it gets there.
    """
    with disk.open_read(path) as file:
        yield from _lines(file, start, end, size)


def _lines(
    file: ReadFile, start: int, end: int | None = None, size: int = PIECE
) -> Iterator[tuple[int, bytes]]:
    offset = start  # of rest
    rest = b""
    while piece := file.read(at := offset + len(rest), _count(at, end, max(size, min(len(rest), PIECE)))):
        data = rest + piece if rest else piece
        searched, begin = len(rest), 0
        while (newline := data.find(b"\n", max(begin, searched))) >= 0:
            yield offset + begin, data[begin : newline + 1]
            begin = newline + 1
        offset, rest = offset + begin, data[begin:]
        if len(rest) > MAX_LINE:
            yield offset, rest
            offset, rest = offset + len(rest), b""
    if rest:
        yield offset, rest


def _count(offset: int, end: int | None, size: int) -> int:
    return size if end is None else max(0, min(size, end - offset))


def read_header(disk: Disk, path: Path) -> Event | None:
    """The first line's event, read without the rest; None if it can't be read as one."""
    for _offset, line in read_lines(disk, path):
        try:
            event = decode(line)
        except BadLine:
            return None
        return event if event.seq == 0 else None
    return None


def find(disk: Disk, path: Path, seq: int) -> tuple[int, bytes] | None:
    """The line of an event and the offset where it begins, or None if there is no such line.

    By bisection: a hundred megabytes cost a dozen reads of 64 KiB.
    """
    with disk.open_read(path) as file:
        for offset, event, line in _good(file, _near(file, seq)):
            if event.seq >= seq:
                return (offset, line) if event.seq == seq else None
    return None


def _near(file: ReadFile, seq: int) -> int:
    """The beginning of a line that is not behind the one of ``seq``, and not far before it."""
    low, high = 0, file.size
    while high - low > _PROBE:
        middle = (low + high) // 2
        offset, event, _line = next(_good(file, middle), (high, None, b""))
        if event is None or offset >= high or event.seq > seq:
            high = middle
        else:
            low = offset
    return low


def _good(file: ReadFile, start: int) -> Iterator[tuple[int, Event, bytes]]:
    """The lines from ``start`` on, which may be inside one, that are whole."""
    for offset, line in _lines(file, start, size=_PROBE):
        try:
            yield offset, decode(line), line
        except BadLine:
            continue


def survey(
    disk: Disk, path: Path, *, durable: int = -1, each: Callable[[Event], object] | None = None,
    start: Start | None = None,
) -> Survey:  # fmt: skip
    """Judge the whole file, or what comes after ``start``; ``each`` gets the events before the first
    bad region."""
    found = Survey(durable, start)
    for offset, line in read_lines(disk, path, start=found.end):
        good = found.feed(offset, line)
        if good and each and not found.regions:
            each(good[1])
    found.finish()
    return found


def scan(
    disk: Disk, path: Path, *, end: int | None = None, durable: int = -1
) -> Iterator[tuple[int, Event, bytes] | Region]:
    """Every good line, as ``(offset, event, line)``, and what is between, in order.

    Each bad `Region` comes once, whole, before the good line that ends it, or last. Reads to byte
    ``end``, or to the end of the file.
    """
    found = Survey(durable)
    told = 0
    for offset, line in read_lines(disk, path, end=end):
        good = found.feed(offset, line)
        if good:
            yield from found.regions[told:]
            told = len(found.regions)
            yield good[0], good[1], line[good[0] - offset :]
    found.finish()
    yield from found.regions[told:]
