"""The token: a file of the owner's in the state directory, made once, so that clients can keep it.

To have another one, remove the file and start the daemon again.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from dshd.errors import Conflict

NAME: Final = "websocket.token"
BYTES: Final = 32
_SHORTEST: Final = 32  # characters, of one that somebody has written there


def kept(state: Path) -> str:
    """The token in ``state``, made if there is none. Blocking.

    Raises `Conflict` if others than its owner can read what is there, or if it is no token; OSError.
    *Durability*: synced before it is used, its directory too.
    """
    path = state / NAME
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return _make(state, path)
    with open(fd, encoding="ascii", errors="replace") as file:
        found = os.fstat(fd)
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.getuid():
            raise Conflict(f"{path} can be read by others", hint=f"rm {path}; dshctl daemon restart")
        token = file.read(4096).strip()
    if len(token) < _SHORTEST:
        raise Conflict(f"{path} holds no token", hint=f"rm {path}; dshctl daemon restart")
    return token


def _make(state: Path, path: Path) -> str:
    token = secrets.token_urlsafe(BYTES)
    new = state / f".{NAME}.{os.getpid()}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        os.fchmod(fd, 0o600)
        file.write(f"{token}\n")
        file.flush()
        os.fsync(fd)
    os.rename(new, path)
    directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return token
