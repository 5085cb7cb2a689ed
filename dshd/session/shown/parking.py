"""Whether a parked session waits for a person: the one answer for `ls`, `status` and who closes a run.

Parked is a fact of the log: nothing that is queued runs. It only matters to a person when something is
stopped by it:

| what                                                              | waits for a person |
|-------------------------------------------------------------------|--------------------|
| messages wait, other than held ones                               | yes                |
| a budget or a crash loop stopped its last turn                    | yes: it can go on  |
| an error, an abort or an import, and nothing waits                | no                 |
| closed                                                            | no                 |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dshd import budgets
from dshd.session.fold.state import State
from dshd.session.fold.turns import EndedTurn

_FAILED: Final = ("error", "interrupted")
_STOPPED: Final = {"budget": "budget", "crash-loop": "interrupted"}  # {what parked it: how its turn ended}


def waits_for_person(state: State) -> bool:
    if state.parked is None or state.closed:
        return False
    return state.pending > len(state.queues["held"]) or is_cut_off(state)


def is_cut_off(state: State) -> bool:
    """Parked by what stopped its last turn, and not by what came of that; nobody has dealt with it yet."""
    last = state.turns.get(state.last_turn)
    by = state.parked.by if state.parked is not None else ""
    return last is not None and _STOPPED.get(by) == last.reason


def failed(state: State) -> EndedTurn | None:
    """The last turn, if it came to nothing and nothing goes on by itself: nobody may have been there to
    be told. Dealt with by whatever comes after it, or by closing the session."""
    last = state.turns.get(state.last_turn)
    if last is None or last.reason not in _FAILED or not last.members:
        return None
    goes_on = state.turn is not None or state.runnable or state.again is not None
    return None if goes_on or state.closed or waits_for_person(state) else last


def parked(state: State) -> dict[str, Any] | None:
    if state.parked is None:
        return None
    p = state.parked
    waiting = state.pending - len(state.queues["held"])
    return {"by": p.by, "what": p.what, "at": p.at, "count": waiting, "budget": stop(p.budget)}


def stop(budget: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A limit that was reached; ``add``: what to raise it by (``dshctl wake --add``)."""
    return None if budget is None else {**budget, "add": budgets.enough(budget)}
