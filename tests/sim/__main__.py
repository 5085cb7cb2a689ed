"""Running the simulator by hand.

python -m tests.sim --minutes 10 --jobs 2     play histories; the first failure is shrunk and printed
python -m tests.sim --seed 536                play one again, with a trace
python -m tests.sim --bugs                    after how many histories each planted bug is found
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from typing import Any

from tests.sim import bugs
from tests.sim.plan import make
from tests.sim.play import play
from tests.sim.shrink import shrink

EACH = 200  # histories in one piece of work


def main() -> int:
    args = _arguments()
    if args.bugs:
        return bugs.report(args.bug, args.most)
    if args.seed is not None:
        return replay(args.seed, shrunk=args.shrink)
    return run(args.minutes * 60, args.jobs, args.start)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one, with a trace")
    parser.add_argument("--shrink", action="store_true", help="with --seed: the smallest that fails so")
    parser.add_argument("--bugs", action="store_true")
    parser.add_argument("--bug", help="with --bugs: only this one")
    parser.add_argument("--most", type=int, default=20_000, help="with --bugs: give up after so many")
    return parser.parse_args()


def replay(seed: int, *, shrunk: bool = False) -> int:
    plan = make(seed)
    if shrunk:
        plan = shrink(plan)
    print(plan)
    past = play(plan, print)
    for find in past.finds:
        print("FOUND:", find)
    return 1 if past.finds else 0


def piece(start: int, count: int = EACH) -> tuple[int, Counter[str], list[tuple[int, str]]]:
    """Play ``count`` histories from seed ``start``: how many, of what, and those that failed."""
    counts: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    for seed in range(start, start + count):
        past = play(make(seed))
        counts.update(past.counts)
        if past.finds:
            failed.append((seed, past.finds[0]))
    return count, counts, failed


def run(seconds: float, jobs: int, start: int = 0) -> int:
    begun, done, counts, failed = time.monotonic(), 0, Counter[str](), []
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for count, more, bad in pool.imap_unordered(piece, _starts(start, begun + seconds, jobs)):
            done, failed = done + count, failed + bad
            counts.update(more)
            for seed, find in bad:
                print(f"seed {seed}: {find}", flush=True)
    took = time.monotonic() - begun
    print(f"{done} histories in {took:.0f} s ({done / took:.0f} a second), {len(failed)} failed")
    for what, n in sorted(counts.items()):
        print(f"{n:10}  {what}")
    if failed:
        print(f"\nthe first, shrunk (again with: python -m tests.sim --seed {failed[0][0]} --shrink):")
        print(shrink(make(failed[0][0])))
        print("FOUND:", failed[0][1])
    return 1 if failed else 0


def _starts(start: int, end: float, jobs: int) -> Any:
    """First seeds of the pieces; no more than a few ahead, so that it ends in time."""
    n = 0
    while time.monotonic() < end:
        yield start + n * EACH
        n += 1


if __name__ == "__main__":
    sys.exit(main())
