"""Which processes may be at the other end of a TCP connection on this machine.

The kernel's table of connections (``/proc/net/tcp``) says which user's it is and which socket; the
processes' descriptors say who holds that socket. What we may not look into (a process that has made itself
unreadable) is counted among those that may hold it: who could hide there would be a tool that wants to be
taken for a person.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

Address = tuple[str, int]  # numeric host and port
_TABLES: Final = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}


class End(NamedTuple):
    """``uid`` is whose it is. ``holders`` hold the socket; ``hidden`` are that uid's processes that can't be
    looked into."""

    uid: int
    holders: tuple[int, ...]
    hidden: tuple[int, ...]


def other_end(family: int, theirs: Address, ours: Address) -> End | None:
    """Of the connection from ``theirs`` to ``ours``; None if there is none any more. Blocking."""
    found = _entry(family, theirs, ours)
    if found is None:
        return None
    uid, inode = found
    holders, hidden = [], []
    for pid in _processes(uid):
        holds = _holds(pid, f"socket:[{inode}]")
        if holds:
            holders.append(pid)
        elif holds is None:
            hidden.append(pid)
    return End(uid, tuple(holders), tuple(hidden))


def _entry(family: int, theirs: Address, ours: Address) -> tuple[int, int] | None:
    """The uid and the socket's inode in the line whose local end is theirs."""
    wanted = [written(family, theirs), written(family, ours)]
    with open(_TABLES[socket.AddressFamily(family)], encoding="ascii") as table:
        for line in table:
            words = line.split()
            if words[1:3] == wanted and words[9] != "0":
                return int(words[7]), int(words[9])
    return None


def written(family: int, address: Address) -> str:
    """An address as the table has it: words of 4 bytes in the machine's order, in hexadecimal."""
    host, port = address
    raw = socket.inet_pton(family, host.partition("%")[0])
    words = (struct.unpack("=I", raw[at : at + 4])[0] for at in range(0, len(raw), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def _processes(uid: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if _uid_of(name) == uid:
                    yield int(name)


def _uid_of(pid: str) -> int:
    """The real one: a process that is unreadable belongs to root, as files go."""
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return -1


def _holds(pid: int, name: str) -> bool | None:
    """Whether the process has that socket; None if it lets nobody look."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return None
    except OSError:  # it has just ended
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") == name:
                return True
    return False
