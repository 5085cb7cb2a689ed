"""`wake --add`: the limit that stopped a session is raised, its turn retried, then the queue goes on.

One event says it all, `driver/woken {add, retry?}`, so that a crash in between loses nothing: `add` is
``{budget: by how much}``. Only a person may; nobody else gets here. What else is asked to be added besides
that what stopped it is added to the same turn's other budgets.

Refused, and nothing is changed:

| what                                   | then                                               |
|----------------------------------------|----------------------------------------------------|
| a turn runs                            | nothing stopped it; `set` raises what it may spend |
| the last turn ended otherwise          | no budget stopped it                               |
| what stopped it is not among the added | another budget did                                 |
| more than that is spent already        | it would stop again at once                        |
| the policy allows no more              | denied                                             |

A decision on a scratch; no IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dshd import budgets
from dshd.budgets import KINDS, NAMED
from dshd.errors import Conflict, Denied, Invalid
from dshd.session.deciding import budget, retrying
from dshd.session.deciding.budget import Now, Stop
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.state import State
from dshd.wire import did_you_mean

By = Mapping[str, Any]
_WHOLE: Final = ("steps", "tokens", "errors")


def check(add: Mapping[str, float]) -> None:
    """What no budget takes. Raises `Invalid`."""
    for kind, amount in add.items():
        if kind not in KINDS:
            raise Invalid(f'there is no budget of "{kind}"{did_you_mean(kind, KINDS)} @ $.add',
                          outcome="not-written")  # fmt: skip
        if amount <= 0 or (kind in _WHOLE and amount != int(amount)):
            raise Invalid(f"{amount:g} {kind} can't be added @ $.add.{kind}", outcome="not-written")


def decide(s: Scratch, add: Mapping[str, float], by: By, config: Any, now: Now) -> None:
    """Emit the raise. ``add``: ``{kind: amount}`` (see `budgets`). Raises `Conflict`, `Denied`."""
    state = s.state
    stop = _stopped(state, config, now, add)
    raised = {stop.what: add[NAMED[stop.what].kind]}
    _check_enough(state, config, now, stop, raised[stop.what])
    retry = _to_retry(state)
    for kind, amount in add.items():
        if kind != NAMED[stop.what].kind:
            raised[_of_turn(state, config, now, kind, retry)] = amount
    if retrying.check_open(state, by):
        s.emit("session/reopened", {"by": dict(by)})
    again = {} if retry is None else {"retry": retry}
    s.emit(
        "driver/woken",
        {"by": dict(by), "add": {name: _whole(name, n) for name, n in raised.items()}, **again},
    )


def check_wake(state: State, config: Any, now: Now) -> None:
    """Raises `Conflict` if nothing could run here: what all turns share is used up."""
    stop = all_stopped(state, config, now)
    if stop is not None:
        raise _refused(f"not woken: {budgets.used(stop.to_json())} is used up", _hint(state, stop))


def all_stopped(state: State, config: Any, now: Now) -> Stop | None:
    """The session's or the day's budget, if it is used up."""
    uses = (use for use in budget.used(state, config, now) if NAMED[use.what].of != "turn")
    return next((use for use in uses if use.limit and budget.reached(use)), None)


def _whole(name: str, amount: float) -> float:
    return int(amount) if NAMED[name].kind in _WHOLE else amount


def _stopped(state: State, config: Any, now: Now, add: Mapping[str, float]) -> Stop:
    """The budget that ended the last turn, as it is now."""
    if state.turn is not None:
        raise _refused(
            f"not raised: turn {state.turn.number} of {state.name} runs", f"dshctl show {state.name}"
        )
    last = state.turns.get(state.last_turn)
    if last is None or last.reason != "budget" or last.cause not in NAMED:
        hint = f"dshctl wake -s {state.name}" if state.parked is not None else f"dshctl show {state.name}"
        raise _refused(f"not raised: no budget stopped {state.name}", hint)
    stop = next(use for use in budget.used(state, config, now) if use.what == last.cause)
    if not stop.limit:
        raise _refused(
            f"not raised: {state.name} has no limit there any more", f"dshctl retry -s {state.name}"
        )
    if NAMED[stop.what].kind not in add:
        others = " and ".join(add)
        what = f"not raised: {state.name} stopped at {budgets.limit(stop.to_json())}, not at its {others}"
        raise _refused(what, _hint(state, stop))
    return stop


def _check_enough(state: State, config: Any, now: Now, stop: Stop, amount: float) -> None:
    most = float(config.policy.day_cost)
    if stop.what == "day_cost" and most and stop.limit + amount > most + 1e-9:
        said = budgets.price(most, stop.currency)
        raise Denied(f"not raised: the policy allows no more than {said} a day.", outcome="not-written")
    if stop.spent >= stop.limit + amount - 1e-9:
        kind = NAMED[stop.what].kind
        more = budgets.shown(kind, amount, stop.currency)
        raise _refused(f"not raised: {budgets.used(stop.to_json())} is used up, and {more} more would not do",
                       _hint(state, stop))  # fmt: skip


def _to_retry(state: State) -> int | None:
    """The turn that was stopped, if anything of it had entered."""
    last = state.turns[state.last_turn]
    return last.number if last.members else None


def _of_turn(state: State, config: Any, now: Now, kind: str, retry: int | None) -> str:
    name = f"turn_{kind}"
    if retry is None:
        raise _refused(f"not raised: there is no turn of {state.name} to add {kind} to", "")
    if not budget.limit(state, config, NAMED[name], now):
        raise _refused(f"not raised: a turn of {state.name} has no limit on its {kind}", "")
    return name


def _hint(state: State, stop: Stop) -> str:
    return f"dshctl wake -s {state.name} --add {budgets.enough(stop.to_json())}"


def _refused(why: str, hint: str) -> Conflict:
    return Conflict(f"{why}.", hint=hint, outcome="not-written")
