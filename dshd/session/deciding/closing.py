"""How a turn ends, whatever happened: one function for the driver and for recovery.

Everything that is owed is read from the state: a compaction that is open ends, with the surface as it
stands; text that streamed becomes an interrupted `assistant/message`, every call without a result gets one,
the open step ends, what was claimed and never entered goes back, and `turn/end` comes last. The driver calls
it outside its cancel scope; recovery calls it with what the log says.

What a call without a result is told:

| it was          | alive (abort, stop, error)   | after a crash                                       |
|-----------------|------------------------------|------------------------------------------------------|
| asked only      | skipped                      | not started; safe to repeat                          |
| started         | stopped, with the cause      | started, outcome unknown; check before repeating     |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.session.deciding import approving
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import inbox
from dshd.session.fold.events import text_block
from dshd.session.fold.turns import CallState, OpenTurn
from dshd.session.fold.who import SYSTEM
from dshd.tools.tool import Call

FAILURES_BEFORE_HELD: Final = 3


Describe = Callable[[Call], str]


def _described(call: Call) -> str:
    return call.name


@attrs.frozen(slots=True, kw_only=True)
class Ending:
    """Why and how a turn ends. ``partial``: blocks that had streamed, text and reasoning only.

    ``results``: ``{call id: tool/result members}`` of calls that had finished, and ``brought``: ``{call id:
    [(type, data)]}``, the events that go with these. ``resume``: the
    next start goes on with this turn. ``budget``: the limit that ended it; ``usage``: of attempts of
    the open step that no event tells yet; ``worked``: ms of work, None if nobody knows. ``ended``: Unix ms of
    the last that was heard of it, if that is not now. ``describe``: what a call is about, for people.
    ``hooked``: hooks are to be told of it.
    """

    reason: str
    cause: str | None = None
    error: Mapping[str, Any] | None = None
    recovery: bool = False
    resume: bool = False
    partial: Sequence[Mapping[str, Any]] = ()
    results: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    brought: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]] = attrs.field(factory=dict)
    model: str | None = None
    budget: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] = attrs.field(factory=dict)
    worked: int | None = None
    hooked: bool = False
    ended: int | None = None
    describe: Describe = _described


def close_turn(s: Scratch, ending: Ending) -> None:
    """Emit all that the open turn still owes, `turn/end` last. Nothing is owed: does nothing."""
    turn = s.state.turn
    if turn is None:
        return
    if s.state.compaction is not None:
        close_compaction(s, ending.reason, recovery=ending.recovery, cause=ending.cause, usage=ending.usage)
        ending = attrs.evolve(ending, usage={})
    keep_partial(s, ending)
    _withdraw(s, turn, ending)
    _close_calls(s, ending)
    if s.state.turn and s.state.turn.step_open:
        s.emit("step/end", _step_end(turn, ending))
    _return_claimed(s, ending)
    _expire_too_late(s, turn)
    if ending.hooked:
        s.emit("hook/due", {"event": "turn_end", "turn": turn.number})
    s.emit("turn/end", _turn_end(s, turn, ending))


def cut_off(s: Scratch, number: int, ending: Ending) -> None:
    """Emit what makes this turn's end one, and nothing more: for when `close_turn` can't. What is left of
    approvals ends with the turn, in the fold."""
    turn = s.state.turn
    if turn is None or turn.number != number:
        return
    if turn.abort is not None:
        ending = attrs.evolve(ending, reason="aborted", cause=turn.abort.cause, error=None)
    close_compaction(s, ending.reason)
    for call in list(turn.calls.values()):
        result = _missing_result(call, ending)
        s.emit("tool/result", {"turn": number, "step": turn.step, "call": call.id, **result})
    if s.state.turn is not None and s.state.turn.step_open:
        s.emit("step/end", {"turn": number, "step": turn.step})
    _return_claimed(s, ending)
    s.emit("turn/end", _turn_end(s, turn, ending))


def close_compaction(
    s: Scratch, reason: str, *, recovery: bool = False, cause: str | None = None,
    usage: Mapping[str, Any] | None = None, error: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """End the open compaction, if there is one, without a summary: `aborted`, `interrupted` or `failed`.
    ``usage``: of its attempts."""
    compaction = s.state.compaction
    if compaction is None:
        return
    word = reason if reason in ("aborted", "interrupted") else "failed"
    more = {"cause": cause, "error": error, "recovery": recovery or None, "usage": dict(usage or {}) or None}
    data = {"compaction": compaction.number, "turn": compaction.turn, "reason": word}
    s.emit("compaction/end", {**data, **{name: value for name, value in more.items() if value is not None}})


def _step_end(turn: OpenTurn, ending: Ending) -> dict[str, Any]:
    data: dict[str, Any] = {"turn": turn.number, "step": turn.step}
    if ending.worked is not None:
        data["worked_ms"] = ending.worked
    return {**data, "usage": dict(ending.usage)} if ending.usage else data


def keep_partial(s: Scratch, ending: Ending) -> None:
    """What the open step's answer had streamed before something cut it off becomes its answer."""
    turn = s.state.turn
    blocks = [b for b in ending.partial if str(b.get("text", "")).strip()]
    if turn is None or not blocks or not turn.step_open or turn.answered:
        return
    s.emit(
        "assistant/message",
        {
            "turn": turn.number,
            "step": turn.step,
            "content": blocks,
            "model": ending.model or (s.state.request_context or {}).get("route") or turn.model,
            "interrupted": True,
        },
    )


