"""Reading small files that may be anything: bounded, and never waiting for a pipe. Blocking.

Light on purpose: standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

DEVICE_OR_FILE = (stat.S_IFREG, stat.S_IFCHR)  # of the devices, people mean /dev/null


def read_small(path: str | os.PathLike[str], most: int) -> bytes | None:
    """The first ``most`` bytes of a regular file; None if there is none to read."""
    try:
        return read_file(path, most, kinds=(stat.S_IFREG,))
    except OSError:
        return None


def read_file(
    path: str | os.PathLike[str], most: int, *, kinds: tuple[int, ...] = DEVICE_OR_FILE
) -> bytes:
    """The first ``most`` bytes of a file of these kinds. Raises `OSError`, EINVAL for what is another."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = stat.S_IFMT(os.fstat(fd).st_mode)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if kind not in kinds:
            raise OSError(errno.EINVAL, "it is no regular file")
        return _read(fd, most)
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
