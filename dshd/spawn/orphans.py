"""What daemons before this one left behind, found by what it carries.

Everything that is started has two marks: a variable in its environment, and a brand (`kernel.brand`), which
stays when the environment is cleared. Helpers that were stopped when the daemon died have the latter. Who
removes both, on purpose, is found only while the daemon, the spawner or the supervisor lives: those go by
ancestry.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
import zlib
from collections.abc import Collection
from pathlib import Path

from dshd.spawn import kernel, tree
from dshd.spawn.tree import is_alive

MARK = "DSHD_SCOPE"  # in the environment of all we start: whose it is
BOOT = secrets.token_hex(8)  # this daemon, among those of its state directory
LIMIT = 5.0  # s
HALF = 31  # bits of a brand for the state directory, and as many for the daemon


def mark(state_dir: Path, *, boot: str = BOOT) -> str:
    """What the environment of everything started for this state directory carries, by which daemon."""
    return f"{boot}:{os.fsdecode(state_dir)}"


def brand(state_dir: Path, *, boot: str = BOOT) -> int:
    """The same as a number."""
    return _hash(os.fsencode(state_dir)) << HALF | _hash(boot.encode())


def _hash(data: bytes) -> int:
    return zlib.crc32(data) >> 1 | 1  # never 0, which could be somebody's real limit


def kill_orphans(state_dir: Path, spared: Collection[int] = ()) -> list[int]:
    """End what an earlier daemon of this state directory left behind. Returns the pids. ``spared``: the
    supervisors of what was to be kept, with all that is below them.

    There is something only if that daemon was killed together with its spawner and supervisors. What
    this daemon has started is left alone. Blocks, for ms as a rule and LIMIT at most.
    """
    found: set[int] = set()
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        now = {pid for pid in left_behind(state_dir) if not _stays(pid, spared)}
        for pid in now:
            found |= tree.kill_below(pid, apart=spared).keys()
        kernel.send(now, signal.SIGKILL)
        found |= now
        if not any(map(is_alive, found)):
            break
        time.sleep(0.02)
    return sorted(found)


def _stays(pid: int, spared: Collection[int]) -> bool:
    """Whether it is one of these or below one. Asked of each that was found, from below: what they fork while
    /proc is read is theirs, too. One whose parent ends meanwhile has another; it is looked at again, and if
    that goes on, left for the next pass."""
    for _ in range(10):
        above = tree.ancestors(pid)
        if not spared or pid in spared or not set(above).isdisjoint(spared):
            return bool(spared)
        if tree.look(above[-1] if above else pid) is not None:  # the top: nobody is missing in between
            return False
    return True


def left_behind(state_dir: Path) -> set[int]:
    """The pids that carry a mark of this state directory and of another daemon."""
    ours, any_boot = mark(state_dir), mark(state_dir, boot="")
    by_mark = {
        pid for pid, value in tree.marked(MARK).items() if value != ours and value[len(BOOT) :] == any_boot
    }
    number = brand(state_dir)
    by_brand = {
        pid for pid, value in tree.branded().items() if value != number and value >> HALF == number >> HALF
    }
    return by_mark | by_brand
