"""What a message waits for: the facts. A table of reasons, the first that holds; `reasons` says it.

Pure functions of the state and of what the driver does just now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd import budgets, reasons
from dshd.errors import DshError
from dshd.session.fold.receipts import Receipt
from dshd.session.fold.state import State
from dshd.session.shown import holding
from dshd.session.shown.activities import IDLE, Activity
from dshd.session.shown.views import position

Json = dict[str, Any]


@attrs.frozen(slots=True)
class Case:
    """``broken``: the session's error, if it can't be driven; ``draining``: the daemon is stopping;
    ``awaited``: the subagents that its turn waits for, and ``below``: what those ask a person."""

    state: State
    found: Receipt
    activity: Activity
    broken: DshError | None = None
    broken_word: str | None = None
    draining: bool = False
    awaited: Sequence[str] = ()
    below: Sequence[Json] = ()

    @property
    def ahead(self) -> int:
        return (position(self.state, self.found) or 1) - 1

    @property
    def stop(self) -> Mapping[str, Any]:
        return self.found.way[-1]


def why(
    state: State, id: str, activity: Activity = IDLE, *, now: int, broken: DshError | None = None,
    broken_word: str | None = None, draining: bool = False, awaited: Sequence[str] = (),
    below: Sequence[Json] = (),
) -> Json:  # fmt: skip
    """The ``why`` of the protocol. Times are Unix ms; ``sentence`` tells them in UTC."""
    case = Case(state, state.receipts[id], activity, broken, broken_word, draining, awaited, below)
    reason = next(word for word, holds in _TABLE if holds(case))
    facts = {**_blank(case), "reason": reason, **_FACTS[reason](case)}
    return {**facts, "sentence": reasons.sentence(facts, reasons.utc(now))}


def _blank(case: Case) -> Json:
    m = case.found.message
    return {
        "type": "why", "message": m.id, "session": case.state.id, "name": case.state.name,
        "state": case.found.state, "reason": "", "sentence": "", "hint": None, "label": None,
        "at": None, "until_at": None, "expires_at": m.expires, "by": None, "what": None, "detail": None,
        "turn": None, "outcome": None, "doing": None, "since_at": None, "ahead": case.ahead,
    }  # fmt: skip


# --- facts of each reason ------------------------------------------------------------------------


def _entered(case: Case) -> Json:
    found = case.found
    at = next((stop["at"] for stop in reversed(found.way) if stop["state"] == "entered"), None)
    hint = f"dshctl message {found.message.id}" if found.ended else None
    return {"turn": found.turn, "at": at, "outcome": found.outcome, "hint": hint}


def _ended(case: Case) -> Json:
    hint = f"dshctl message {case.found.message.id}"
    return {"at": case.stop["at"], "by": case.stop.get("by"), "outcome": case.found.state, "hint": hint}


def _broken(case: Case) -> Json:
    assert case.broken is not None
    return {"what": case.broken_word, "detail": case.broken.message, "hint": case.broken.hint or None}


def _due(case: Case) -> Json:
    m = case.found.message
    return {"until_at": m.due, "by": case.stop.get("by"), **_sooner(f"dshctl wake {m.id}")}


def _sooner(command: str) -> Json:
    return {"label": "sooner", "hint": command}


def _held(case: Case) -> Json:
    by, what = case.stop.get("by") or {}, holding.cause(case.found)
    return {"at": case.stop["at"], "by": by, "what": what, "hint": f"dshctl wake {case.found.message.id}"}


def _parked(case: Case) -> Json:
    parked = case.state.parked
    assert parked is not None
    return {
        "at": parked.at, "by": parked.who, "what": parked.by, "detail": parked.what,
        "hint": f"dshctl wake -s {case.state.name}", **_limit(case, parked.budget),
    }  # fmt: skip


def _limit(case: Case, budget: Mapping[str, Any] | None) -> Json:
    if budget is None:
        return {}
    add = f"dshctl wake -s {case.state.name} --add {budgets.enough(budget)}"
    return {"detail": budgets.limit(budget), "hint": add}


def _turn(case: Case) -> Json:
    turn = case.state.turn
    assert turn is not None
    return {"turn": turn.number, "at": turn.started_at, "doing": case.activity.doing,
            "since_at": case.activity.since}  # fmt: skip


def _behind(case: Case) -> Json:
    return {**_turn(case), **_sooner(f"dshctl queue promote {case.found.message.id}")}


def _provider(case: Case) -> Json:
    wait = case.state.turn.wait if case.state.turn is not None else None
    now = _sooner(f"dshctl wake -s {case.state.name}") if wait is not None else {}
    what = "named" if wait is not None and wait.named else None
    detail = reasons.provider(wait.code) if wait is not None else None
    return {**_turn(case), "until_at": case.activity.until, "what": what, "detail": detail, **now}


def _inside(case: Case) -> Json:
    """It is in the turn that waits."""
    return {**_provider(case), **{k: v for k, v in _entered(case).items() if k != "hint"}}


def _place(case: Case) -> Json:
    return {"doing": case.activity.doing, "since_at": case.activity.since}


def _waits(case: Case) -> Json:
    return {"hint": f"dshctl wake -s {case.state.name}"}


def _approval(case: Case) -> Json:
    asked, turn = case.state.asks[0], case.state.turn
    return {
        "what": asked.id, "detail": asked.what, "at": asked.at, "until_at": asked.expires,
        "turn": turn.number if turn is not None else None, "hint": f"dshctl allow {asked.id}",
    }  # fmt: skip


def _agent_asks(case: Case) -> Json:
    asked = case.below[0]
    return {
        "what": asked["id"], "detail": asked["what"], "by": {"kind": "agent", "via": asked["session"]},
        "at": asked["asked_at"], "until_at": asked["expires_at"], "turn": case.found.turn,
        "hint": f"dshctl allow {asked['id']}",
    }  # fmt: skip


def _agents(case: Case) -> Json:
    entered = {k: v for k, v in _entered(case).items() if k != "hint"}
    return {**entered, "what": ", ".join(case.awaited), "hint": f"dshctl agents -s {case.state.name}"}


_FACTS: Final[dict[str, Callable[[Case], Json]]] = {
    "entered": _entered, "claimed": lambda case: {"turn": case.found.turn, "at": case.stop["at"]},
    "ended": _ended, "broken": _broken,
    "closed": lambda case: {"hint": f"dshctl reopen {case.state.name}"},
    "due": _due, "held": _held, "parked": _parked, "stopping": lambda case: {}, "disk": _turn,
    "place": _place, "inside": _inside, "provider": _provider, "aborting": _turn, "joins": _turn,
    "behind": _behind,
    "resume": lambda case: {"turn": case.state.again},
    "maintenance": lambda case: {"doing": case.activity.doing, "since_at": case.activity.since},
    "asks": _approval, "agent-asks": _agent_asks, "agents": _agents,
    "rides": lambda case: {},
    "no-wake": _waits, "next": lambda case: {},
}  # fmt: skip


# --- which reason --------------------------------------------------------------------------------


def _runs(case: Case) -> bool:
    return case.state.turn is not None


def _is_inside(case: Case) -> bool:
    turn = case.state.turn
    return turn is not None and case.found.state == "entered" and case.found.turn == turn.number


def _asks(case: Case) -> bool:
    """Whether it can't move on before a person has answered something."""
    return bool(case.state.asks) and _needs_the_turn(case)


