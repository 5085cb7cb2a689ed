"""Playing many plans: one that stands still is a find, and nobody outlives who plays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from tests.sim.run import Workers, end_with


def stands_at_4(first: int, step: int, end: float, mine: Any, reports: Any, parent: int) -> None:
    end_with(parent)
    for seed in range(first, 9, step):
        mine[:] = [seed, time.monotonic()]
        if seed == 4:
            time.sleep(600)
        reports.put((Counter({"histories": 1}), []))
    mine[1] = 0.0
    reports.put(None)


def dies_at_3(first: int, step: int, end: float, mine: Any, reports: Any, parent: int) -> None:
    mine[:] = [first, time.monotonic()]
    if first == 3:
        os._exit(7)
    reports.put((Counter({"histories": 1}), []))
    mine[1] = 0.0
    reports.put(None)


def test_a_plan_that_stands_still_is_a_find_and_others_are_played() -> None:
    workers = Workers(2, 0, 60.0, stands_at_4, longest=2.0)
    heard = list(workers.reports())
    failed = [one for _, bad in heard for one in bad]
    assert failed == workers.broken == [(4, "stands still: it takes longer than 2 s")]
    assert sum(counts["histories"] for counts, _ in heard) == 8


def test_a_process_that_dies_is_a_find_and_another_goes_on() -> None:
    workers = Workers(1, 3, 60.0, dies_at_3)
    heard = list(workers.reports())
    assert workers.broken == [(3, "its process has ended: 7")]
    assert sum(counts["histories"] for counts, _ in heard) == 1


def test_nobody_outlives_who_plays_and_who_is_asked_to_stop_tells_the_totals() -> None:
    command = [sys.executable, "-m", "tests.sim", "--minutes", "5", "--jobs", "1"]
    for number in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as player:
            worker = child_of(player.pid)
            player.send_signal(number)
            said = player.communicate(timeout=30)[0]
        assert ("histories in" in said) == (number == signal.SIGTERM)
        deadline = time.monotonic() + 10
        while is_there(worker) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_there(worker)


def child_of(pid: int) -> int:
    """Its worker, once that has begun."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            for child in children.read().split():
                with open(f"/proc/{child}/status") as status:
                    if ignores_interrupts(status.read()):
                        return int(child)
        time.sleep(0.05)
    raise AssertionError("no worker")


def ignores_interrupts(status: str) -> bool:
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1]
    return bool(int(ignored, 16) & 1 << (signal.SIGINT - 1))


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
