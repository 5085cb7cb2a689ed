"""What events do to schedules.

| event               | what it means                                                                  |
|---------------------|--------------------------------------------------------------------------------|
| schedule/added      | it is there; ``next``: when it is due first                                    |
| schedule/fired      | an instant is settled: sent (``message``), or not (``skipped``: why); ``next`` |
| schedule/ended      | (in `HOME`) what was sent has ended: ``outcome``; in a session, its turn says so |
| schedule/paused     | nothing is due until it is resumed                                             |
| schedule/resumed    | ``next``: when it is due then                                                  |
| schedule/reckoned   | the clock was set far back: ``next`` anew                                      |
| schedule/removed    | they are gone                                                                  |


Which instant is next stands in the events, so that the fold needs no calendar.
"""

from __future__ import annotations

from typing import Any, Final

from dshd.log.codec import Event
from dshd.session.fold.applied.shared import Appliers
from dshd.session.fold.schedules import KEPT, Firing, Schedule, When, ended
from dshd.session.fold.state import State
from dshd.session.fold.values import evolve


def imported(state: State, event: Event) -> None:
    """What came from elsewhere waits for a person. ``schedules``: ``{id there: id here}``."""
    ids = event.data.get("schedules") or {}
    paused = {"by": event.data.get("by"), "at": event.time, "why": "import"}
    came = (evolve(one, id=ids.get(one.id, one.id), paused=paused) for one in state.schedules.values())
    state.schedules = {one.id: one for one in came}


def _run_ended(state: State, event: Event) -> None:
    found = state.schedules[event.data["id"]]
    ended(state, found, event.data["message"], event.data["outcome"])


def _added(state: State, event: Event) -> None:
    data = event.data
    if data["id"] in state.schedules:
        raise KeyError(f"{data['id']} is there already")
    made = Schedule(
        id=data["id"],
        when=When(**data["when"]),
        typed=data["typed"],
        text=data["text"],
        overlap=data["overlap"],
        catch_up=data["catch_up"],
        run=data.get("run"),
        by=data["by"],
        created=event.time,
        next=data["next"],
        reckoned=event.time,
    )
    state.schedules = {**state.schedules, made.id: made}


def _change(state: State, event: Event, **changes: Any) -> None:
    old = state.schedules[event.data["id"]]
    state.schedules = {**state.schedules, old.id: evolve(old, **changes)}


def _fired(state: State, event: Event) -> None:
    data, old = event.data, state.schedules[event.data["id"]]
    firing = Firing(
        due=data["due"],
        at=event.time,
        key=data["key"],
        message=data.get("message"),
        session=data.get("session"),
        skipped=data.get("skipped"),
        detail=data.get("detail"),
        code=data.get("code"),
        missed=data.get("missed", 0),
        by=data.get("by"),
    )
    _change(state, event, firings=(*old.firings, firing)[-KEPT:], next=data["next"], reckoned=event.time)


def _paused(state: State, event: Event) -> None:
    why = {"by": event.data["by"], "at": event.time, "why": event.data.get("why")}
    _change(state, event, paused=why)


def _resumed(state: State, event: Event) -> None:
    _change(state, event, paused=None, next=event.data["next"], reckoned=event.time)


def _reckoned(state: State, event: Event) -> None:
    _change(state, event, next=event.data["next"], reckoned=event.time)


def _removed(state: State, event: Event) -> None:
    gone = set(event.data["ids"])
    if not gone <= state.schedules.keys():
        raise KeyError(f"{min(gone - state.schedules.keys())} is not there")
    state.schedules = {id: one for id, one in state.schedules.items() if id not in gone}


TABLE: Final[Appliers] = {
    "schedule/added": _added,
    "schedule/fired": _fired,
    "schedule/paused": _paused,
    "schedule/resumed": _resumed,
    "schedule/reckoned": _reckoned,
    "schedule/removed": _removed,
    "schedule/ended": _run_ended,
}
