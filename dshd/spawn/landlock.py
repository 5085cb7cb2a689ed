"""Landlock: a sandbox that the kernel offers to everybody, for where bubblewrap is refused.

A process gives up rights for itself and its descendants, for good. It only knows *allow*, path by path
with everything below, which makes it the weaker second:

- ``/tmp`` can't be made private; the session's own directory is named in TMPDIR, and /tmp is read-only;
- inside a directory that can be written nothing can be excepted (so hooks are put back afterwards);
- what is hidden is hidden by allowing everything around it, as it was when the command started;
- the network is cut for TCP from ABI 4 on; the rest, and all of it before that, `seccomp` does;
- signals stay inside from ABI 6 on, and so does ptrace, with all that needs its right (the memory of others,
  their descriptors); limits and priorities of other processes `seccomp` keeps;
- what is known of a file beside its contents (mode, owner, times, attributes) is not its business at all;
- sockets with a path can be connected to wherever they are, the daemon's too (which then knows that it is
  talking to a tool, and lets it do little).

Standard library only: this runs in the child, between fork and exec.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Any

from dshd.spawn import kernel, seccomp

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
PR_SET_NO_NEW_PRIVS = 38
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
# Capabilities that stay: CHOWN, DAC_OVERRIDE, FOWNER. (MKNOD, for one, would be a way to the disk itself.)
KEPT = frozenset({0, 1, 3})
BIND_AND_CONNECT = 0b11
ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}  # ABI -> how many file rights it knows; 16 from 5 on
NET_ABI, SCOPE_ABI = 4, 6


def abi() -> int:
    """The version the kernel speaks; 0 if it has none or it is switched off."""
    return max(0, int(kernel.libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def restrict(rules: dict[str, Any]) -> None:
    """Confine this process: ``read`` and ``write`` are lists of paths (what is missing is passed over),
    ``net`` keeps the network. Raises OSError."""
    version = abi()
    every = (1 << FS_BITS.get(version, 16)) - 1
    ruleset = _call(CREATE_RULESET, *_ruleset(version, every, bool(rules["net"])), 0)
    for path in rules["read"]:
        _allow(ruleset, path, READ & every)
    for path in rules["write"]:
        _allow(ruleset, path, every)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    _call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    kernel.keep_capabilities(KEPT)
    if seccomp.works():
        seccomp.restrict(bool(rules["net"]))


def _ruleset(version: int, every: int, net: bool) -> tuple[ctypes.Array[ctypes.c_char], int]:
    words = [every]
    if version >= NET_ABI:
        words.append(0 if net else BIND_AND_CONNECT)
    if version >= SCOPE_ABI:
        words.append(ABSTRACT_SOCKETS_AND_SIGNALS)
    packed = struct.pack(f"={len(words)}Q", *words)
    return ctypes.create_string_buffer(packed, len(packed)), len(packed)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= ON_FILES
        beneath = ctypes.create_string_buffer(struct.pack("=Qi", access, fd), 12)
        _call(ADD_RULE, ruleset, PATH_BENEATH, beneath, 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: Any) -> int:
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = kernel.libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
