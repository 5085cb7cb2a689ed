"""Events that say which ends of turns hooks are still to be told of; what else a hook did changes nothing."""

from __future__ import annotations

from typing import Final

from dshd.log.codec import Event
from dshd.session.fold.applied.shared import Appliers
from dshd.session.fold.state import State


def _due(state: State, event: Event) -> None:
    state.ends = {**state.ends, event.data["turn"]: 0}


def _begun(state: State, event: Event) -> None:
    turn = event.data["turn"]
    if turn in state.ends:
        state.ends = {**state.ends, turn: state.ends[turn] + 1}


def _done(state: State, event: Event) -> None:
    state.ends = {turn: tries for turn, tries in state.ends.items() if turn != event.data["turn"]}


TABLE: Final[Appliers] = {"hook/due": _due, "hook/begun": _begun, "hook/done": _done}
