"""What a job looks like to a program: the JSON of ``job``."""

from __future__ import annotations

from typing import Any

from dshd.session.fold.jobs import Job
from dshd.session.fold.state import State

Json = dict[str, Any]


def job(state: State, one: Job) -> Json:
    return {
        "type": "job",
        "id": one.id,
        "session": state.id,
        "name": state.name,
        "turn": one.turn,
        "step": one.step,
        "command": one.command,
        "dir": one.dir,
        "state": "running" if one.runs else "ended",
        "kept": one.kept is not None,
        "pid": one.kept.pid if one.kept is not None and one.runs else None,
        "started_at": one.at,
        "ended_at": one.end.at if one.end is not None else None,
        "end": end(one),
    }


def end(one: Job) -> Json | None:
    """How it has ended; None while it runs."""
    found = one.end
    if found is None:
        return None
    return {
        "how": found.how, "code": found.code, "signal": found.signal, "cause": found.cause,
        "detail": found.detail, "bytes": found.bytes, "ms": found.ms, "by": found.by,
    }  # fmt: skip


def running(state: State) -> list[Json]:
    """What a session's view says of those that run."""
    return [
        {"id": one.id, "command": one.command, "started_at": one.at, "kept": one.kept is not None}
        for one in state.running_jobs
    ]
