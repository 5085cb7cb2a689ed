"""The smallest plan that still fails: actions, answers and verdicts are taken away while it does.

What fails in a branch keeps just that one. With every action that goes, the disk changes less often before
it; so the same death is tried at each of the `NEAR` changes before, as that many branches.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import attrs

from tests.sim.plan import Branch, Plan
from tests.sim.play import play

SIMPLE: dict[str, tuple[Any, ...]] = {
    "pause": (-1, 0, 1.1),
    "calls": (0, 1),
    "survivor": ("nothing",),
    "key": (None,),
    "as_": (None,),
    "only": (None,),
    "first": (False,),
    "no_wake": (False,),
    "other": (False,),
    "gives_up": (None,),
    "times": (1,),
    "verb": ("followup",),
    "keep": (False,),
    "text": (False,),
    "run": (False,),
}  # what is tried in the place of something else


NEAR = 40
BRANCH = re.compile(r"branch (\d+) at (\d+): ")


def fails(plan: Plan) -> tuple[str, Plan] | None:
    """The first find in this plan's histories, and the plan without the branches in which it isn't."""
    finds = play(plan).finds
    if not finds:
        return None
    at = BRANCH.match(finds[0])
    branches = (attrs.evolve(plan.branches[int(at[1])], call=int(at[2])),) if at else ()
    return BRANCH.sub("", finds[0]), attrs.evolve(plan, branches=branches, early=False)


def _near(plan: Plan) -> Plan:
    """With its one branch, if it has one, at all the places where it may be now."""
    near = (b for branch in plan.branches for b in _earlier(branch))
    return attrs.evolve(plan, branches=tuple(sorted(near, key=lambda b: b.call)))


def _earlier(branch: Branch) -> list[Branch]:
    return [attrs.evolve(branch, call=branch.call - n) for n in range(min(NEAR, branch.call))]


def kind_of(find: str) -> str:
    """The sort of failure, so that shrinking does not slip from one to another."""
    words = (w for w in find.split() if not any(c.isdigit() or c in "'[({<" for c in w))
    return " ".join(w for w in words if not w.startswith("sa"))


def shrink(plan: Plan, seconds: float = 60.0) -> Plan:
    """A plan of the same failure from which nothing more can be taken away (or time is up)."""
    end, failed = time.monotonic() + seconds, fails(plan)
    if failed is None:
        return plan
    (find, plan), smaller = failed, True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            if time.monotonic() > end:
                return plan
            again = fails(_near(candidate))
            if again is not None and kind_of(again[0]) == kind_of(find):
                plan, smaller = again[1], True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for name in ("actions", "answers", "verdicts"):
        items = getattr(plan, name)
        for rest in _without_some(items):
            changed: dict[str, Any] = {name: rest}
            yield attrs.evolve(plan, **changed)
    for branch in plan.branches:
        for rest in _without_some(branch.actions):
            yield attrs.evolve(plan, branches=(attrs.evolve(branch, actions=rest),))
    if plan.max_pending < 1000:
        yield attrs.evolve(plan, max_pending=1000)
    if plan.go_on:
        yield attrs.evolve(plan, go_on=False)
    yield from _simpler_answers(plan)
    yield from _simpler(plan)


def _without_some(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    size = len(items)
    while size:
        for at in range(0, len(items), size):
            yield items[:at] + items[at + size :]
        size //= 2


def _simpler(plan: Plan) -> Iterator[Plan]:
    for i, action in enumerate(plan.actions):
        for name, values in SIMPLE.items():
            now = action.pause if name == "pause" else action.args.get(name)
            if name != "pause" and name not in action.args:
                continue
            for value in values[: values.index(now) if now in values else None]:
                other = (
                    attrs.evolve(action, pause=value)
                    if name == "pause"
                    else attrs.evolve(action, args={**action.args, name: value})
                )
                yield attrs.evolve(plan, actions=(*plan.actions[:i], other, *plan.actions[i + 1 :]))


def _simpler_answers(plan: Plan) -> Iterator[Plan]:
    for i, answer in enumerate(plan.answers):
        for other in _simpler_answer(answer):
            yield attrs.evolve(plan, answers=(*plan.answers[:i], other, *plan.answers[i + 1 :]))


def _simpler_answer(answer: Any) -> Iterator[Any]:
    if answer != ("say", "yes", "stop"):
        yield ("say", "yes", "stop")
    if answer[0] == "slow":
        yield answer[2]
    if answer[0] == "call" and len(answer[1]) > 1:
        yield ("call", answer[1][:1], answer[2])
