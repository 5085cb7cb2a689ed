"""What Landlock doesn't know of, kept from a command by a filter on system calls.

Always: what changes another process by its number, for that needs no more than being the same user, and a
daemon that may open no file is out of reach. A filter sees numbers only, so "another" is whatever is not
named 0, "myself": a command that names its own number is refused too (`ulimit`, `nice`, `chrt` don't). Not
kept from it: sched_setaffinity, by which every thread pool pins its own threads, naming them.

Without ``net``: sockets but those that stay on the machine (AF_UNIX, and AF_NETLINK, by which programs ask
for their addresses), and io_uring, which can make sockets past every filter. A socket that somebody outside
hands in is not covered.

A filter can't see what a path or a descriptor leads to, so modes, owners, times and attributes of files stay
open to a command as far as the user may change them.

Standard library only: this runs in the child, between fork and exec.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

from dshd.spawn import kernel

PR_SET_SECCOMP, MODE_FILTER = 22, 2
AF_UNIX, AF_NETLINK = 1, 16
PRIO_USER, IOPRIO_WHO_USER = 2, 3  # all processes of a user; the smaller ones name one process, or a group
IO_URING_SETUP = 425  # the same on every architecture
X32 = 0x40000000  # added to the numbers of x86-64's second set of calls


class Calls(NamedTuple):
    """One architecture's numbers, from linux/audit.h and the kernel's tables of system calls.
    ``scheduling``: sched_setscheduler, sched_setparam and sched_setattr, whose first argument is a process.
    ``socketcall``: all of the sockets' calls in one, its arguments in memory where no filter sees them."""

    architecture: int
    socket: int
    prlimit: int
    setpriority: int
    ioprio_set: int
    scheduling: tuple[int, ...]
    socketcall: tuple[int, ...] = ()


# A 64-bit kernel may run 32-bit programs too.
CALLS = {
    "x86_64": (
        Calls(0xC000003E, 41, 302, 141, 251, (144, 142, 314)),
        Calls(0x40000003, 359, 340, 97, 289, (156, 154, 351), (102,)),
    ),
    "aarch64": (
        Calls(0xC00000B7, 198, 261, 140, 30, (119, 118, 274)),
        Calls(0x40000028, 281, 369, 97, 314, (156, 154, 380)),
    ),
}

LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD, THIRD_HIGH = 0, 4, 16, 24, 32, 36  # in what a filter sees
ALLOW, ERROR = 0x7FFF0000, 0x00050000

Line = tuple[int, int, int, int]  # (code, lines to skip if true, if false, operand)

GO: Line = (RETURN, 0, 0, ALLOW)
NOT_THERE: Line = (RETURN, 0, 0, ERROR | errno.ENOSYS)
NO_NETWORK: Line = (RETURN, 0, 0, ERROR | errno.ENETUNREACH)
NOT_YOURS: Line = (RETURN, 0, 0, ERROR | errno.EPERM)


def works() -> bool:
    """Does the kernel have filters, and do we know this machine's calls?"""
    return os.uname().machine in CALLS and os.path.exists("/proc/sys/kernel/seccomp/actions_avail")


def restrict(net: bool) -> None:
    """For this process and all it starts, for good; it must have given up gaining privileges before.
    Raises OSError."""
    lines = program(os.uname().machine, net)
    code = b"".join(struct.pack("=HBBI", *line) for line in lines)
    filters = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(lines), ctypes.addressof(filters))
    kernel.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.create_string_buffer(head, len(head)))


def program(machine: str, net: bool) -> list[Line]:
    """What is of no known architecture gets no call at all."""
    lines: list[Line] = [(LOAD, 0, 0, ARCHITECTURE)]
    for calls in CALLS[machine]:
        rules = [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, X32), NOT_THERE, *_others(calls)]
        rules += [GO] if net else [*_sockets(calls), GO]
        lines += [(EQUAL, 0, len(rules), calls.architecture), *rules]
    return [*lines, NOT_THERE]


def _others(calls: Calls) -> list[Line]:
    """Nobody changes another process. Asking for another's limits is no change."""
    asks: list[Line] = [
        (LOAD, 0, 0, THIRD), (EQUAL, 0, 3, 0), (LOAD, 0, 0, THIRD_HIGH), (EQUAL, 0, 1, 0), GO, NOT_YOURS,
    ]  # fmt: skip
    lines = _if(calls.prlimit, [(LOAD, 0, 0, FIRST), (EQUAL, 0, 1, 0), GO, *asks])
    for number, user in ((calls.setpriority, PRIO_USER), (calls.ioprio_set, IOPRIO_WHO_USER)):
        lines += _if(number, [(LOAD, 0, 0, FIRST), (AT_LEAST, 0, 1, user), NOT_YOURS, *_only_myself(SECOND)])
    for number in calls.scheduling:
        lines += _if(number, _only_myself(FIRST))
    return lines


def _sockets(calls: Calls) -> list[Line]:
    lines: list[Line] = []
    for number in (*calls.socketcall, IO_URING_SETUP):
        lines += _if(number, [NOT_THERE])
    local: list[Line] = [(EQUAL, 1, 0, AF_UNIX), (EQUAL, 0, 1, AF_NETLINK), GO, NO_NETWORK]
    return lines + _if(calls.socket, [(LOAD, 0, 0, FIRST), *local])


def _if(number: int, then: list[Line]) -> list[Line]:
    """``then`` for the call of that number; it must return."""
    return [(EQUAL, 0, len(then), number), *then]


def _only_myself(argument: int) -> list[Line]:
    return [(LOAD, 0, 0, argument), (EQUAL, 0, 1, 0), GO, NOT_YOURS]
