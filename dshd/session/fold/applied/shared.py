"""What events of several kinds do to a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dshd.log.codec import Event
from dshd.session.fold import undo
from dshd.session.fold.events import Message, block_bytes
from dshd.session.fold.state import State
from dshd.session.fold.turns import Abort, OpenTurn
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
