"""Events that concern a step: what enters, the request, the answer, tool calls and their results."""

from __future__ import annotations

from typing import Final

from dshd.log.codec import Event
from dshd.session.fold import counting
from dshd.session.fold.applied import compactions
from dshd.session.fold.applied.shared import Appliers, attached, heed_answers, note_removal, open_turn, tells
from dshd.session.fold.events import Message
from dshd.session.fold.receipts import Receipt
from dshd.session.fold.schedules import became
from dshd.session.fold.state import State
from dshd.session.fold.turns import CallState, Wait, answer_of
from dshd.session.fold.values import evolve

# Errors of results that the end of a turn gave, not the tool.
UNFINISHED: Final = frozenset(("SKIPPED", "STOPPED", "NOT_STARTED", "OUTCOME_UNKNOWN"))


def _step_start(state: State, event: Event) -> None:
    state.begun = True
    state.turn = evolve(
        open_turn(state), step=event.data["step"], step_open=True, answered=False, chunks_from=None,
        calls={}, results_wait=False, attempt=0, wait=None, waits=0, waited=0, overflowed=False,
    )  # fmt: skip


def _step_end(state: State, event: Event) -> None:
    turn = open_turn(state)
    worked = event.data.get("worked_ms", turn.worked)
    ended = evolve(turn, step_open=False, chunks_from=None, worked=worked, wait=None)
    state.turn = counting.spend(state, ended, event)


def _retried(state: State, event: Event) -> None:
    """A failed attempt: there will be another one soon, or the step waits for its provider."""
    if state.turn is None:
        return
    turn, data = counting.spend(state, state.turn, event), event.data
    if data.get("waits") and turn.step_open:
        named, asked = bool(data.get("named")), data.get("asked") or {}
        wait = Wait("provider", event.time, data["until"], data.get("code"), named, asked)
        turn = evolve(turn, wait=wait, waits=turn.waits + 1, worked=data.get("worked_ms", turn.worked))
    state.turn = turn


def _step_rejected(state: State, event: Event) -> None:
    turn, data = open_turn(state), event.data
    ids = tuple(dict.fromkeys(data["messages"]))
    for id in ids:
        receipt = state.receipts[id]
        became(state, receipt.message, "rejected")
        state.receipts[id] = receipt.to(
            "rejected", at=event.time, seq=event.seq, turn=turn.number, outcome="rejected",
            by={"by": data.get("by"), "reason": data.get("reason")},
        )  # fmt: skip
    state.turn = evolve(turn, claimed=tuple(c for c in turn.claimed if c[1].id not in ids))
    note_removal(state, event, "reject", ids, {"kind": "plugin", "via": data.get("by")})


def _user_message(state: State, event: Event) -> None:
    turn, data = open_turn(state), event.data
    message = Message.from_json(data)
    state.next_message = max(state.next_message, int(message.id.rpartition(".")[2]) + 1)
    receipt = state.receipts.get(message.id) or Receipt(message, "new", None, event.seq)
    state.receipts[message.id] = receipt.to(
        "entered", at=event.time, seq=event.seq, turn=data["turn"], step=data["step"],
        message=message, attempts=(*receipt.attempts, data["turn"]),
    )  # fmt: skip
    attached(state, message)
    if message.source.get("via") == "context":
        state.snapshot, state.snapshot_seq = message.text, event.seq
    state.turn = evolve(
        turn,
        claimed=tuple(c for c in turn.claimed if c[1].id != message.id),
        members=(*turn.members, message.id),
    )


def _chunk(state: State, event: Event) -> None:
    turn = open_turn(state)
    if turn.chunks_from is None:
        state.turn = evolve(turn, chunks_from=event.seq)


def _request_sent(state: State, event: Event) -> None:
    """A new attempt: what an earlier one streamed is no part of the answer, and a wait is over."""
    compactions.sent(state, event)
    if event.data.get("compaction") is not None:
        return  # it is none of the step's
    turn = open_turn(state)
    lasted = turn.wait.lasted(event.time) if turn.wait is not None else 0
    attempt = event.data.get("attempt", turn.attempt + 1)
    state.turn = evolve(turn, chunks_from=None, attempt=attempt, wait=None, waited=turn.waited + lasted)


def _assistant(state: State, event: Event) -> None:
    turn, data = open_turn(state), event.data
    calls = {
        b["id"]: CallState(b["id"], b["name"], b["arguments"])
        for b in data["content"]
        if b["type"] == "tool-call"
    }
    answered = evolve(
        turn,
        answered=True,
        chunks_from=None,
        calls=calls,
        tools=turn.tools + len(calls),
        answer=answer_of(data["content"]) or turn.answer,
        model=data.get("model"),
        capped=turn.capped or data.get("finish") == "max-tokens",
    )
    state.turn = counting.spend(state, answered, event)
    compactions.answered(state, event)


def _tool_call(state: State, event: Event) -> None:
    turn, id = open_turn(state), event.data["call"]
    started = evolve(turn.calls[id], started=True)
    state.turn = evolve(turn, calls={**turn.calls, id: started})
    heed_answers(state)


def _tool_result(state: State, event: Event) -> None:
    turn, data = open_turn(state), event.data
    call = turn.calls[data["call"]]
    unknown, code = turn.unknown, (data.get("error") or {}).get("code")
    if code == "OUTCOME_UNKNOWN":
        unknown = (*unknown, {"tool": call.name, "what": str(data["error"].get("what", ""))})
    rest = {id: c for id, c in turn.calls.items() if id != call.id}
    errors = turn.errors
    if code not in UNFINISHED:
        errors = errors + 1 if data.get("is_error") else 0
    state.turn = evolve(turn, calls=rest, unknown=unknown, results_wait=True, errors=errors)
    for id in data.get("tells", ()):  # the line that says so, too, may be lost behind this one
        tells(state, id)
    heed_answers(state)


TABLE: Final[Appliers] = {
    "step/start": _step_start,
    "step/end": _step_end,
    "step/rejected": _step_rejected,
    "user/message": _user_message,
    "assistant/chunk": _chunk,
    "assistant/message": _assistant,
    "llm/retry": _retried,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
    "request/sent": _request_sent,
}
