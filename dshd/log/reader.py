"""Reading logs, from the file, in bounded memory.

A reader holds one piece of 1 MiB and one line. Lines end at 0x0A and nowhere else; what has no end
for `MAX_LINE` bytes is no line and comes in pieces, so that a gigabyte of zeros is read like
anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dshd.log.codec import MAX_LINE, BadLine, Event, decode
from dshd.log.disk import PIECE, Disk, ReadFile


def read_lines(
    disk: Disk, path: Path, *, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """``(offset, line)`` for each line from byte ``start`` (the beginning of a line) on.

    The newline is part of the line; only the last may lack it, and pieces of what is over
    `MAX_LINE`. Reads to ``end``, or to what is the end when it gets there.
    """
    with disk.open_read(path) as file:
        yield from _lines(file, start, end)


def _lines(file: ReadFile, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    offset = start  # of rest
    rest = b""
    while piece := file.read(offset + len(rest), _count(offset + len(rest), end)):
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


def _count(offset: int, end: int | None) -> int:
    return PIECE if end is None else max(0, min(PIECE, end - offset))


def read_header(disk: Disk, path: Path) -> Event | None:
    """The first line's event, read without the rest; None if it can't be read as one."""
    for _offset, line in read_lines(disk, path):
        try:
            event = decode(line)
        except BadLine:
            return None
        return event if event.seq == 0 else None
    return None
