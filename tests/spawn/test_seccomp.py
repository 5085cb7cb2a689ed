"""The filter on system calls, decided line by line as the kernel does; for real in tools.test_sandbox."""

from __future__ import annotations

import errno
import struct

import pytest

from dshd.spawn import seccomp

X86_64, I386 = seccomp.CALLS["x86_64"]
ARM64, ARM = seccomp.CALLS["aarch64"]
EVERY = [
    pytest.param(machine, calls, id=f"{machine}-{bits}")
    for machine, both in seccomp.CALLS.items()
    for calls, bits in zip(both, (64, 32), strict=True)
]
every = pytest.mark.parametrize(("machine", "calls"), EVERY)
POINTER, HIGH_POINTER = 0x1000, 0x7F_0000_0000


def verdict(machine: str, architecture: int, number: int, *arguments: int, net: bool = False) -> int:
    """The error that a call gets; 0: it goes through."""
    seen = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    lines, at, value = seccomp.program(machine, net), 0, 0
    while True:
        code, yes, no, operand = lines[at]
        at += 1
        if code == seccomp.RETURN:
            return 0 if operand == seccomp.ALLOW else operand & 0xFFFF
        if code == seccomp.LOAD:
            (value,) = struct.unpack_from("<I", seen, operand)
        else:
            at += yes if (value == operand if code == seccomp.EQUAL else value >= operand) else no


@every
@pytest.mark.parametrize("net", [False, True])
def test_limits_are_set_by_a_process_for_itself_only(machine: str, calls: seccomp.Calls, net: bool) -> None:
    def prlimit(pid: int, new: int) -> int:
        return verdict(machine, calls.architecture, calls.prlimit, pid, 7, new, net=net)

    assert prlimit(0, POINTER) == prlimit(4711, 0) == 0
    assert prlimit(4711, POINTER) == prlimit(4711, HIGH_POINTER) == errno.EPERM


@every
def test_priorities_are_changed_by_a_process_for_itself_only(machine: str, calls: seccomp.Calls) -> None:
    for number, first in ((calls.setpriority, 0), (calls.ioprio_set, 1)):
        for kind, who, error in ((0, 0, 0), (0, 4711, 1), (1, 0, 0), (1, 4711, 1), (2, 0, 1), (2, 1000, 1)):
            wanted = errno.EPERM if error else 0
            assert verdict(machine, calls.architecture, number, first + kind, who) == wanted
    for number in calls.scheduling:
        assert verdict(machine, calls.architecture, number, 0) == 0
        assert verdict(machine, calls.architecture, number, 4711) == errno.EPERM


@every
def test_sockets_that_leave_the_machine_are_there_with_net_only(machine: str, calls: seccomp.Calls) -> None:
    def socket(family: int, net: bool) -> int:
        return verdict(machine, calls.architecture, calls.socket, family, net=net)

    assert [socket(family, net=False) for family in (1, 16)] == [0, 0]
    assert [socket(family, net=False) for family in (2, 10, 17, 40)] == [errno.ENETUNREACH] * 4
    assert [socket(family, net=True) for family in (1, 2, 10)] == [0, 0, 0]
    for number in (seccomp.IO_URING_SETUP, *calls.socketcall):
        assert verdict(machine, calls.architecture, number) == errno.ENOSYS
        assert verdict(machine, calls.architecture, number, net=True) == 0


@pytest.mark.parametrize("net", [False, True])
def test_other_sets_of_calls_are_no_way_around(net: bool) -> None:
    assert verdict("x86_64", X86_64.architecture, seccomp.X32 | 41, 2, net=net) == errno.ENOSYS
    assert verdict("x86_64", ARM64.architecture, ARM64.socket, 1, net=net) == errno.ENOSYS
    assert verdict("aarch64", I386.architecture, I386.socket, 1, net=net) == errno.ENOSYS
    assert verdict("x86_64", X86_64.architecture, 0, net=net) == 0
