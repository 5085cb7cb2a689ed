"""Events of approvals: what a person is asked, answers, and takes back."""

from __future__ import annotations

from typing import Final

from dshd.log.codec import Event
from dshd.session.fold import approvals
from dshd.session.fold.applied.shared import Appliers, heed_answers, open_turn
from dshd.session.fold.state import State
from dshd.session.fold.values import evolve


def _asked(state: State, event: Event) -> None:
    data, turn = event.data, open_turn(state)
    state.turn = evolve(turn, worked=data.get("worked_ms", turn.worked))
    if data["id"] in state.approvals:
        raise KeyError(f"{data['id']} is asked twice")
    asked = approvals.asked(event, turn.calls[data["call"]].arguments)
    state.approvals = {**state.approvals, asked.id: asked}
    heed_answers(state)


def _answered(state: State, event: Event) -> None:
    state.approvals = approvals.answered(state.approvals, event)
    allowed = approvals.allowed(state.approvals[event.data["id"]])
    if allowed is not None:
        state.allowed = (*state.allowed, allowed)
    heed_answers(state)


def _forgotten(state: State, event: Event) -> None:
    state.allowed = tuple(one for one in state.allowed if one.id != event.data["id"])


TABLE: Final[Appliers] = {
    "approval/asked": _asked,
    "approval/answered": _answered,
    "approval/forgotten": _forgotten,
}
