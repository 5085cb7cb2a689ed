"""What events of several kinds do to a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dshd.log.codec import Event
from dshd.session.fold import approvals, undo
from dshd.session.fold.events import Message, block_bytes
from dshd.session.fold.state import State
from dshd.session.fold.turns import Abort, OpenTurn, Wait
from dshd.session.fold.values import evolve

Appliers = dict[str, Callable[[State, Event], None]]


def open_turn(state: State) -> OpenTurn:
    if state.turn is None:
        raise KeyError("no turn is open")
    return state.turn


def aborted(state: State, abort: Abort) -> None:
    turn = open_turn(state)
    both = abort if turn.abort is None else turn.abort.joined_by(abort)
    state.turn = evolve(turn, abort=both)


def heed_answers(state: State) -> None:
    """Note whether the open step rests on a person's answer: it does from the question on, until the call
    that it is about starts or has its result; not while another call runs, and no more when the question was
    withdrawn, for that is the beginning of the turn's end, of which a crash may have taken the rest."""
    turn = state.turn
    if turn is None or not state.approvals:
        return
    if turn.wait is None or turn.wait.what == "approval":
        state.turn = evolve(turn, wait=_rests_on(turn, state))


def _rests_on(turn: OpenTurn, state: State) -> Wait | None:
    first = next(iter(turn.calls.values()), None)
    if first is None or any(call.started for call in turn.calls.values()):
        return None
    asked = approvals.of_call(state.approvals, turn.number, first.id)
    if asked is None or asked.answer == "withdrawn":
        return None
    return Wait("approval", asked.at, asked.answered_at)


def note_removal(state: State, event: Event, cause: str, ids: tuple[str, ...], by: Any = None) -> None:
    """Note what can be undone. What an abort clears is one removal with what it clears at its end."""
    turn = state.turn
    clears = cause == "clear" and turn is not None and turn.abort is not None
    of_turn = turn.number if clears and turn and turn.abort and turn.abort.disposition == "clear" else None
    removal = undo.Removal(event.seq, cause, event.time, by or event.data.get("by"), ids, of_turn)
    state.removals = undo.noted(state.removals, removal)


def attached(state: State, message: Message) -> None:
    for block in message.content:
        if block.get("type") == "file":
            state.files[block["sha256"]] = block_bytes(block)


def tells(state: State, id: str) -> None:
    """A call's result tells of a subagent's end; `subagent/told`, which follows, is not needed for that."""
    found = state.agents.get(id)
    if found is not None and not found.runs:
        state.agents = {**state.agents, id: evolve(found, told=True)}
