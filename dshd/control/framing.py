"""Bytes into lines, and nothing else; sans-IO.

A line ends at byte 0x0A. ``str.splitlines`` and friends also cut at U+2028, U+0085 and more, which are
legal inside JSON strings. Each byte is looked at once, however the peer cuts its writes, and what is kept
is at most one line's worth.
"""

from __future__ import annotations

from dshd.wire import MAX_LINE


class Framer:
    """Feed it what was read; it gives the lines that became complete, without their newlines.

    ``oversized`` is set when a line is longer than ``limit`` bytes (newline included): then nothing more
    can be read from this peer, because where the next line begins is unknown until all of it has come.
    What stands unfinished at the end of the stream is no line, and so no request.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._rest = bytearray()
        self.oversized = False

    def feed(self, data: bytes) -> list[bytes]:
        if self.oversized:
            return []
        if not self._rest and 0 <= data.find(b"\n") == len(data) - 1 < self._limit:
            return [data[:-1]]  # as nearly always: one line, whole
        head, *more = data.split(b"\n")
        if not more:
            return self._keep(head, [])
        self._rest += head
        lines = [bytes(self._rest), *more[:-1]]
        self._rest.clear()
        fitting = [line for line in lines if len(line) < self._limit]
        if len(fitting) < len(lines):
            self.oversized = True
            return lines[: next(i for i, line in enumerate(lines) if len(line) >= self._limit)]
        return self._keep(more[-1], lines)

    def _keep(self, rest: bytes, lines: list[bytes]) -> list[bytes]:
        self._rest += rest
        if len(self._rest) >= self._limit:
            self.oversized = True
            self._rest.clear()
        return lines
