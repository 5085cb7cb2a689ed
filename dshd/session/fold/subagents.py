"""What the fold of a session knows of its subagents: sessions that it has others do part of its work in.

`subagent/started` is in the log before the other session exists, and names it: who comes again after a crash
makes it no second time. It ends with exactly one `subagent/ended`, and its result is *told* once: in the
result of a call that waited for it, or else by a message. What it spends counts here, too (`subagent/spent`:
all of it so far, so that what is said twice counts once).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.session.fold import spending
from dshd.session.fold.spending import Usage

KEPT: Final = 50  # ended ones that the fold remembers; the log has all


@attrs.frozen(slots=True)
class AgentEnd:
    """``outcome``: as its turn ended, or failed (it could not be made); ``text``: its answer, or why."""

    at: int
    outcome: str
    text: str


@attrs.frozen(slots=True)
class Subagent:
    """``id``: of its session; ``call``: the call that started it; ``spent``: usage that has been counted."""

    id: str
    turn: int
    step: int
    call: str
    prompt: str
    context: str
    at: int
    spent: Usage = attrs.field(factory=dict)
    end: AgentEnd | None = None
    told: bool = False

    @property
    def runs(self) -> bool:
        return self.end is None


Subagents = Mapping[str, Subagent]


def without_old(agents: Subagents) -> dict[str, Subagent]:
    """Those that run or are to be told of, and the newest of the others."""
    over = [id for id, one in agents.items() if one.told]
    old = set(over[: max(0, len(over) - KEPT)])
    return {id: one for id, one in agents.items() if id not in old}


def more(spent: Usage, before: Usage) -> dict[str, Any]:
    """What was spent since ``before``."""
    numbers = {
        name: value - before.get(name, 0)
        for name, value in spent.items()
        if type(value) in (int, float) and name != "cost" and value > before.get(name, 0)
    }
    known = spending.costs(before)
    for currency, cost in spending.costs(spent).items():
        if cost > known.get(currency, 0.0):
            return {**numbers, "cost": cost - known.get(currency, 0.0), "currency": currency}
    return numbers
