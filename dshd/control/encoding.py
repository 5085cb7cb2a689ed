"""Lines of logs as followers get them, and who holds the bytes.

A client that doesn't read may hold what was written to it for `outbox.STALL_S`, and there may be
hundreds. What each of them may hold for itself is bounded by `feed.UNSENT`; but a line is never cut, and it
may be longer than that. So a long line is encoded once, and all who hold it hold the same bytes, however
late each of them came to it. It is forgotten with the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

from dshd.control import jsonrpc
from dshd.log.codec import crc_of

LONG: Final = 64 * 1024  # bytes; a longer line is shared, shorter ones are put together up to this

Data = bytes | bytearray  # nobody changes it


class Shared(bytearray):
    """A long line, encoded. (Of plain bytes there are no weak references.)"""


class Encoder:
    """For all logs and all followers of a daemon."""

    def __init__(self) -> None:
        self._long: WeakValueDictionary[tuple[str, int, str], Shared] = WeakValueDictionary()

    def line(self, session: str, seq: int, raw: bytes) -> Data:
        """The notification around a line of the log."""
        if len(raw) <= LONG:
            return jsonrpc.event_line(session, raw)
        key = (session, seq, crc_of(raw))  # a seq is used again, after a withdrawal
        found = self._long.get(key)
        if found is None:
            found = self._long[key] = Shared(jsonrpc.event_line(session, raw))
        return found

    def __len__(self) -> int:
        """How many long lines somebody holds."""
        return len(self._long)


def pieces(lines: Iterable[Data]) -> list[Data]:
    """The same bytes to be written one after the other: long lines as they are, others put together."""
    found: list[Data] = []
    together: list[Data] = []
    size = 0
    for line in lines:
        shared = isinstance(line, Shared)
        if together and (shared or size + len(line) > LONG):
            found.append(b"".join(together))
            together, size = [], 0
        if shared:
            found.append(line)
        else:
            together.append(line)
            size += len(line)
    return [*found, b"".join(together)] if together else found


def own(data: Iterable[Data]) -> int:
    """How many of these bytes are held by one follower alone."""
    return sum(len(piece) for piece in data if not isinstance(piece, Shared))
