"""Processes as /proc shows them: who is below whom, who carries which mark, and how to end a whole tree.

Standard library only: this runs in the spawner.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dshd.spawn import kernel


class Process(NamedTuple):
    """``state`` is the kernel's letter, ``start`` is in clock ticks since boot."""

    state: str
    parent: int
    group: int
    session: int
    start: int


def look(pid: int) -> Process | None:
    """One process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    parent, group, session = map(int, fields[1:4])
    return Process(fields[0].decode(), parent, group, session, int(fields[19]))


def name_of(pid: int) -> str:
    """What a process calls itself (15 bytes); nothing if it is gone."""
    return _read(pid, "comm").decode(errors="replace").rstrip("\n")


def is_alive(pid: int) -> bool:
    """There, and not just waiting to be reaped."""
    found = look(pid)
    return found is not None and found.state not in "ZX"


def processes() -> dict[int, Process]:
    """All that /proc shows, by pid."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return {pid: found for pid in pids if (found := look(pid)) is not None}


def descendants(root: int, *, apart: Iterable[int] = ()) -> dict[int, Process]:
    """Who is below ``root``, zombies left out, without ``apart`` and what is below those."""
    table = processes()
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    seen: dict[int, Process] = {}
    skipped, queue = set(apart), [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            if pid not in skipped and pid not in seen:
                seen[pid] = table[pid]
                queue.append(pid)
    return {pid: process for pid, process in seen.items() if process.state not in "ZX"}


def ancestors(pid: int) -> list[int]:
    """The parents of ``pid``, nearest first, ending with the last that can be seen."""
    found: list[int] = []
    while (process := look(pid)) is not None and process.parent > 0 and process.parent not in found:
        pid = process.parent
        found.append(pid)
    return found


def freeze(root: int, *, apart: Iterable[int] = ()) -> dict[int, Process]:
    """SIGSTOP everything below ``root``; returns what is there.

    A tree that forks while it is read would be read in part. So it is stopped and read again until
    nothing new appears: who is stopped does not fork. Groups are stopped as wholes, or a tree that doubles
    faster than /proc can be read would never be caught up with.
    """
    seen: dict[int, Process] = {}
    for _ in range(100):
        now = descendants(root, apart=apart)
        fresh = {pid: process for pid, process in now.items() if pid not in seen}
        if not fresh:
            break
        send(fresh, signal.SIGSTOP, apart)
        seen.update(now)
    return seen


def send(found: Mapping[int, Process], signum: int, apart: Iterable[int] = ()) -> None:
    """The signal to processes and to their groups. A command's groups are its own, as its session is; the
    group of somebody who is ``apart`` is a helper's."""
    spared = {process.group for pid in apart if (process := look(pid)) is not None}
    kernel.send_groups({process.group for process in found.values()} - spared, signum)
    kernel.send(found, signum)


def kill_below(root: int, *, apart: Iterable[int] = ()) -> dict[int, Process]:
    """One pass of SIGKILL over everything below ``root``; returns what was there."""
    seen = freeze(root, apart=apart)
    send(seen, signal.SIGKILL, apart)
    return seen


def marked(name: str) -> dict[int, str]:
    """{pid: value} of the processes that were executed with this variable in their environment."""
    wanted, found = os.fsencode(f"{name}="), {}
    for pid in processes():
        for variable in _read(pid, "environ").split(b"\0"):
            if variable.startswith(wanted):
                found[pid] = os.fsdecode(variable[len(wanted) :])
    return found


def branded() -> dict[int, int]:
    """{pid: number} of the processes that carry a brand (`kernel.brand`)."""
    return {pid: number for pid in processes() if (number := brand_of(pid)) is not None}


def brand_of(pid: int) -> int | None:
    line = _read(pid, "limits").partition(b"\nMax file locks")[2].partition(b"\n")[0].split()
    return int(line[1]) if len(line) > 1 and line[1].isdigit() else None


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
