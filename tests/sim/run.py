"""Many histories, in as many processes as there are processors."""

from __future__ import annotations

import gc
import multiprocessing
import queue
import time
from collections import Counter
from typing import Any

from tests.sim.coverage import told
from tests.sim.plan import make
from tests.sim.play import play
from tests.sim.shrink import shrink

EACH = 50  # plans between two reports of a process

Report = tuple[Counter[str], list[tuple[int, str]]]  # how many of what, (seed, find) of the failed


def piece(first: int, step: int, count: int) -> Report:
    """Play ``count`` plans: those of the seeds ``first``, ``first + step``, ..."""
    counts: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    for seed in range(first, first + step * count, step):
        past = play(make(seed))
        counts.update(past.counts)
        if past.finds:
            failed.append((seed, past.finds[0]))
    return counts, failed


def collect_young() -> None:
    """Histories make much garbage, and nothing that lasts: all that is there now is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(4000, 10, 10)


def work(first: int, step: int, seconds: float, reports: Any) -> None:
    """One process: pieces until time is up, then None."""
    collect_young()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        reports.put(piece(first, step, EACH))
        first += step * EACH
    reports.put(None)


def run(seconds: float, jobs: int, start: int = 0, *, coverage: bool = False) -> int:
    """Play for so long; the first failure is shrunk and printed. Returns the exit status."""
    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    workers = [context.Process(target=work, args=(start + n, jobs, seconds, reports)) for n in range(jobs)]
    begun, counts = time.monotonic(), Counter[str]()
    failed: list[tuple[int, str]] = []
    for worker in workers:
        worker.start()
    for more, bad in _arriving(reports, workers):
        failed += bad
        counts.update(more)
        for seed, find in bad:
            print(f"seed {seed}: {find}", flush=True)
    for worker in workers:
        worker.join()
    if coverage:
        print(told(counts))
    _tell(time.monotonic() - begun, counts, failed)
    return 1 if failed or any(worker.exitcode for worker in workers) else 0


def _arriving(reports: Any, workers: list[Any]) -> Any:
    running = len(workers)
    while running:
        try:
            report = reports.get(timeout=60)
        except queue.Empty:
            running = sum(worker.is_alive() for worker in workers)
            continue
        if report is None:
            running -= 1
        else:
            yield report


def _tell(took: float, counts: Counter[str], failed: list[tuple[int, str]]) -> None:
    done = counts["histories"]
    print(f"{done} histories in {took:.0f} s ({done / took:.0f} a second), {counts['lives']} lives, "
          f"{_sum(counts, 'death')} deaths, {_sum(counts, 'done')} requests done, "
          f"{_sum(counts, 'refused')} refused; {len(failed)} plans failed")  # fmt: skip
    if failed:
        seed, find = min(failed)
        print(f"\nthe first, shrunk (again with: python -m tests.sim --seed {seed} --shrink):")
        print(shrink(make(seed)))
        print("FOUND:", find)


def _sum(counts: Counter[str], group: str) -> int:
    return sum(n for name, n in counts.items() if name.startswith(f"{group}: "))
