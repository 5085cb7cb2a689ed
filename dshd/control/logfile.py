"""One session's log, read from its file for those who follow or show it. Blocking; bounded memory.

Nothing here writes, and nothing is believed without its checksum. How far a reader may go is the
caller's to say, as a seq (`Piece` is cut there): of a session that is loaded, what its owner has told;
of one that isn't, what is on disk after a sync (`sync`).

A line's place is found by bisection, because seqs only grow: a few reads, also in a log of gigabytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from dshd.log import fault
from dshd.log.codec import BadLine, crc_of, decode
from dshd.log.disk import PIECE, Disk
from dshd.log.reader import read_lines
from dshd.log.recovery import read_log
from dshd.log.there import told
from dshd.log.vocabulary import GAP, after
from dshd.session.fold.events import KNOWN_TYPES

_HEAD: Final = re.compile(rb'\{"seq":(\d+),"time":(-?\d+),"type":"([^"]*)"')
_TURN_START: Final = re.compile(rb'(?m)^\{"seq":\d+,"time":-?\d+,"type":"turn/start","data":\{"turn":(\d+)')
_TURN_MARK: Final = re.compile(
    rb'(?m)^\{"seq":\d+,"time":-?\d+,"type":"(turn/start|turn/end|step/\w+)","data":\{'
    rb'(?:"turn":\d+,"reason":"(completed)")?'
)
_OPENED: Final = re.compile(rb'(?m)^\{"seq":(\d+),"time":-?\d+,"type":"session/opened"')
_OVERLAP: Final = 256  # bytes; more than these patterns can match
_CHECKED: Final = -len(b',"crc":"xxxxxxxx"}\n')
_LOOKED_AT: Final = 16 * 1024 * 1024  # bytes of a log that are looked at for no other reason than to warn
_NEAR: Final = 64 * 1024  # bytes that are searched line by line


class Line(NamedTuple):
    """A good line. ``raw`` has its newline; ``next_seq`` follows it (behind a gap more than the next)."""

    offset: int
    seq: int
    time: int
    type: str
    next_seq: int
    raw: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.raw)

    @property
    def crc(self) -> str:
        return crc_of(self.raw)


def as_line(offset: int, raw: bytes) -> Line | None:
    """The line that these bytes are; None if they are none."""
    if raw[-1:] != b"\n" or crc_of(raw) != f"{crc32(memoryview(raw)[:_CHECKED]):08x}":
        return None
    head = _HEAD.match(raw)
    kind = head[3].decode("utf-8", "replace") if head else GAP
    if head is None or kind == GAP:
        return _parsed(offset, raw)
    return Line(offset, int(head[1]), int(head[2]), kind, int(head[1]) + 1, raw)


def _parsed(offset: int, raw: bytes) -> Line | None:
    try:
        event = decode(raw)
    except BadLine:
        return None
    return Line(offset, event.seq, event.time, event.type, after(event), raw)


class Piece(NamedTuple):
    """Lines in order. ``offset`` is where the next piece begins; ``more``: there may be one."""

    lines: list[Line]
    offset: int
    more: bool


class LogFile:
    """Reads the log at ``path``. Raises a `DshError` that names the path when it can't be read."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path
        self.damage: str | None = None  # a sentence, once bad lines were met that were durable
        self._end: int | None = None  # where the torn tail begins, if there is one

    def sync(self) -> None:
        """Durability: what is read after this was on disk when this returned. What a failed disk left
        behind its last synced byte is not read at all."""
        calls = self._disk.calls
        with told("sync", self.path, self._disk):
            descriptor = calls.open(str(self.path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                calls.fdatasync(descriptor)
            finally:
                calls.close(descriptor)
            note = fault.read(self._disk, self.path)
        self._end = note.size if note else None

    def exists(self) -> bool:
        with told("read", self.path, self._disk):
            return self._disk.exists(self.path)

    def size(self) -> int:
        with told("read", self.path, self._disk), self._disk.open_read(self.path) as file:
            return file.size

    def lines(self, start: int = 0, size: int = PIECE) -> Iterator[Line]:
        """Good lines from byte ``start``, the beginning of one. Bad ones end it, or, where the log is
        damaged, are skipped and ``damage`` is set. A last line without newline is one being written.
        ``size`` bytes are read at once."""
        with told("read", self.path, self._disk):
            for offset, raw in read_lines(self._disk, self.path, start=start, size=size):
                line = as_line(offset, raw)
                if line is None and not (raw.endswith(b"\n") and self._is_damage(offset)):
                    return
                if self._end is not None and offset >= self._end:
                    return
                if line is not None:
                    yield line

    def _is_damage(self, offset: int) -> bool:
        if self.damage is None and self._end is None:
            verdict = read_log(self._disk, self.path, KNOWN_TYPES, each=lambda event: None)
            self.damage = verdict.damage.sentence(self.path.name) if verdict.damage else None
            self._end = verdict.torn.start if verdict.torn else None
        return self.damage is not None and (self._end is None or offset < self._end)

    def check(self) -> None:
        """Look at all lines, so that ``damage`` is set also where none of what was read is bad. A long log
        is spared this: it is checked as often as it is opened."""
        if self.damage is not None or self.size() > _LOOKED_AT:
            return
        expected = 0
        for line in self.lines():
            if line.seq != expected:
                break
            expected = line.next_seq
        else:
            if expected:
                return
        self._is_damage(0)

    def piece(self, start: int, until: int | None, size: int = PIECE) -> Piece:
        """Lines from byte ``start``, up to seq ``until`` and to about ``size`` bytes (one line at least)."""
        found: list[Line] = []
        for line in self.lines(start, size):
            if until is not None and line.seq > until:
                break
            found.append(line)
            if line.next_seq - 1 == until:
                break
            if line.end - start >= size:
                return Piece(found, line.end, True)
        return Piece(found, found[-1].end if found else start, False)

    # -- finding places

    def locate(self, seq: int) -> int:
        """The offset of the first line whose seq is at least ``seq``; of the end, if there is none."""
        return self._first(lambda line: line.seq >= seq)

    def locate_time(self, since: int) -> int:
        """The same for Unix ms. Where clocks went back it finds one of the places that fit."""
        return self._first(lambda line: line.time >= since)

    def line_at(self, seq: int) -> Line | None:
        """The line with this seq."""
        line = next(self.lines(self.locate(seq)), None)
        return line if line is not None and line.seq == seq else None

    def _first(self, reached: Callable[[Line], bool]) -> int:
        end = low = self._before(reached)
        for line in self.lines(low):
            if reached(line):
                return line.offset
            end = line.end
        return end

    def _before(self, reached: Callable[[Line], bool]) -> int:
        """The offset of a line that hasn't reached it (or of the first), not far before one that has."""
        low, high = 0, self.size()
        while high - low > _NEAR:
            middle = (low + high) // 2
            line = self._line_after(middle)
            if line is None or reached(line):
                high = middle
            else:
                low = line.offset
        return low

    def _line_after(self, offset: int) -> Line | None:
        """The first good line that begins behind ``offset``."""
        with told("read", self.path, self._disk):
            for place, raw in read_lines(self._disk, self.path, start=offset):
                line = as_line(place, raw) if place > offset else None
                if line is not None:
                    return line
        return None

    def last_turns(self, count: int) -> int:
        """The offset of the ``turn/start`` that begins the last ``count`` turns; 0 if there are fewer.
        One that was put off, and ended without a step, does not count."""
        end, idle = self.size(), False
        if count == 0:
            return end
        for start in range(max(0, end - PIECE), -PIECE, -PIECE):
            with told("read", self.path, self._disk):
                data = self._disk.read_bytes(self.path, max(0, start), min(end, start + PIECE + _OVERLAP))
            for match in reversed(list(_TURN_MARK.finditer(data))):
                if match.start() >= start + PIECE - max(0, start):
                    continue  # it was found in the piece before
                counts = match[1] == b"turn/start" and not idle
                idle = match[1] == b"turn/end" and match[2] is not None
                count -= counts
                if count == 0:
                    return max(0, start) + match.start()
        return 0

    def locate_turn(self, number: int) -> int:
        """The offset of ``turn/start`` of turn ``number``, or of the first later one; else of the end."""
        places = (offset for offset, match in self._grep(_TURN_START) if int(match[1]) >= number)
        return next(places, self.size())

    def last_opening(self, seq: int) -> int | None:
        """The seq of the newest ``session/opened`` up to ``seq``."""
        seqs = [int(match[1]) for _offset, match in self._grep(_OPENED) if int(match[1]) <= seq]
        return max(seqs, default=None)

    def _grep(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, re.Match[bytes]]]:
        """Where it matches, piece by piece."""
        size = self.size()
        for start in range(0, size, PIECE):
            with told("read", self.path, self._disk):
                data = self._disk.read_bytes(self.path, start, min(size, start + PIECE + _OVERLAP))
            for match in pattern.finditer(data):
                if match.start() < PIECE:
                    yield start + match.start(), match

    def last_seq(self) -> int:
        """The seq of the last good line; -1 if there is none."""
        last = -1
        for line in self.lines(self._before(lambda line: False)):
            last = line.next_seq - 1
        return last
