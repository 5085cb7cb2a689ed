"""Supervisors that outlive the daemon, and what a daemon can know of them: its own, and earlier ones'.

Such a supervisor is known by its pid and the time at which it began (`tree.Process.start`), and by its name,
which nobody but itself can change. It takes SIGTERM for stop. When its tree has ended it leaves word in a
file, whole or not at all, and ends: whoever was not there reads it later.

The module is used by the supervisor, too: standard library only, but for `wait`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any, Final

from dshd.spawn import tree

NAME: Final = "dshd-kept"


def is_kept(pid: int) -> bool:
    """Whether this process says of itself that it stays."""
    return tree.name_of(pid) == NAME


def is_there(pid: int, start: int) -> bool:
    """Whether it is still that very supervisor, and alive."""
    found = tree.look(pid)
    return found is not None and found.start == start and found.state not in "ZX" and is_kept(pid)


def send(pid: int, start: int, signum: int) -> bool:
    """The signal to that very supervisor, never to another process of its number. Whether it was there."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_there(pid, start):
            return False
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(fd, signum)
        return True
    finally:
        os.close(fd)


def leave_word(path: str, done: dict[str, Any]) -> None:
    """How it ended, for who was not there. If the disk does not take it, nobody will know."""
    with contextlib.suppress(OSError):
        temporary = f"{path}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(temporary, flags, 0o600)
        with open(fd, "wb") as file:
            file.write(json.dumps(done).encode())
            file.flush()
            os.fsync(fd)
        os.rename(temporary, path)


def word(path: str) -> dict[str, Any] | None:
    """What was left there (`protocol.Done`'s fields); None if nothing was."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


async def wait(pid: int, start: int) -> None:
    """Return when that supervisor is gone. Cancellation: at any time."""
    import trio

    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if is_there(pid, start):
            await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)
