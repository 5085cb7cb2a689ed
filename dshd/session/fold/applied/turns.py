"""Events that concern a turn as a whole: its start, an abort, its end and what comes of that."""

from __future__ import annotations

from typing import Final

from dshd.log.codec import Event
from dshd.session.fold import approvals, counting
from dshd.session.fold.applied.shared import Appliers, aborted, note_removal, open_turn
from dshd.session.fold.events import Message
from dshd.session.fold.schedules import became
from dshd.session.fold.state import Parked, State
from dshd.session.fold.turns import Abort, OpenTurn, end
from dshd.session.fold.values import evolve

CRASH_LOOP: Final = 3


def _turn_start(state: State, event: Event) -> None:
    if state.turn is not None:
        raise KeyError(f"turn {state.turn.number} is still open")
    number, retry_of = event.data["turn"], event.data.get("retry_of")
    state.turn = OpenTurn(number, event.time, retry_of=retry_of, seq=event.seq)
    if retry_of is not None and (ended := state.turns.get(retry_of)) is not None:
        for id in ended.members:
            _attempt_again(state, event, id, number)
        turn = evolve(state.turn, members=ended.members, then_park=ended.then_park)
        state.turn = counting.take_over(state, turn, ended)
    state.last_turn, state.woken, state.resume, state.retry = number, False, None, None
    state.adding, state.lost_turns = None, 0


def _attempt_again(state: State, event: Event, id: str, turn: int) -> None:
    receipt = state.receipts[id]
    became(state, receipt.message, None)
    state.receipts[id] = receipt.to(
        "entered", at=event.time, seq=event.seq, turn=turn, step=receipt.step, outcome=None,
        attempts=(*receipt.attempts, turn),
    )  # fmt: skip


def _abort_requested(state: State, event: Event) -> None:
    data = event.data
    if state.turn is None or state.turn.number != data["turn"]:
        return
    aborted(state, Abort(data.get("cause", "user"), data["disposition"], data.get("by"), data.get("reason")))
    if data["disposition"] != "continue":
        state.parked = Parked("abort", data.get("reason"), event.time, event.seq, data.get("by"))


def _turn_end(state: State, event: Event) -> None:
    turn, data = open_turn(state), event.data
    reason = data["reason"]
    for _, message in turn.claimed:
        _never_entered(state, event, turn, message)
    if turn.claimed:
        cleared = turn.abort is not None and turn.abort.disposition == "clear"
        by = turn.abort.by if turn.abort else None
        note_removal(state, event, "clear" if cleared else "abort", tuple(m.id for _, m in turn.claimed), by)
    for id in turn.members:
        receipt = state.receipts[id]
        became(state, receipt.message, reason)
        state.receipts[id] = receipt.to(
            "settled", at=event.time, seq=event.seq, turn=turn.number, outcome=reason
        )
    if state.asks:
        state.approvals = approvals.ended(state.approvals, event.time)
    state.turns[turn.number] = end(turn, data, event.time)
    state.turn = None
    state.resume = turn.number if data.get("resume") else None
    _count_crash(state, event)
    _park_at_end(state, event, turn)


def _never_entered(state: State, event: Event, turn: OpenTurn, message: Message) -> None:
    cleared = turn.abort is not None and turn.abort.disposition == "clear"
    word = "cleared" if cleared else "aborted"
    by = turn.abort.by if turn.abort else None
    receipt = state.receipts[message.id]
    became(state, message, word)
    state.receipts[message.id] = receipt.to(word, at=event.time, seq=event.seq, by=by, outcome=word)


def _count_crash(state: State, event: Event) -> None:
    if not event.data.get("recovery"):
        state.crashes = 0
        return
    state.crashes += 1
    if state.crashes >= CRASH_LOOP:
        state.parked = Parked("crash-loop", None, event.time, event.seq)


def _park_at_end(state: State, event: Event, turn: OpenTurn) -> None:
    reason = event.data["reason"]
    error = event.data.get("error") or {}
    if reason in ("error", "budget"):
        if state.parked is not None and state.parked.by not in ("error", reason):
            return  # a retry that failed: what waits for a person still does
        what = error.get("message") if reason == "error" else event.data.get("cause")
        state.parked = Parked(reason, what, event.time, event.seq, budget=event.data.get("budget"))
    elif turn.then_park and not event.data.get("resume") and state.receipts[turn.then_park].ended:
        who = state.receipts[turn.then_park].message.source
        state.parked = Parked("interrupt", None, event.time, event.seq, dict(who))


TABLE: Final[Appliers] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "abort/requested": _abort_requested,
}
