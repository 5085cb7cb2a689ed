"""What a command prints: the head and the tail in memory, all of it in a file when that is not all (and
while the disk has room: the logs are on it).

Memory is bounded by ``head + 2 * tail`` whatever is printed. The file is made only when head and tail
together don't hold everything, so that a small output costs none. Bytes stay bytes here: no line, no
encoding is assumed.
"""

from __future__ import annotations

import os

MIB = 1 << 20
SPARE = 256 * MIB  # bytes that spill files leave free on their disk, for the logs beside them
SPILL_LIMIT = 2048 * MIB  # bytes; `yes` in a loop must not cost more
CHECK_EVERY = 4 * MIB  # bytes between two looks at the disk


class NoRoom(Exception):
    """``str()`` says what is there."""


class Spill:
    """The file behind a bounded output. It never fails the call: on the first error, or for want of room, it
    stops, and ``error`` says why. Made with O_EXCL and 0600, its directory too if need be."""

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
            except NoRoom as error:
                self._stop(str(error))
            except OSError as error:
                self._stop(os.strerror(error.errno or 0))

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._open()
        view = memoryview(data)
        while view and self.error is None:
            count = os.write(self._fd, view[: CHECK_EVERY - self._unchecked])
            self.written += count
            self._unchecked += count
            view = view[count:]
            self._check()

    def _open(self) -> None:
        """Nothing is made on a disk that is nearly full: many small files fill it, too."""
        folder = os.path.dirname(self.path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if why := too_full(os.statvfs(folder)):
            raise NoRoom(why)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self.path, flags, 0o600)

    def _check(self) -> None:
        if self._unchecked < CHECK_EVERY:
            return
        self._unchecked = 0
        if why := too_full(os.fstatvfs(self._fd)):
            self._stop(why)
        elif self.written >= SPILL_LIMIT:
            self._stop(f"a file takes {SPILL_LIMIT // MIB} MiB at most")

    def _stop(self, why: str) -> None:
        self.error = why
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def too_full(disk: os.statvfs_result) -> str:
    """What is left on a disk, as words, if it is too little."""
    free = disk.f_bavail * disk.f_frsize
    return f"the disk has {free // MIB} MiB left" if free < SPARE else ""


class Output:
    """The first ``head`` and the last ``tail`` bytes of a stream, ``total`` of all."""

    def __init__(self, head: int, tail: int, spill: str | None = None) -> None:
        self._limits = (head, tail)
        self._head = bytearray()
        self._tail = bytearray()
        self._spill = Spill(spill) if spill else None
        self._spilling = False
        self._follows = False
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

    def follow(self) -> None:
        """From now on the file has everything as soon as it is there, for those who read along."""
        self._follows = True
        if self._spill is not None and self.total:
            self._feed_spill(self._spill, b"")

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
        if not self._spilling and (self._follows or self.total + len(data) > sum(self._limits)):
            # Until now head and tail were everything, so the file starts with them.
            self._spilling = True
            spill.write(bytes(self._head + self._tail))
        if self._spilling:
            spill.write(data)

    def close(self) -> None:
        if self._spill is not None:
            self._spill.close()
