"""What Linux offers for owning processes: prctl, marks that are inherited, and waiting. (`tree` reads /proc.)

Two facts carry the room. A *child subreaper* inherits every descendant whose parent dies, so a process
that has one as ancestor can never leave it, whatever it does with sessions, groups or double forks; and
`waitpid` of a subreaper that has no descendant left fails with ECHILD, which no process can forge. A
*parent-death signal* is sent when the thread that forked us ends. Both are set in single-threaded
processes only, where thread and process are the same.

A *brand* finds what was left when all who knew of it are dead. It is a number in the hard limit on file
locks (RLIMIT_LOCKS), which no kernel since 2.4 looks at: like every limit it goes through fork, exec, a
cleared environment and a new session, and who is not root can't raise it again.

Standard library only: this runs in the spawner, which must stay small to fork fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Collection, Iterable
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
RLIMIT_LOCKS = 10
CAPABILITY_VERSION, LAST_CAPABILITY = 0x20080522, 63

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int | bytes, more: Any = 0) -> None:
    """prctl(2) with one argument, or two. Raises OSError."""
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    _checked(libc.prctl(option, argument, more, 0, 0))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """From now on orphaned descendants become our children."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int, signum: int) -> bool:
    """Ask for ``signum`` when the parent ends. False: it had ended before we asked."""
    prctl(PR_SET_PDEATHSIG, signum)
    return os.getppid() == parent


def outlive() -> None:
    """Ask for no signal when the parent ends."""
    prctl(PR_SET_PDEATHSIG, 0)


def guard_memory() -> None:
    """Nobody but root may read our memory or environment through /proc (they hold the daemon's keys)."""
    prctl(PR_SET_DUMPABLE, 0)


def keep_capabilities(kept: Collection[int]) -> None:
    """Give up all but these, here and for what is executed later, root or not; call it when nothing can be
    gained any more (no_new_privs), or a file's own would count. Raises OSError."""
    for number in range(LAST_CAPABILITY + 1):
        if number not in kept:
            with contextlib.suppress(
                OSError
            ):  # the kernel has no such one, or we may not (and can't gain any)
                prctl(PR_CAPBSET_DROP, number)
    mask = sum(1 << number for number in kept)
    head = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    held = ctypes.create_string_buffer(24)  # two of (effective, permitted, inheritable)
    _checked(libc.capget(head, held))
    _, low, _, _, _, _ = struct.unpack("=6I", held.raw)
    _checked(libc.capset(head, struct.pack("=6I", low & mask, low & mask, 0, 0, 0, 0)))


def rename(name: str) -> None:
    """The name in ps and top (15 bytes are kept)."""
    prctl(PR_SET_NAME, name.encode())


def brand(pid: int, number: int) -> None:
    """Have a process of ours, and all it starts from now on, carry a number. Somebody who is not root and
    has a smaller one from above can only lower it further; then it is another one than ours, at least."""
    _, ours = resource.getrlimit(RLIMIT_LOCKS)
    for one in (number, ours - 1):
        with contextlib.suppress(ValueError, OSError):
            resource.prlimit(pid, RLIMIT_LOCKS, (one, one))
            return


def send(pids: Iterable[int], signum: int) -> None:
    """The signal to each; who is gone or not ours to signal is passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def send_groups(groups: Iterable[int], signum: int) -> None:
    """The same to process groups, never our own. To the kernel that is one act: a group that forks as fast
    as it can is met as a whole."""
    for group in groups:
        if group > 1 and group != os.getpgrp():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signum)


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
