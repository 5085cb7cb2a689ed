"""How turns and messages end: results, and what a program that waits for them exits with."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dshd.session.fold.receipts import Receipt
from dshd.session.fold.state import State
from dshd.session.fold.turns import EndedTurn
from dshd.session.shown.parking import parked, stop
from dshd.session.shown.questions import approvals

OUTCOME_EXITS: Final = {
    "completed": 0, "error": 10, "blocked": 11, "rejected": 11, "aborted": 12, "max-tokens": 13,
    "interrupted": 14, "budget": 15, "removed": 17, "cleared": 17, "expired": 17, "superseded": 17,
}  # fmt: skip
TRY_LATER: Final = frozenset(
    ("QUOTA", "STORAGE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "STREAM_CLOSED", "EMPTY_RESPONSE")
)
_USAGE: Final = ("input", "cached", "output", "reasoning", "cost", "currency")


def newest_answer(state: State, n: int) -> EndedTurn | None:
    """The ``n``-th newest turn (from 1) that has an answer."""
    turns = (state.turns.get(number) for number in range(state.last_turn, 0, -1))
    answered = (turn for turn in turns if turn is not None and turn.answer)
    return next(itertools.islice(answered, n - 1, None), None)


def asks(state: State, message: str | None, asked: list[dict[str, Any]], waited_ms: int) -> dict[str, Any]:
    """The result of what can't end before a person has answered ``asked``, which may be a subagent's."""
    found = result(state, message=message, turn=None, exit=16, waited_ms=waited_ms)
    return {**found, "approvals": asked}


def result(state: State, *, message: str | None, turn: EndedTurn | None, exit: int | None = None,
           outcome: str | None = None, waited_ms: int = 0, by: Any = None) -> dict[str, Any]:  # fmt: skip
    """How a message (or, without one, the session's newest turn) ended. ``by``: who ended it before a
    turn could."""
    word = outcome or (turn.reason if turn else None)
    code = exit if exit is not None else exit_of(word, turn.error if turn else None)
    error = turn.error if turn else None
    usage = turn.usage if turn else {}
    return {
        "type": "result",
        "exit": code,
        "message": message,
        "session": state.id,
        "name": state.name,
        "turn": turn.number if turn else None,
        "newest": turn is None or turn.number == state.last_turn,
        "outcome": word,
        "text": turn.answer if turn else None,
        "model": (turn.model if turn else None) or state.settings.get("model"),
        "rehearsal": state.settings.get("adapter") == "rehearsal",
        "steps": turn.steps if turn else None,
        "tools": turn.tools if turn else None,
        "started_at": turn.started_at if turn else None,
        "ended_at": turn.ended_at if turn else None,
        "waited_ms": waited_ms,
        "usage": {k: usage.get(k) for k in _USAGE},
        "budget": stop(turn.budget) if turn else None,
        "parked": parked(state) if code == 18 and not _held(state, message) else None,
        "error": dict(error) if error else None,
        "retry_at": (error or {}).get("retry_at"),
        "approvals": approvals(state) if code == 16 else [],
        "unknown": [dict(u) for u in turn.unknown] if turn else [],
        "by": dict(by) if isinstance(by, Mapping) else None,
    }


def _held(state: State, message: str | None) -> bool:
    """Whether it waits for a person by itself, whatever else does."""
    return message is not None and state.receipts[message].queue == "held"


def exit_of(outcome: str | None, error: Mapping[str, Any] | None) -> int:
    """The exit code that an outcome has; an error that may pass is 75."""
    if outcome == "error" and error and error.get("code") in TRY_LATER:
        return 75
    return OUTCOME_EXITS.get(outcome or "", 0 if outcome is None else 1)


def settled(state: State, id: str, waited_ms: int = 0) -> dict[str, Any] | None:
    """The result of a message that has ended for good, else None. A turn that the next start goes
    on with, or that is about to be retried, has not ended for those who wait."""
    found = state.receipts[id]
    turn = state.turns.get(found.turn) if found.turn is not None else None
    if found.state == "settled" and turn is not None:
        if state.again == turn.number:
            return None
        return result(state, message=id, turn=turn, outcome=found.outcome, waited_ms=waited_ms)
    if found.ended:
        by = found.way[-1].by if found.way else None
        return result(state, message=id, turn=None, outcome=found.state, waited_ms=waited_ms, by=by)
    return None


def not_ended(state: State, id: str, below: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The result of a message that has not ended: 75, for it will by itself, or 18 where only a person can
    move it on. ``below``: what its subagents ask."""
    found = state.receipts[id]
    waits = found.state in ("pending", "held")
    code = 18 if waits and not moves_on(state, found) else 75
    if (state.asks or below) and (not waits or code == 75):
        return asks(state, id, [*approvals(state), *below], 0)
    wait = state.turn.wait if state.turn is not None else None
    until = wait.until if wait is not None and wait.what == "provider" else None
    return {**result(state, message=id, turn=None, exit=code), "retry_at": until}


def moves_on(state: State, found: Receipt) -> bool:
    """Whether a message that waits comes to its end if nobody does anything."""
    if found.queue == "held":
        return found.message.due is not None
    works = state.turn is not None or state.runnable
    return works and not state.is_parked(found.message.id)
