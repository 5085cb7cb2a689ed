"""Reading small files that may be anything: bounded, and never waiting for a pipe. Blocking."""

from __future__ import annotations

import os
import stat


def read_small(path: str | os.PathLike[str], most: int) -> bytes | None:
    """The first ``most`` bytes of a regular file; None if there is none to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return _read(fd, most)
    except OSError:
        return None
    finally:
        os.close(fd)


def _read(fd: int, most: int) -> bytes:
    data = b""
    while len(data) < most and (piece := os.read(fd, most - len(data))):
        data += piece
    return data


def read_line(path: str | os.PathLike[str]) -> str | None:
    """A file of one line, without its end."""
    data = read_small(path, 4096)
    return None if data is None else data.decode("utf-8", "replace").split("\n")[0].strip()
