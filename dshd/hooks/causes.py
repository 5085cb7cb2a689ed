"""What of a session's new events needs a person. Sans-IO.

Looked at once, when they are told: what a log held before the daemon opened it is history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from dshd.hooks.attention import SHARED_S, Kind, Notice
from dshd.hooks.payload import About
from dshd.log.codec import Event
from dshd.model.errors import RETRIED
from dshd.session.fold.state import State

TELLING: Final = frozenset(("approval/asked", "schedule/fired", "turn/end"))
CREDENTIAL: Final = frozenset(("AUTH", "MISSING_CREDENTIAL"))


def about(state: State, log: str = "") -> About:
    settings = state.settings
    return About(session=state.id, name=state.name, dir=str(settings.get("dir") or "/"),
                 mode=str(settings.get("mode") or "workspace"), log=log)  # fmt: skip


def notices(state: State, events: Iterable[Event], log: str = "") -> list[Notice]:
    """``state``: as it is after the events."""
    found = [event for event in events if event.type in TELLING]
    if not found:  # nearly always, and it is asked after every batch
        return []
    here = about(state, log)
    return [notice for event in found if (notice := _notice(state, event, here)) is not None]


def broken(state: State, id: str, word: str, why: str) -> Notice:
    """Of a session whose log can't be written; ``word``: damaged, unsupported, faulted."""
    here = attrs.evolve(about(state), session=id, name=state.name or id)
    return Notice(kind="disk" if word == "faulted" else "damaged", cause=word, text=why, about=here)


def full(text: str = "The disk is full: sessions wait until there is room.") -> Notice:
    return Notice(kind="disk", cause="disk", text=text, again_after=SHARED_S)


def _notice(state: State, event: Event, here: About) -> Notice | None:
    if event.type == "approval/asked":
        id, tool, what = (str(event.data.get(name) or "") for name in ("id", "tool", "what"))
        text = f"{here.name} asks for {tool}: {what} (dshctl allow {id}, or dshctl deny {id})"
        return _of(here, "approval", f"approval {id}", text)
    if event.type == "schedule/fired" and event.data.get("skipped") == "refused":
        id, why = event.data["id"], str(event.data.get("detail"))
        return _of(here, "parked", f"schedule {id} {why}", f"schedule {id} was refused: {why}")
    if event.type != "turn/end":
        return None
    reason, error = event.data["reason"], event.data.get("error") or {}
    cause = f"turn {event.data['turn']}"
    if reason == "budget":
        text = f"{here.name} has used up {event.data.get('cause')} and waits for you."
        return _of(here, "budget", cause, text)
    if reason == "error":
        return _of_error(here, cause, error)
    if state.parked is not None and state.parked.seq == event.seq and state.parked.by == "crash-loop":
        text = f"{here.name} was interrupted by a crash again and again, and waits for you."
        return _of(here, "parked", cause, text)
    return None


def _of_error(here: About, cause: str, error: Any) -> Notice:
    code, message = str(error.get("code", "")), str(error.get("message", ""))
    text = f"{here.name} stopped: {message}"
    if code in CREDENTIAL:
        return _of(here, "credential", f"credential {message}", text, SHARED_S)
    if code == "STORAGE":
        return _of(here, "disk", "disk", text, SHARED_S)
    return _of(here, "patience" if code in RETRIED else "parked", cause, text)


def _of(here: About, kind: Kind, cause: str, text: str, again_after: float | None = None) -> Notice:
    shared = {} if again_after is None else {"again_after": again_after}
    return Notice(kind=kind, cause=cause, text=text, about=here, **shared)
