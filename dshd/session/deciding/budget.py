"""Whether a turn may go on: limits against what was spent. Decided on a scratch; no IO.

It is asked where a turn would spend more: when one has opened, before anything of it enters, and after
each step that owes another one, in the same decision. A turn that owes nothing has completed, whatever it
spent. `turn_time` is watched besides: it ends the work in the middle of a step (`Stopwatch`, `phases.Work`).

A limit is the session's own setting, else the config's; 0 is none. What a person added (``wake --add``)
raises it: a turn's for the turn that is then retried and what goes on from that, a session's for good, a
day's for that day. No raise goes beyond the policy.

What counts is what the log says, and so the same after any crash. Only the time of the step that runs, and
what other sessions spent today, come from outside (`Now`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dshd.budgets import TABLE, Budget
from dshd.session.fold import spending
from dshd.session.fold.state import State

Json = dict[str, Any]
_HAIR = 1e-9  # floats: what was meant to be equal is


@attrs.frozen(slots=True)
class Now:
    """``worked``: ms of work of the turn that runs, None between turns. ``today``: usage of all sessions
    on this local day."""

    worked: int | None = None
    today: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(slots=True)
class Stop:
    """A budget that was reached; amounts in its unit."""

    what: str
    limit: float
    spent: float
    currency: str | None = None

    def to_json(self) -> Json:
        """As `turn/end` has it."""
        return {"what": self.what, "limit": self.limit, "spent": self.spent, "currency": self.currency}


def stops(state: State, config: Any, now: Now) -> Stop | None:
    """The budget that ends the turn here, the first in the table's order."""
    return next((use for use in used(state, config, now) if use.limit and reached(use)), None)


def reached(use: Stop) -> bool:
    return use.spent >= use.limit - _HAIR


def used(state: State, config: Any, now: Now) -> Iterator[Stop]:
    """Every budget with what was spent of it by now; those of a turn only while one is open, or was."""
    turn = state.turn or state.turns.get(state.last_turn)
    spent = turn.spent if turn is not None else spending.NOTHING
    if now.worked is not None and state.turn is not None:
        spent = attrs.evolve(spent, worked=state.turn.before.worked + now.worked)
    amounts = {
        "turn_steps": spent.steps,
        "turn_time": spent.worked / 1000,
        "turn_tokens": spending.tokens(spent.usage),
        "turn_cost": spent.usage.get("cost", 0.0),
        "turn_errors": spent.errors,
        "session_cost": state.spent.get("cost", 0.0),
        "day_cost": spending.costs(now.today).get(config.currency, 0.0),
    }
    currency = state.spent.get("currency") or config.currency
    for budget in TABLE:
        money = config.currency if budget.of == "day" else currency if budget.kind == "cost" else None
        yield Stop(budget.name, limit(state, config, budget, now), amounts[budget.name], money)


def shown(state: State, config: Any, now: Now) -> list[Json]:
    """Those that have a limit, as `session.show` has them."""
    return [use.to_json() for use in used(state, config, now) if use.limit]


def limit(state: State, config: Any, budget: Budget, now: Now) -> float:
    """The limit that holds now, in the budget's unit; 0: there is none."""
    own = base(state.settings, config, budget)
    if budget.of == "day":
        return day_limit(config, now.today)
    turn = state.turn or state.turns.get(state.last_turn)
    raised = state.raised if budget.of == "session" else (turn.raised if turn is not None else {})
    return own + raised.get(budget.name, 0) if own else 0


def day_limit(config: Any, today: Mapping[str, Any]) -> float:
    """The config's, raised by what was added today; never more than the policy's."""
    own, most = float(config.budget.day_cost), float(config.policy.day_cost)
    mine = own + today.get("raised", 0.0) if own else 0.0
    return min(mine, most) if mine and most else mine or most


def base(settings: Mapping[str, Any], config: Any, budget: Budget) -> float:
    """The limit as it was set, before anybody raised it."""
    mine = settings.get(budget.setting) if budget.setting is not None else None
    found = mine if mine is not None else getattr(config.budget, budget.name)
    return float(found) if budget.kind in ("cost", "time") else int(found)


def limits_cost(settings: Mapping[str, Any], config: Any) -> str | None:
    """The first limit in money that holds for a session with these settings, None if there is none."""
    if config.policy.day_cost:
        return "day_cost"
    priced = (budget for budget in TABLE if budget.kind == "cost")
    return next((budget.name for budget in priced if base(settings, config, budget)), None)


def unpriced(settings: Mapping[str, Any], config: Any, ref: str, price: Any = None) -> str | None:
    """Why a call on this route can't be made: its cost is limited, and it has no price, or one in another
    currency than what it falls back on. ``price``: of the call itself, if one is prepared."""
    if price is not None or limits_cost(settings, config) is None:
        return None
    found: str | None = config.unpriced(ref)
    return found


class Stopwatch:
    """Time of work, with pauses; it begins with one. Times are s of any one clock; ``worked``: before."""

    def __init__(self, worked: float = 0.0) -> None:
        self._worked = worked
        self._since: float | None = None

    def go(self, now: float) -> None:
        if self._since is None:
            self._since = now

    def pause(self, now: float) -> None:
        self._worked, self._since = self.worked(now), None

    @property
    def paused(self) -> bool:
        return self._since is None

    def worked(self, now: float) -> float:
        """s of work up to ``now``."""
        return self._worked + (now - self._since if self._since is not None else 0.0)

    def ends(self, most: float, now: float) -> float:
        """When ``most`` s will have been worked, if it isn't paused before; never, while it is."""
        return float("inf") if self.paused else now + most - self.worked(now)
