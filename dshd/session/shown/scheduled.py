"""What schedules and their firings look like to a program. Every field is always there; unknown is None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dshd.session.fold.schedules import Firing, Schedule

Json = dict[str, Any]


def schedule(found: Schedule, session: Mapping[str, Any] | None, nexts: Sequence[int]) -> Json:
    """``session``: the view of the one that it is in; None if each firing is a new run. ``nexts``: when it is
    due next."""
    return {
        "type": "schedule",
        "id": found.id,
        "session": session["id"] if session else None,
        "name": session["name"] if session else (found.run or {}).get("name"),
        "dir": session["dir"] if session else (found.run or {}).get("dir"),
        "run": None if found.run is None else dict(found.run),
        "kind": found.when.kind,
        "when": found.typed,
        "zone": found.when.zone,
        "state": "over" if found.over else ("paused" if found.paused else "active"),
        "next_at": found.due,
        "nexts_at": list(nexts),
        "overlap": found.overlap,
        "catch_up": found.catch_up,
        "text": found.text,
        "created_at": found.created,
        "by": dict(found.by),
        "paused": None if found.paused is None else dict(found.paused),
        "last": None if found.last is None else firing(found, found.last),
        "firings": None,
        "warning": None,
    }


def firing(of: Schedule, one: Firing, state: str | None = None) -> Json:
    """``state``: what is known of it, where its end isn't."""
    late = one.at - one.due
    return {
        "type": "firing",
        "schedule": of.id,
        "due_at": one.due,
        "at": one.at,
        "late_ms": late if late > 0 else 0,
        "message": one.message,
        "session": one.session,
        "outcome": one.outcome,
        "state": state,
        "skipped": one.skipped,
        "detail": one.detail,
        "code": one.code,
        "missed": one.missed,
        "by": None if one.by is None else dict(one.by),
    }
