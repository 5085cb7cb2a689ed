"""One daemon owns a state directory: a `flock` on the directory itself, and on ``STATE/lock`` in it.

The lock is the kernel's, so it goes with the process, however that ends. Two of them, for a name in a
directory can be taken away, and then two daemons would lock two files of one name:

| what is locked | why                                                                         |
|----------------|-----------------------------------------------------------------------------|
| the directory  | it can't be replaced without taking the state with it                       |
| ``lock``       | some file systems (NFS) can't lock directories; and it says who we are      |

The file's content (``PID STARTED``, Unix seconds) is for people only: an empty, torn or stale one stops
nobody.

The file stays when the daemon goes. One that is removed meanwhile is made again (`StateLock.look`). To look
who holds the lock is to try for a shared one, for an instant; an owner that starts waits for it to pass.

Light: dshctl imports it for ``ping``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from dshd.errors import AlreadyRunning

# Others hold the lock for an instant when they ask `holder`; an owner that starts waits that long.
_PATIENCE = 0.25  # s
_DAY = 86400
_UNLOCKABLE: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_CLOEXEC | os.O_NOFOLLOW

Found = Literal["held", "mended", "gone"]


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
        self.state = state
        self.path = state / "lock"
        with contextlib.ExitStack() as undo:
            self._directory = _opened(state, _DIRECTORY, undo)
            _take(self._directory, state)
            self._fd = _opened(self.path, os.O_RDWR | os.O_CREAT | _FILE, undo)
            _take(self._fd, state)
            _sign(self._fd)
            undo.pop_all()

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._fd

    def look(self) -> Found:
        """Whether what is at the paths is still what we hold: ``held``; ``mended``: the file was removed or
        replaced, and is made again; ``gone``: another directory stands there, or none. Then what is written
        by path goes into somebody else's state."""
        if not _is_at(self._directory, self.state, follow=True):
            return "gone"
        if _is_at(self._fd, self.path, follow=False):
            return "held"
        self._make_again()
        return "mended"

    def still_ours(self) -> bool:
        """Whether the state directory is the one that is locked: who has lost it has no say there."""
        try:
            return _is_at(self._directory, self.state, follow=True)
        except OSError:
            return False

    def _make_again(self) -> None:
        """Whoever put another file there can't be a daemon: we hold the directory."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, 0o600)
        _try(fd, fcntl.LOCK_EX)
        _sign(fd)
        os.dup2(fd, self._fd, inheritable=False)
        os.close(fd)

    def close(self) -> None:
        """Give the lock up; may be called twice."""
        for fd in (self._fd, self._directory):
            if fd >= 0:
                os.close(fd)
        self._fd = self._directory = -1


def _opened(path: Path, flags: int, undo: contextlib.ExitStack) -> int:
    fd = os.open(path, flags, 0o600)
    undo.callback(os.close, fd)
    return fd


def _sign(fd: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()} {int(time.time())}\n".encode(), 0)


def _is_at(fd: int, path: Path, *, follow: bool) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=follow))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _take(fd: int, state: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not _try(fd, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise AlreadyRunning(_in_use(state, _said(state)))
        time.sleep(0.01)


def _try(fd: int, kind: int) -> bool:
    """False if somebody else holds it. What can't be locked counts as free: there are two."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNLOCKABLE:
            raise
    return True


def holder(state: str | Path) -> Holder | None:
    """Who holds the lock of this state directory; None if nobody, or if we may not look. Creates and
    changes nothing."""
    with _looking(state, _DIRECTORY) as directory, _looking(os.path.join(state, "lock"), _FILE) as file:
        free = all(_try(fd, fcntl.LOCK_SH) for fd in (directory, file) if fd is not None)
        return None if free else _read(file)


@contextlib.contextmanager
def _looking(path: str | Path, flags: int) -> Iterator[int | None]:
    try:
        fd = os.open(path, os.O_RDONLY | flags)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _said(state: Path) -> Holder:
    with _looking(state / "lock", _FILE) as fd:
        return _read(fd)


def _read(fd: int | None) -> Holder:
    fields = os.pread(fd, 64, 0).split() if fd is not None else []
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
