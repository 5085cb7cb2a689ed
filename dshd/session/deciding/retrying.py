"""`retry`: the newest turn once more, with nothing new said. A decision on a scratch; no IO.

The wish is a `driver/woken` that names the turn (``retry``), so that a crash before the attempt begins
loses nothing. The attempt is a turn of its own, `turn/start {retry_of}`, with the messages of the turn
that it repeats; its first step sends the history as it stands. It unparks nothing: what is parked waits
until somebody says so, and only the attempt runs.

What may be retried is the newest turn, if it failed and its message had entered:

| the turn                              | then                                                     |
|---------------------------------------|----------------------------------------------------------|
| runs                                  | refused: it isn't over                                   |
| is to be gone on with, or retried     | nothing more to write: that is what was asked for        |
| ended completed or blocked            | refused: nothing failed                                  |
| ended before its message entered      | refused: the message waits, and can be woken             |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.errors import Conflict, NotFound
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.receipts import Receipt
from dshd.session.fold.state import State
from dshd.session.fold.turns import EndedTurn
from dshd.session.shown import views

FAILED: Final = frozenset(("error", "interrupted", "budget", "max-tokens", "aborted"))


@attrs.frozen(slots=True)
class Again:
    """``message`` is that of the turn ``of``; the attempt will be ``turn``. ``seq``: of the wish, or of
    the log's end if it was there already."""

    message: str
    of: EndedTurn
    turn: int
    seq: int
    reopened: bool = False


def decide(s: Scratch, message: str | None, by: Mapping[str, Any]) -> Again:
    """Emit the wish to retry the newest turn (``message``: which must be one of that turn).

    Raises `Conflict` with what is in the way, `NotFound` for a message that never was; then nothing was
    emitted.
    """
    turn = _turn(s.state, message)
    reopens = check_open(s.state, by)
    if reopens:
        s.emit("session/reopened", {"by": dict(by)})
    if turn.number != s.state.again:
        s.emit("driver/woken", {"by": dict(by), "retry": turn.number})
    return Again(message or opener(s.state, turn), turn, s.state.next_turn, s.state.seq, reopens)


def opener(state: State, turn: EndedTurn) -> str:
    """The message that a turn was about: the one that opened it, else the first that woke it."""
    members = [state.receipts[id] for id in turn.members]
    said = [r for r in members if r.queue == "next-turn"] or [r for r in members if r.message.wake] or members
    return said[0].message.id


def _turn(state: State, message: str | None) -> EndedTurn:
    name, running = state.name, state.turn
    if message is not None:
        _check_message(state, message)
    if running is not None:
        raise _refused(f"turn {running.number} of {name} runs", f"dshctl wait -s {name}")
    turn = state.turns.get(state.last_turn)
    if turn is None:
        raise _refused(f"{name} has had no turn yet", f"dshctl queue -s {name}")
    if turn.reason not in FAILED:
        raise _refused(
            f"turn {turn.number} of {name}, its last, ended {turn.reason}", f"dshctl log -s {name}"
        )
    if not turn.members:
        raise _refused(
            f"turn {turn.number} of {name} ended before its message entered", f"dshctl queue -s {name}"
        )
    return turn


def _check_message(state: State, id: str) -> None:
    found = state.receipts.get(id)
    if found is None:
        raise NotFound(f'no message "{id}"', hint=f"dshctl queue -s {state.name}", outcome="not-written")
    if found.state not in ("entered", "settled"):
        raise _refused(f"{id} has entered no turn: {_where(found)}", _way_on(state, found))
    if found.turn != state.last_turn:
        later = f"{id} entered turn {found.turn}, and turn {state.last_turn} came after it"
        raise _refused(later, f"dshctl message {id}")


def _where(found: Receipt) -> str:
    return f"it waits in {found.queue}" if found.state in ("pending", "held") else views.where(found)


def _way_on(state: State, found: Receipt) -> str:
    if found.state == "held":
        return f"dshctl wake {found.message.id}"
    parked = found.state == "pending" and state.parked is not None
    return f"dshctl wake -s {state.name}" if parked else f"dshctl why {found.message.id}"


def check_open(state: State, by: Mapping[str, Any]) -> bool:
    """Whether it reopens a closed session, as a send of the same person would."""
    if state.closed and by.get("kind", "user") != "user":
        raise _refused(f"session {state.name} is closed", f"dshctl reopen {state.name}")
    return state.closed


def _refused(why: str, hint: str) -> Conflict:
    return Conflict(f"not retried: {why}.", hint=hint, outcome="not-written")