def _withdraw(s: Scratch, turn: OpenTurn, ending: Ending) -> None:
    """Nobody needs to answer any more what this turn was asking."""
    if s.state.asks:
        by = turn.abort.by if turn.abort is not None else None
        approving.withdraw(s, _cause(ending), by)


def _close_calls(s: Scratch, ending: Ending) -> None:
    turn = s.state.turn
    for call in list(turn.calls.values()) if turn else ():
        assert turn is not None
        result = ending.results.get(call.id) or _denied(s, call) or _missing_result(call, ending)
        s.emit("tool/result", {"turn": turn.number, "step": turn.step, "call": call.id, **result})
        for type, data in ending.brought.get(call.id, ()):
            s.emit(type, dict(data))


def _denied(s: Scratch, call: CallState) -> dict[str, Any] | None:
    asked = approving.of_call(s.state, call.id)
    return approving.denial(asked) if asked is not None and asked.answer == "deny" else None


def _cause(ending: Ending) -> str:
    otherwise = "the daemon stopped" if ending.recovery else "the turn ended"
    return _CAUSES.get(ending.cause or ending.reason, otherwise)


def _missing_result(call: CallState, ending: Ending) -> dict[str, Any]:
    text, code = _SENTENCES[ending.recovery, call.started]
    cause = _cause(ending)
    said = text.format(cause=cause, why=cause[:1].upper() + cause[1:])
    error = {"code": code}
    if code == "OUTCOME_UNKNOWN":
        error["what"] = what_of(call, ending.describe)
    return {"content": [text_block(said)], "is_error": True, "error": error}


_SENTENCES: Final = {
    (False, False): ("Skipped: {cause} before this call started. Safe to repeat.", "SKIPPED"),
    (False, True): ("Stopped: {cause} while this call ran. Check what it did before repeating.", "STOPPED"),
    (True, False): (
        "{why} before this call began: not started; safe to repeat.", "NOT_STARTED"
    ),
    (True, True): (
        "{why} while this call ran: started, outcome unknown; check before repeating.",
        "OUTCOME_UNKNOWN",
    ),
}  # fmt: skip
_CAUSES: Final = {
    "user": "the user aborted the turn",
    "interrupt": "the user interrupted the turn",
    "shutdown": "the daemon was stopped",
    "error": "the turn failed",
    "turn_time": "the turn's time was used up",
    "import": "the session was exported",
}


def what_of(call: CallState, describe: Describe) -> str:
    """The gist of a call for people, without its name: ``git push``; of one that makes no sense its raw
    arguments."""
    try:
        said = describe(Call(call.id, call.name, call.arguments))
    except Exception:  # a tool's own words are no reason for a turn not to end
        said = call.name
    return (said.removeprefix(call.name).removeprefix(":").strip() or call.arguments)[:200]


