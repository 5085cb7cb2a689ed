"""No network without a network namespace: a filter on system calls, beside Landlock, which knows only TCP.

It lets nobody make a socket but those that stay on the machine (AF_UNIX, and AF_NETLINK, by which programs
ask for their addresses); io_uring, which can make sockets past every filter, is not there. A socket that
somebody outside hands in is not covered.

Standard library only: this runs in the child, between fork and exec.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from dshd.spawn import kernel

PR_SET_SECCOMP, MODE_FILTER = 22, 2
AF_UNIX, AF_NETLINK = 1, 16
IO_URING_SETUP = 425  # the same on every architecture
X32 = 0x40000000  # added to the numbers of x86-64's second set of calls

# {machine: ((architecture's number, its socket(2), calls that are not there), ...)}: a 64-bit kernel may run
# 32-bit programs too. From linux/audit.h and the kernel's tables of system calls.
CALLS = {
    "x86_64": ((0xC000003E, 41, (IO_URING_SETUP,)), (0x40000003, 359, (102, IO_URING_SETUP))),
    "aarch64": ((0xC00000B7, 198, (IO_URING_SETUP,)), (0x40000028, 281, (IO_URING_SETUP,))),
}

LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # where they stand in what a filter sees
ALLOW, ERROR = 0x7FFF0000, 0x00050000

Line = tuple[int, int, int, int]  # (code, lines to skip if true, if false, operand)


def works() -> bool:
    """Does the kernel have filters, and do we know this machine's calls?"""
    return os.uname().machine in CALLS and os.path.exists("/proc/sys/kernel/seccomp/actions_avail")


def cut_network() -> None:
    """For this process and all it starts, for good; it must have given up gaining privileges before.
    Raises OSError."""
    lines = program(os.uname().machine)
    code = b"".join(struct.pack("=HBBI", *line) for line in lines)
    filters = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(lines), ctypes.addressof(filters))
    kernel.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.create_string_buffer(head, len(head)))


def program(machine: str) -> list[Line]:
    """What is of no known architecture gets no call at all."""
    lines: list[Line] = [(LOAD, 0, 0, ARCHITECTURE)]
    for architecture, socket, missing in CALLS[machine]:
        rules = _rules(socket, missing)
        lines += [(EQUAL, 0, len(rules), architecture), *rules]
    return [*lines, (RETURN, 0, 0, ERROR | errno.ENOSYS)]


def _rules(socket: int, missing: tuple[int, ...]) -> list[Line]:
    lines: list[Line] = [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    for number in missing:
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    return [
        *lines,
        (EQUAL, 0, 3, socket),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (EQUAL, 1, 0, AF_UNIX),
        (EQUAL, 0, 1, AF_NETLINK),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERROR | errno.ENETUNREACH),
    ]
