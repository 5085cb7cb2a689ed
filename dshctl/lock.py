"""Looking at a lock without taking it.

The daemon's state lock is a `flock`. Trying to take it, even shared and for an instant, can make a
daemon that starts in that instant believe in another one. The kernel's list of locks tells the
same without touching anything; only where that can't be read is the lock tried.
"""

from __future__ import annotations

import os
from typing import Final

_LOCKS: Final = "/proc/locks"


def is_held(path: str, locks: str = _LOCKS) -> bool:
    """Whether somebody holds a `flock` on the file. False if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    inode = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open(locks) as file:
            listed = any("FLOCK" in line and inode in line.split() for line in file)
    except OSError:
        return _tried(path)
    # A file system may number its devices otherwise than stat does, so a lock that isn't listed is
    # tried; one that is listed is certain.
    return listed or _tried(path)


def holder(path: str) -> int | None:
    """The pid that the lock's holder wrote into it; only informative."""
    try:
        with open(path) as file:
            return int(file.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _tried(path: str) -> bool:
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(fd)