def _needs_the_turn(case: Case) -> bool:
    """Whether it can't come to its end before the turn that runs goes on."""
    found, state = case.found, case.state
    if case.broken is not None:
        return False
    waits = found.state == "pending" and not state.is_parked(found.message.id)
    return waits or found.state in ("claimed", "entered")


_TABLE: Final[tuple[tuple[str, Callable[[Case], bool]], ...]] = (
    ("asks", _asks),
    ("agent-asks", lambda c: bool(c.below) and _needs_the_turn(c)),
    ("agents", lambda c: _is_inside(c) and bool(c.awaited)),
    ("inside", lambda c: _is_inside(c) and c.activity.waits == "provider"),
    ("entered", lambda c: c.found.state in ("entered", "settled")),
    ("claimed", lambda c: c.found.state == "claimed"),
    ("ended", lambda c: c.found.ended),
    ("broken", lambda c: c.broken is not None),
    ("closed", lambda c: c.state.closed),
    ("due", lambda c: c.found.queue == "held" and c.found.message.due is not None),
    ("held", lambda c: c.found.queue == "held"),
    ("parked", lambda c: c.state.is_parked(c.found.message.id)),
    ("disk", lambda c: _runs(c) and c.activity.waits == "disk full"),
    ("place", lambda c: c.activity.waits == "place"),
    ("provider", lambda c: _runs(c) and c.activity.waits == "provider"),
    ("aborting", lambda c: _runs(c) and c.state.turn is not None and c.state.turn.abort is not None),
    ("joins", lambda c: _runs(c) and c.found.queue == "next-step"),
    ("behind", _runs),
    ("rides", lambda c: not c.state.runnable and c.found.queue == "next-step"),
    ("no-wake", lambda c: not c.state.runnable),
    ("stopping", lambda c: c.draining),
    ("maintenance", lambda c: c.state.compaction is not None),
    ("resume", lambda c: c.state.again is not None),
    ("next", lambda c: True),
)
