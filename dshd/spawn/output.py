"""What a command prints: the head and the tail in memory, all of it in a file when that is not all.

Memory is bounded by ``head + 2 * tail`` whatever is printed. The file is made only when head and tail
together don't hold everything, so that a small output costs none. Bytes stay bytes here: no line, no
encoding is assumed.
"""

from __future__ import annotations

import os

SPARE = 256 * 1024 * 1024  # bytes that a spill file leaves free on its disk, for the logs beside it
SPILL_LIMIT = 8 * 1024 * 1024 * 1024  # bytes; `yes` in a loop must not cost more
_CHECK_EVERY = 16 * 1024 * 1024


class Spill:
    """The file behind a bounded output. It never fails the call: on the first error it stops, and
    ``error`` says why. Made with O_EXCL and 0600, its directory too if need be."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.written = 0
        self.error: str | None = None
        self._fd = -1
        self._unchecked = 0

    def write(self, data: bytes) -> None:
        if self.error is None:
            try:
                self._write(data)
            except OSError as error:
                self._stop(os.strerror(error.errno or 0))

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)
        view = memoryview(data)
        while view:
            count = os.write(self._fd, view)
            self.written += count
            view = view[count:]
        self._check(len(data))

    def _check(self, fresh: int) -> None:
        self._unchecked += fresh
        if self._unchecked < _CHECK_EVERY:
            return
        self._unchecked = 0
        disk = os.fstatvfs(self._fd)
        if disk.f_bavail * disk.f_frsize < SPARE:
            self._stop("the disk is nearly full")
        elif self.written >= SPILL_LIMIT:
            self._stop(f"the file is kept under {SPILL_LIMIT >> 30} GiB")

    def _stop(self, why: str) -> None:
        self.error = why
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Output:
    """The first ``head`` and the last ``tail`` bytes of a stream, ``total`` of all."""

    def __init__(self, head: int, tail: int, spill: str | None = None) -> None:
        self._limits = (head, tail)
        self._head = bytearray()
        self._tail = bytearray()
        self._spill = Spill(spill) if spill else None
        self._spilling = False
        self.total = 0

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        return bytes(self._tail[-self._limits[1] :]) if self._limits[1] else b""

    @property
    def spill(self) -> Spill | None:
        """The file, once there is one."""
        return self._spill if self._spilling else None

    def feed(self, data: bytes) -> None:
        head, tail = self._limits
        if self._spill is not None:
            self._feed_spill(self._spill, data)
        self.total += len(data)
        room = head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-tail:] if tail else b""
        if len(self._tail) > 2 * tail:
            del self._tail[:-tail]

    def _feed_spill(self, spill: Spill, data: bytes) -> None:
        if not self._spilling and self.total + len(data) > sum(self._limits):
            # Until now head and tail were everything, so the file starts with them.
            self._spilling = True
            spill.write(bytes(self._head + self._tail))
        if self._spilling:
            spill.write(data)

    def close(self) -> None:
        if self._spill is not None:
            self._spill.close()