def _return_claimed(s: Scratch, ending: Ending) -> None:
    """What was claimed and never entered goes back to the front; see the contract, 6.3.9.

    An abort ends the message that opened the turn (or, if none did, its waking ones; whoever
    opened it has entered once a step was open); the fold does that at `turn/end`, so here those
    are simply left claimed. With ``--clear`` all are.
    """
    turn = s.state.turn
    if turn is None or not turn.claimed:
        return
    back = turn.claimed if ending.reason != "aborted" else _spared(turn)
    if not back:
        return
    failed = ending.reason == "error"
    to_held = frozenset(m.id for _, m in back if _must_hold(s, m, failed, ending.recovery))
    data = {
        "cause": "recover" if ending.recovery else "requeue",
        "by": dict(SYSTEM),
        "turn": turn.number,
        "failed": failed,
        "ops": inbox.return_ops(s.state.queues, back, to_held=to_held),
    }
    s.emit("inbox/spliced", data)


def _spared(turn: OpenTurn) -> inbox.Claimed:
    if turn.abort is not None and turn.abort.disposition == "clear":
        return ()
    if any(m.id == turn.opener for _, m in turn.claimed):
        return tuple(c for c in turn.claimed if c[1].id != turn.opener)
    if turn.opener is not None or turn.step:
        return turn.claimed
    return tuple(c for c in turn.claimed if not c[1].wake)


def _must_hold(s: Scratch, message: Any, failed: bool, recovery: bool) -> bool:
    if recovery:
        return bool(message.on_crash == "hold")
    return failed and s.state.receipts[message.id].requeues + 1 >= FAILURES_BEFORE_HELD


def _expire_too_late(s: Scratch, turn: OpenTurn) -> None:
    """``--if-turn N`` holds on: what was not claimed when N ends will never be."""
    late = inbox.too_late(s.state.queues, turn.number)
    if late:
        data = {"cause": "expire", "by": dict(SYSTEM), "turn": turn.number, "ops": inbox.remove_ops(late)}
        s.emit("inbox/spliced", data)


def _turn_end(s: Scratch, turn: OpenTurn, ending: Ending) -> dict[str, Any]:
    now = s.state.turn or turn
    data: dict[str, Any] = {"turn": turn.number, "reason": ending.reason, "usage": dict(now.usage)}
    if ending.cause:
        data["cause"] = ending.cause
    if ending.error:
        data["error"] = dict(ending.error)
    if ending.budget:
        data["budget"] = dict(ending.budget)
    if ending.worked is not None:
        data["worked_ms"] = ending.worked
    if ending.ended is not None:
        data["ended_at"] = max(ending.ended, turn.started_at)
    if ending.reason == "aborted" and s.state.parked is not None and s.state.pending_outside_held:
        data["parked"] = s.state.pending_outside_held
    if ending.recovery:
        data["recovery"] = True
    if ending.resume and now.members:
        data["resume"] = True
    return data


def recover(
    s: Scratch, partial: Sequence[Mapping[str, Any]], continue_interrupted: bool, cause: str = "crash",
    *, heard: int, describe: Describe, waits: bool = False, hooked: bool = False,
) -> None:  # fmt: skip
    """Close what a crash (or, ``cause`` import, an export) left open: `aborted` if that had been asked for,
    else `interrupted`; with ``waits``, not a turn that only waits. ``heard``: Unix ms of the last that was
    written before it; what came after is not the turn's time."""
    turn = s.state.turn
    if turn is None or (waits and turn.only_waits):
        return close_compaction(s, "interrupted", recovery=True, cause=cause)
    abort = turn.abort
    ending = Ending(
        reason="aborted" if abort else "interrupted",
        cause=abort.cause if abort else cause,
        recovery=True,
        partial=partial,
        ended=heard,
        describe=describe,
        hooked=hooked,
        resume=continue_interrupted and abort is None and s.state.crashes + 1 < 3,
    )
    close_turn(s, ending)
