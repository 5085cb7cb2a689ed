"""Events of subagents: one is started, spends, ends, is told of."""

from __future__ import annotations

from typing import Final

from dshd.log.codec import Event
from dshd.session.fold import spending
from dshd.session.fold.applied.shared import Appliers
from dshd.session.fold.state import State
from dshd.session.fold.subagents import AgentEnd, Subagent, more, without_old
from dshd.session.fold.values import evolve


def _started(state: State, event: Event) -> None:
    data = event.data
    if data["id"] in state.agents:
        raise KeyError(f"{data['id']} is started twice")
    made = Subagent(
        id=data["id"], turn=data["turn"], step=data["step"], call=data["call"], prompt=data["prompt"],
        context=data["context"], at=event.time,
    )  # fmt: skip
    state.agents = {**state.agents, made.id: made}


def _spent(state: State, event: Event) -> None:
    """It counts to the session, and to the turn that started it; to the day where it was spent."""
    found, usage = state.agents[event.data["id"]], event.data["usage"]
    new = more(usage, found.spent)
    state.spent = spending.add(state.spent, new)
    if state.turn is not None and state.turn.number == found.turn:
        state.turn = evolve(state.turn, usage=spending.add(state.turn.usage, new))
    state.agents = {**state.agents, found.id: evolve(found, spent=usage)}


def _ended(state: State, event: Event) -> None:
    data, found = event.data, state.agents[event.data["id"]]
    if not found.runs:
        raise KeyError(f"{found.id} has ended")
    end = AgentEnd(event.time, data["outcome"], data["text"])
    state.agents = {**state.agents, found.id: evolve(found, end=end)}


def _told(state: State, event: Event) -> None:
    found = state.agents[event.data["id"]]
    if found.runs:
        raise KeyError(f"{found.id} has not ended")
    state.agents = without_old({**state.agents, found.id: evolve(found, told=True)})


TABLE: Final[Appliers] = {
    "subagent/started": _started,
    "subagent/spent": _spent,
    "subagent/ended": _ended,
    "subagent/told": _told,
}
