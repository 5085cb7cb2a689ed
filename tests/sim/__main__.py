"""Running the simulator by hand.

python -m tests.sim --minutes 10 --jobs 2     play histories; the first failure is shrunk and printed
python -m tests.sim --minutes 1 --coverage    ... and what they have reached
python -m tests.sim --seed 536                play one again, with a trace
python -m tests.sim --bugs                    after how many histories each planted bug is found
"""

from __future__ import annotations

import argparse
import sys

from tests.sim import bugs
from tests.sim.plan import make
from tests.sim.play import play
from tests.sim.run import run
from tests.sim.shrink import shrink


def main() -> int:
    args = _arguments()
    if args.bugs:
        return bugs.report(args.bug, args.most)
    if args.seed is not None:
        return replay(args.seed, args.branch, shrunk=args.shrink)
    return run(args.minutes * 60, args.jobs, args.start, coverage=args.coverage)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one, with a trace")
    parser.add_argument("--branch", type=int, help="with --seed: only this branch of it, by its number")
    parser.add_argument("--shrink", action="store_true", help="with --seed: the smallest that fails so")
    parser.add_argument("--coverage", action="store_true", help="tell what was reached, and what never")
    parser.add_argument("--bugs", action="store_true")
    parser.add_argument("--bug", help="with --bugs: only this one")
    parser.add_argument("--most", type=int, default=20_000, help="with --bugs: give up after so many")
    return parser.parse_args()


def replay(seed: int, branch: int | None, *, shrunk: bool = False) -> int:
    plan = make(seed)
    if shrunk:
        plan = shrink(plan)
    print(plan)
    past = play(plan, print, branch=None if shrunk else branch)
    for find in past.finds:
        print("FOUND:", find)
    return 1 if past.finds else 0


if __name__ == "__main__":
    sys.exit(main())
