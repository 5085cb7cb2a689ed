"""The fold's part of spending: what events add to a turn, a session and the last day, and who counts on.

A turn that goes on from another takes over what that used and by how much it was raised, for its budgets;
not for what it is said to have used itself. Called by `applied` only, for events that it has looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshd.log.codec import Event
from dshd.session.fold import spending
from dshd.session.fold.state import State
from dshd.session.fold.turns import EndedTurn, OpenTurn
from dshd.session.fold.values import evolve


def spend(state: State, turn: OpenTurn, event: Event) -> OpenTurn:
    """The turn with the usage that an event reports: of an answer, or of attempts that gave none."""
    usage = count(state, event)
    return evolve(turn, usage=spending.add(turn.usage, usage)) if usage else turn


def count(state: State, event: Event) -> Mapping[str, Any]:
    """Add the usage that an event reports to the session's and the day's; what it reports."""
    usage: Mapping[str, Any] = event.data.get("usage") or {}
    if usage:
        state.spent = spending.add(state.spent, usage)
        state.lately = spending.noted(state.lately, event.time, usage)
    return usage


def raised(state: State, event: Event, add: Mapping[str, float]) -> None:
    """``add``: ``{budget: by how much}``. A day's is of that day, a turn's of the one to be retried."""
    if "day_cost" in add:
        state.lately = spending.noted(state.lately, event.time, {"raised": add["day_cost"]})
    if "session_cost" in add:
        state.raised = _sum(state.raised, {"session_cost": add["session_cost"]})
    if state.retry is not None:
        state.adding = {name: by for name, by in add.items() if name.startswith("turn_")}


def take_over(state: State, turn: OpenTurn, ended: EndedTurn) -> OpenTurn:
    """What goes on by itself, or with raised budgets, counts on from where the attempt before it was;
    what a person wants once more counts anew."""
    goes_on = state.resume == ended.number
    if not goes_on and state.adding is None:
        return turn
    more: Mapping[str, Any] = {} if goes_on else state.adding or {}
    return evolve(turn, before=ended.spent, errors=ended.spent.errors, raised=_sum(ended.raised, more))


def _sum(total: Mapping[str, float], more: Mapping[str, float]) -> Mapping[str, float]:
    return {**total, **{name: total.get(name, 0) + by for name, by in more.items()}}
