"""Many histories, in as many processes as there are processors.

A plan has no end of its own in real time: one that stands still (an endless loop, in the product or here) is
a find like any other. Who plays says which plan it has begun; if one takes longer than `LONGEST_S`, where it
stands is printed, its process is ended, and another goes on behind it. Whatever happens, a Ctrl-C or
a SIGTERM too, the totals come last.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import multiprocessing
import os
import queue
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

from tests.sim.coverage import told
from tests.sim.plan import make
from tests.sim.play import play
from tests.sim.shrink import shrink

EACH = 50  # plans between two reports of a process
LONGEST_S = 120.0  # of one plan; most take a fifth of a second
LOOK_S = 2.0
MOST_MEMORY = 4 << 30  # bytes, of a process; then a plan that runs away is a find, and not the machine's end

Report = tuple[Counter[str], list[tuple[int, str]]]  # how many of what, (seed, find) of the failed


def piece(first: int, step: int, count: int, begun: Any = None) -> Report:
    """Play ``count`` plans: those of the seeds ``first``, ``first + step``, ... ``begun(seed)`` is told."""
    counts: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    for seed in range(first, first + step * count, step):
        if begun is not None:
            begun(seed)
        past = play(make(seed))
        gc.collect()
        counts.update(past.counts)
        if past.finds:
            failed.append((seed, past.finds[0]))
    return counts, failed


def collect_seldom() -> None:
    """Histories make much garbage, and nothing that lasts: it is collected once a plan, and all that is there
    now is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.disable()


def end_with(parent: int) -> None:
    """This process is not to outlive the one that has started it, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's, who ends us
    faulthandler.register(signal.SIGUSR1)  # tells where it stands
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def work(first: int, step: int, end: float, mine: Any, reports: Any, parent: int) -> None:
    """One process: pieces until the time ``end`` (monotonic), then None. ``mine``: [seed, since when]."""
    end_with(parent)
    collect_seldom()

    def begun(seed: int) -> None:
        mine[:] = [seed, time.monotonic()]

    while time.monotonic() < end:
        reports.put(piece(first, step, EACH, begun))
        first += step * EACH
    mine[1] = 0.0
    reports.put(None)


@attrs.define
class Worker:
    """``mine``: the seed of the plan that it plays, and since when (monotonic); 0 before the first."""

    process: Any
    mine: Any
    reports: Any

    def stands(self, longest: float) -> bool:
        since = self.mine[1]
        return bool(since) and time.monotonic() - since > longest

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)
            self.process.join(0.5)
        self.process.kill()
        self.process.join()


class Workers:
    """``broken``: finds that are not to be played again by who wants to go on."""

    def __init__(
        self, jobs: int, start: int, seconds: float, work: Any = work, longest: float = LONGEST_S
    ) -> None:
        self._context = multiprocessing.get_context("fork")
        self._work, self._longest = work, longest
        self._jobs, self._end = jobs, time.monotonic() + seconds
        self.all = [self._started(start + n) for n in range(jobs)]
        self.broken: list[tuple[int, str]] = []

    def _started(self, first: int) -> Worker:
        # A queue each: who is ended while it writes takes the lock of a shared one along.
        mine, reports = self._context.RawArray("d", [first, 0.0]), self._context.Queue()
        given = (first, self._jobs, self._end, mine, reports, os.getpid())
        process = self._context.Process(target=self._work, args=given, daemon=True)
        process.start()
        return Worker(process, mine, reports)

    def reports(self) -> Iterator[Report]:
        """Until all are done; of plans that stand still, and of processes that have died, too."""
        while self.all:
            time.sleep(0.05)
            for worker in list(self.all):
                yield from self._heard(worker)

    def _heard(self, worker: Worker) -> Iterator[Report]:
        try:
            report = worker.reports.get(timeout=LOOK_S / len(self.all))
        except queue.Empty:
            if worker.stands(self._longest):
                yield self._replaced(worker, f"stands still: it takes longer than {self._longest:g} s")
            elif not worker.process.is_alive() and worker.reports.empty():
                yield self._replaced(worker, f"its process has ended: {worker.process.exitcode}")
            return
        if report is None:
            self.all.remove(worker)
            return
        yield report

    def _replaced(self, worker: Worker, find: str) -> Report:
        """What it had played since its last report is not counted; another goes on behind the bad plan."""
        worker.kill()
        seed, begun = int(worker.mine[0]), worker.mine[1]
        self.all.remove(worker)
        if begun and time.monotonic() < self._end:
            self.all.append(self._started(seed + self._jobs))
        self.broken.append((seed, find))
        return Counter(), [(seed, find)]

    def kill(self) -> None:
        for worker in self.all:
            worker.process.kill()
            worker.process.join()


class Stopped(BaseException):
    """Somebody wants no more."""


def _stop(signum: int, frame: Any) -> None:
    raise Stopped


def run(seconds: float, jobs: int, start: int = 0, *, coverage: bool = False) -> int:
    """Play for so long; the first failure is shrunk and printed. Returns the exit status."""
    begun, counts = time.monotonic(), Counter[str]()
    failed: list[tuple[int, str]] = []
    workers = Workers(jobs, start, seconds)
    heard = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for more, bad in workers.reports():
            counts.update(more)
            failed += bad
            for seed, find in bad:
                print(f"seed {seed}: {find}", flush=True)
    except Stopped:
        print("stopped", flush=True)
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
        workers.kill()
        if coverage:
            print(told(counts))
        _tell(time.monotonic() - begun, counts, failed)
    _shrunk([one for one in failed if one not in workers.broken])
    return 1 if failed else 0


def _tell(took: float, counts: Counter[str], failed: list[tuple[int, str]]) -> None:
    done = counts["histories"]
    print(f"{done} histories in {took:.0f} s ({done / took:.0f} a second), {counts['lives']} lives, "
          f"{_sum(counts, 'death')} deaths, {_sum(counts, 'done')} requests done, "
          f"{_sum(counts, 'refused')} refused; {len(failed)} plans failed", flush=True)  # fmt: skip


def _shrunk(failed: list[tuple[int, str]]) -> None:
    """The first of them; not of those that may stand still again."""
    if failed:
        seed, find = min(failed)
        print(f"\nthe first, shrunk (again with: python -m tests.sim --seed {seed} --shrink):", flush=True)
        print(shrink(make(seed)))
        print("FOUND:", find)


def _sum(counts: Counter[str], group: str) -> int:
    return sum(n for name, n in counts.items() if name.startswith(f"{group}: "))
