"""Which lines of a log are good, and what the bad bytes between them mean (decisions, no IO).

A line is *good* if its bytes are whole and its ``seq`` is the next one. The next one is the last
plus 1; after ``log/gap {first, last}`` it is ``last`` + 1. Everything else opens a *bad region*,
which ends where a good line with that or a later ``seq`` begins. Seqs that are skipped that way are
missing, also if not a byte is.

Then there are two stories, and only ``synced`` tells them apart:

- The region was written and never synced when the power went. A crash leaves a prefix of such
  bytes, or zeros in the *middle* of them with good lines after. None of it was ever acknowledged:
  it is the **torn tail**, from the region's start to the end of the file.
- It was on disk and is no more: the log is **damaged**. A later good line proves it by its
  ``synced``; so does the region's place: a header is synced before its session has a name, and
  bytes too many between two lines that follow each other are no crash's doing.

Behind a torn region everything is torn, whatever it looks like.

Two lines glued together (a lost newline, a second writer) are one line by the newline and bad; the
good one at its end is still found, for it may be the one that proves.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile

import attrs

from dshd.log.codec import BadLine, Event, decode
from dshd.log.vocabulary import GAP, after

_START = b'{"seq":'
# How many beginnings are tried in one bad line. They stand in nested objects, too; in text they
# are escaped. It bounds the work on hostile bytes, nothing else.
_TRIES = 256


@attrs.frozen(slots=True)
class Start:
    """Where reading begins: behind ``lines`` lines, ``offset`` bytes, all up to ``seq``."""

    seq: int = -1
    offset: int = 0
    lines: int = 0


@attrs.define(slots=True)
class Region:
    """Bad bytes ``[start, end)``; the seqs ``first`` to ``last`` are not readable because of them.

    ``line`` counts lines from 1. ``last`` is None while no good line was found behind it;
    ``first`` - 1 if no seq is missing (bytes too many). ``floor``: the lowest seq in it.
    """

    line: int
    start: int
    end: int
    first: int
    last: int | None
    reason: str
    floor: int

    def proven(self, synced: int) -> bool:
        """Whether it was durable, given the highest ``synced`` of all good lines."""
        extra = self.last is not None and self.last < self.first
        return self.first == 0 or extra or synced >= self.floor


@attrs.frozen(slots=True)
class Damage:
    """A bad region as it is told: bytes ``start`` to ``end``, ``end`` exclusive; ``line`` from 1.

    ``first_seq`` to ``last_seq`` are missing: none, if the last is less than the first; all from
    the first on, if it is None.
    """

    line: int
    first_seq: int
    last_seq: int | None
    start: int
    end: int
    reason: str

    def sentence(self, name: str = "log.jsonl") -> str:
        """``damaged at line 3000 (bytes 412033-412690 of log.jsonl)``; bytes inclusive, as people count."""
        if self.start == self.end and self.last_seq is not None and self.last_seq >= self.first_seq:
            missing = f"the events {self.first_seq} to {self.last_seq} are missing"
            return f"damaged at line {self.line}: {missing} (at byte {self.start} of {name})"
        return f"damaged at line {self.line} (bytes {self.start}-{max(self.start, self.end - 1)} of {name})"

    @classmethod
    def of(cls, region: Region) -> Damage:
        return cls(region.line, region.first, region.last, region.start, region.end, region.reason)


class Survey:
    """Feed it the lines in order; it remembers the regions and says which lines are good."""

    def __init__(self, durable: int = -1, start: Start | None = None) -> None:
        """``durable``: all up to this seq is known to have been on disk (from a fault's note).
        ``start``: what comes before it is known to be good, and durable; it is not fed."""
        begin = start or Start()
        self.durable = max(durable, begin.seq)
        self.expected = begin.seq + 1
        self.line = begin.lines + 1  # the number of the line that is being fed
        self.end = begin.offset  # of all that was fed
        self.good_end = begin.offset  # of the last good line
        self.synced = self.durable  # the highest that a good line, or the note, tells of
        self.regions: list[Region] = []
        self.proven_end = begin.offset  # of what a good line tells of; what follows may only be cached
        self._begun: deque[tuple[int, int]] = deque()  # (first seq, offset) of the writes after that
        self._next_line = begin.lines + 1

    def feed(self, offset: int, raw: bytes) -> tuple[int, Event] | None:
        """The good event that this line is or ends in, and the offset where it begins; else None."""
        self.line = self._next_line
        self._next_line += raw.endswith(b"\n")
        self.end = offset + len(raw)
        try:
            event = decode(raw)
        except BadLine as bad:
            return self._bad(offset, raw, bad.reason)
        if event.seq != self.expected or self.regions or event.type == GAP:
            return self._place(offset, event)
        self.expected, self.good_end = event.seq + 1, self.end  # as nearly always
        if event.synced is not None:
            self._tells(event.seq, offset, event.synced)
        return offset, event

    def _bad(self, offset: int, raw: bytes, reason: str) -> tuple[int, Event] | None:
        found = embedded(raw)
        start = offset + found[0] if found else self.end
        self._widen(offset, start, reason)
        return self._place(start, found[1]) if found else None

    def _place(self, start: int, event: Event) -> tuple[int, Event] | None:
        if event.seq < self.expected:
            self._widen(start, self.end, f"its seq is {event.seq}, not {self.expected}", event.seq)
            return None
        if event.seq > self.expected:
            self._widen(start, start, f"its seq is {event.seq}, not {self.expected}")
        self._accept(start, event)
        return start, event

    def _accept(self, start: int, event: Event) -> None:
        if self.regions and self.regions[-1].last is None:
            self.regions[-1].last = event.seq - 1
        if event.synced is not None:
            self._tells(event.seq, start, event.synced)
        self.expected = after(event)
        self.good_end = self.end

    def _tells(self, seq: int, offset: int, synced: int) -> None:
        """The first line of a write: all up to ``synced`` was on disk then."""
        self.synced = max(self.synced, synced)
        self._begun.append((seq, offset))
        while self._begun and self._begun[0][0] <= self.synced + 1:
            self.proven_end = self._begun.popleft()[1]

    def _widen(self, start: int, end: int, reason: str, seq: int | None = None) -> None:
        if not self.regions or self.regions[-1].last is not None:
            self.regions.append(Region(self.line, start, end, self.expected, None, reason, self.expected))
        region = self.regions[-1]
        region.end = max(region.end, end)
        region.floor = min(region.floor, self.expected if seq is None else seq)

    # -- the verdict

    def finish(self) -> None:
        """All lines were fed. A log without any has lost its header; one that is too short, its end."""
        self.line = self._next_line
        if self.end == 0:
            self._widen(0, 0, "the file is empty")
        if self.expected <= self.durable:
            self._widen(self.end, self.end, f"the events up to seq {self.durable} are missing")
            self.regions[-1].last = self.durable
            self.expected = self.durable + 1

    @property
    def damage(self) -> list[Region]:
        """The regions that were durable once: those before the torn tail."""
        return list(takewhile(lambda region: region.proven(self.synced), self.regions))

    @property
    def torn(self) -> Region | None:
        """The region with which the torn tail begins, if there is one."""
        return next((region for region in self.regions if not region.proven(self.synced)), None)


def embedded(raw: bytes) -> tuple[int, Event] | None:
    """The good line that these bad bytes end in, with its offset in them, if there is one."""
    at = len(raw)
    for _ in range(_TRIES):
        at = raw.rfind(_START, 1, at + len(_START) - 1)
        if at < 0:
            return None
        try:
            return at, decode(raw[at:])
        except BadLine:
            continue
    return None
