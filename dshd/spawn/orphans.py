"""What daemons before this one left behind, found by a mark in its environment."""

from __future__ import annotations

import os
import secrets
import signal
import time
from pathlib import Path

from dshd.spawn import kernel

MARK = "DSHD_SCOPE"  # in the environment of all we start: whose it is
BOOT = secrets.token_hex(8)  # this daemon, among those of its state directory
LIMIT = 5.0  # s


def mark(state_dir: Path, *, boot: str = BOOT) -> str:
    """What the environment of everything started for this state directory carries, by which daemon."""
    return f"{boot}:{os.fsdecode(state_dir)}"


def kill_orphans(state_dir: Path) -> list[int]:
    """End what an earlier daemon of this state directory left behind. Returns the pids.

    There is something only if that daemon was killed together with its spawner and supervisors. What
    this daemon has started is left alone. Blocks, for ms as a rule and LIMIT at most.
    """
    found: set[int] = set()
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        now = left_behind(state_dir)
        for pid in now:
            found |= kernel.kill_below(pid).keys()
        kernel.send(now, signal.SIGKILL)
        found |= now
        if not any(map(is_alive, found)):
            break
        time.sleep(0.02)
    return sorted(found)


def left_behind(state_dir: Path) -> set[int]:
    """The pids whose mark names this state directory and another daemon."""
    marks = kernel.marked(MARK)
    ours, any_boot = mark(state_dir), mark(state_dir, boot="")
    return {pid for pid, value in marks.items() if value != ours and value[len(BOOT) :] == any_boot}


def is_alive(pid: int) -> bool:
    """There, and not just waiting to be reaped."""
    fields = kernel.stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"
