"""Looking at the daemon's state lock, for a moment and without keeping it.

The lock is a `flock` on ``STATE/lock``. To look is to try for a shared one; a daemon that starts in
that instant waits for the instant to pass (see `dshd.log.lock`, which this does not import: `ping`
looks at the lock, and has no time for more).
"""

from __future__ import annotations

import fcntl
import os


def is_held(path: str) -> bool:
    """Whether a daemon holds the lock. False if there is no such file; nothing is created."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(fd)
    return False


def holder(path: str) -> int | None:
    """The pid that the lock's holder wrote into it; only informative."""
    try:
        with open(path) as file:
            return int(file.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return None
