"""What Linux offers for owning processes: prctl, and the tree as /proc shows it.

Two facts carry the room. A *child subreaper* inherits every descendant whose parent dies, so a process
that has one as ancestor can never leave it, whatever it does with sessions, groups or double forks; and
`waitpid` of a subreaper that has no descendant left fails with ECHILD, which no process can forge. A
*parent-death signal* is sent when the thread that forked us ends. Both are set in single-threaded
processes only, where thread and process are the same.

Standard library only: this runs in the spawner, which must stay small to fork fast.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int | bytes) -> None:
    """prctl(2) with one argument. Raises OSError."""
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """From now on orphaned descendants become our children."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int, signum: int) -> bool:
    """Ask for ``signum`` when the parent ends. False: it had ended before we asked."""
    prctl(PR_SET_PDEATHSIG, signum)
    return os.getppid() == parent


def guard_memory() -> None:
    """Nobody but root may read our memory or environment through /proc (they hold the daemon's keys)."""
    prctl(PR_SET_DUMPABLE, 0)


def rename(name: str) -> None:
    """The name in ps and top (15 bytes are kept)."""
    prctl(PR_SET_NAME, name.encode())


def stat_fields(pid: int) -> tuple[str, int, int] | None:
    """(state letter, parent, start time in clock ticks since boot) of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (fields[0].decode(), int(fields[1]), int(fields[19])) if len(fields) > 19 else None


def processes() -> dict[int, tuple[int, str]]:
    """{pid: (parent, state letter)} of all that /proc shows."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat_fields(int(entry))) is not None:
            found[int(entry)] = (fields[1], fields[0])
    return found


def descendants(root: int, *, apart: Iterable[int] = ()) -> dict[int, str]:
    """{pid: state letter} below ``root``, zombies left out, without ``apart`` and what is below those."""
    table = processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    seen: dict[int, str] = {}
    skipped, queue = set(apart), [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            if pid not in skipped and pid not in seen:
                seen[pid] = table[pid][1]
                queue.append(pid)
    return {pid: state for pid, state in seen.items() if state not in "ZX"}


def ancestors(pid: int) -> list[int]:
    """The parents of ``pid``, nearest first, ending with the last that can be seen."""
    found: list[int] = []
    while (fields := stat_fields(pid)) is not None and fields[1] > 0 and fields[1] not in found:
        pid = fields[1]
        found.append(pid)
    return found


def send(pids: Iterable[int], signum: int) -> None:
    """The signal to each; who is gone or not ours to signal is passed over."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def marked(name: str) -> dict[int, str]:
    """{pid: value} of the processes that were executed with this variable in their environment."""
    wanted, found = os.fsencode(f"{name}="), {}
    for pid in processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(wanted):
                found[pid] = os.fsdecode(variable[len(wanted) :])
    return found


def freeze(root: int, *, apart: Iterable[int] = ()) -> dict[int, str]:
    """SIGSTOP everything below ``root``; returns what is there.

    A tree that forks while it is read would be read in part. So it is stopped and read again until
    nothing new appears: who is stopped does not fork.
    """
    seen: dict[int, str] = {}
    for _ in range(100):
        now = descendants(root, apart=apart)
        fresh = now.keys() - seen.keys()
        if not fresh:
            break
        send(fresh, signal.SIGSTOP)
        seen.update(now)
    return seen


def kill_below(root: int, *, apart: Iterable[int] = ()) -> dict[int, str]:
    """One pass of SIGKILL over everything below ``root``; returns what was there."""
    seen = freeze(root, apart=apart)
    send(seen, signal.SIGKILL)
    return seen


def reap() -> tuple[dict[int, int], bool]:
    """({pid: wait status} of the children that have ended, is any child left). Never blocks."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status
