"""One daemon owns a state directory: an flock on ``STATE/lock``.

The lock is the kernel's, so it goes with the process, however that ends. The file's content
(``PID STARTED``, Unix seconds) is for people only: an empty, torn or stale one stops nobody.
The file itself stays, for removing it would let two daemons lock two files of one name.

Light: dshctl imports it.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import NamedTuple

from dshd.errors import AlreadyRunning

# Others hold the lock for an instant when they ask `holder`; an owner that starts waits that long.
_PATIENCE = 0.25  # s
_DAY = 86400


class Holder(NamedTuple):
    """Who says they hold the lock; None where the content doesn't tell. ``since`` in Unix seconds."""

    pid: int | None
    since: float | None


class StateLock:
    """The lock, held from construction to `close`, or to the process's end.

    Raises `AlreadyRunning` if another process holds it, having changed nothing. The directory must
    exist.
    """

    def __init__(self, state: Path) -> None:
        self.path = state / "lock"
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _take(self._fd, state)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()} {int(time.time())}\n".encode(), 0)
        except BaseException:
            os.close(self._fd)
            raise

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        """Give the lock up; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _take(fd: int, state: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not _try(fd, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise AlreadyRunning(_in_use(state, _read(fd)))
        time.sleep(0.01)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder(state: Path) -> Holder | None:
    """Who holds the lock of this state directory; None if nobody. Creates and changes nothing."""
    try:
        fd = os.open(state / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        return None if _try(fd, fcntl.LOCK_SH) else _read(fd)
    finally:
        os.close(fd)


def _read(fd: int) -> Holder:
    fields = os.pread(fd, 64, 0).split()
    try:
        return Holder(int(fields[0]), float(fields[1]))
    except (ValueError, IndexError):
        return Holder(None, None)


def _in_use(state: Path, by: Holder) -> str:
    who = f"dshd {by.pid}" if by.pid else "another dshd"
    since = f" since {_when(by.since)}" if by.since else ""
    return f"state directory {_short(state)} is in use by {who}{since}."


def _when(since: float) -> str:
    """``18:04`` today, else ``Nov 28``."""
    near = abs(time.time() - since) < _DAY and time.localtime(since).tm_mday == time.localtime().tm_mday
    return time.strftime("%H:%M" if near else "%b %d", time.localtime(since)).replace(" 0", " ")


def _short(path: Path) -> str:
    home = os.environ.get("HOME", "")
    text = str(path)
    return f"~{text[len(home) :]}" if len(home) > 1 and text.startswith(f"{home}/") else text
