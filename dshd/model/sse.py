"""Server-sent events from bytes, in whatever pieces they come. No IO.

Lines end at LF, CR or CRLF and at nothing else: U+2028, U+0085 and the like are legal inside JSON, and
cutting there (as `str.splitlines` does) breaks it. Bytes are split first and decoded line by line, so a
character may be cut between two pieces; a CR that ends a piece ends its line at once, and an LF that opens
the next piece then belongs to it. A blank line ends an event. Lines that begin with ``:`` are comments.
"""

from __future__ import annotations

import re

import attrs

LINE_END = re.compile(rb"\r\n|\n|\r")
MAX_EVENT = 16 * 1024 * 1024  # bytes in one event; a server that never ends one may not fill the memory


class TooLong(ValueError):
    """An event of more than `MAX_EVENT` bytes."""


@attrs.frozen
class Event:
    """``name`` is "" if the server gave none. ``data``: its data lines, joined by LF."""

    name: str
    data: str


class Decoder:
    """Push bytes in, get events out, in order. The splitting of the input makes no difference."""

    def __init__(self) -> None:
        self._tail = bytearray()  # of the line that has not ended
        self._after_cr = False
        self._first = True
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """Events that ``data`` completes. Raises `TooLong`."""
        if not data:
            return []
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
            if not data:
                return []
        self._after_cr = data[-1:] == b"\r"
        lines = LINE_END.split(data)
        self._tail += lines[0]
        self._limit(len(self._tail))
        if len(lines) == 1:
            return []
        lines[0], self._tail = bytes(self._tail), bytearray(lines[-1])
        return [event for line in lines[:-1] if (event := self._line(line)) is not None]

    def close(self) -> list[Event]:
        """The event that was not ended when the stream was, if there is one."""
        line, self._tail = bytes(self._tail), bytearray()
        ended = [self._line(line) if line else None, self._line(b"")]
        return [event for event in ended if event is not None]

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        if line[:1] != b":":
            self._field(line)
        return None

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
            self._size += len(value)
            self._limit(self._size)
        elif name == b"event":
            self._name = text

    def _dispatch(self) -> Event | None:
        event = Event(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._size = "", [], 0
        return event

    def _limit(self, size: int) -> None:
        if size > MAX_EVENT:
            raise TooLong(f"an event of more than {MAX_EVENT >> 20} MiB")
