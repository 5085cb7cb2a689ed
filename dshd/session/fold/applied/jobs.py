"""Events of jobs: one begins, is to be kept, has ended."""

from __future__ import annotations

from typing import Final

from dshd.log.codec import Event
from dshd.session.fold.applied.shared import Appliers
from dshd.session.fold.jobs import Job, JobEnd, Keeping, without_old
from dshd.session.fold.state import State
from dshd.session.fold.values import evolve


def _started(state: State, event: Event) -> None:
    data = event.data
    if data["id"] in state.jobs:
        raise KeyError(f"{data['id']} has begun twice")
    made = Job(
        id=data["id"], turn=data["turn"], step=data["step"], call=data["call"], command=data["command"],
        dir=data["dir"], file=data["file"], at=event.time,
    )  # fmt: skip
    state.jobs = {**state.jobs, made.id: made}


def _running(state: State, id: str) -> Job:
    found = state.jobs[id]
    if not found.runs:
        raise KeyError(f"{id} has ended")
    return found


def _kept(state: State, event: Event) -> None:
    data, found = event.data, _running(state, event.data["id"])
    keeping = Keeping(event.time, data["pid"], data["start"], data.get("by"))
    state.jobs = {**state.jobs, found.id: evolve(found, kept=keeping)}


def _ended(state: State, event: Event) -> None:
    data, found = event.data, _running(state, event.data["id"])
    end = JobEnd(
        at=event.time, how=data["how"], code=data.get("code"), signal=data.get("signal"),
        cause=data.get("cause"), detail=data.get("detail"), bytes=data.get("bytes"), ms=data.get("ms"),
        by=data.get("by"),
    )  # fmt: skip
    state.jobs = without_old({**state.jobs, found.id: evolve(found, end=end)})


TABLE: Final[Appliers] = {"job/started": _started, "job/kept": _kept, "job/ended": _ended}
