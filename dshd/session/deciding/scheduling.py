"""Schedules added, removed, paused and resumed. What becomes of their instants is in `firing`.

Decisions on a scratch; no IO, but for a zone's file (`when`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.errors import Conflict, Full, Invalid, NotFound
from dshd.session.deciding import when
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.schedules import Overlap, Schedule, When, standing
from dshd.session.fold.state import State

By = Mapping[str, Any]
Json = dict[str, Any]

MAX_LATE_MS: Final = 60_000  # one ``at`` may have passed on the way here, not long before
MAX_TEXT: Final = 64 * 1024  # bytes of UTF-8
TOLD: Final = 3  # instants
MOST: Final = 1000  # schedules that a log may hold


@attrs.frozen(kw_only=True)
class Wanted:
    """A schedule that is to be. ``catch_up`` None: as `when.is_daily` says."""

    when: When
    typed: str
    text: str
    overlap: Overlap = "skip"
    catch_up: bool | None = None
    run: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Raises `Invalid`, `Full`."""
        if not self.text.strip():
            raise Invalid("the text is empty", hint=when.EXAMPLE, outcome="not-written")
        if len(self.text.encode("utf-8", "replace")) > MAX_TEXT:
            raise Full("a schedule's text has 64 KiB at most; put it in a file and name that with --ref.",
                       outcome="not-written")  # fmt: skip
        if self.run is not None and self.overlap == "supersede":
            raise Invalid("--overlap supersede replaces what waits in a session's queue, and each --run is a "
                          "session of its own: skip or queue", outcome="not-written")  # fmt: skip


def add(s: Scratch, id: str, wanted: Wanted, by: By) -> None:
    """Raises `Conflict` (the session is closed), `Invalid` (it will never be due), `Full`."""
    name = s.state.name
    if s.state.closed:
        raise Conflict(f"not added: session {name} is closed.", hint=f"dshctl reopen {name}",
                       outcome="not-written")  # fmt: skip
    if len(s.state.schedules) >= MOST:
        raise Full(f"not added: there are {MOST} schedules already.", hint="dshctl schedule ls",
                   outcome="not-written")  # fmt: skip
    due = _first(wanted.when, s.now)
    if due is None:
        raise Invalid(f'"{wanted.typed}" is in the past', outcome="not-written")
    daily = when.is_daily(wanted.when, s.now)
    s.emit("schedule/added", {
        "id": id,
        "typed": wanted.typed,
        "when": attrs.asdict(wanted.when),
        "text": wanted.text,
        "overlap": wanted.overlap,
        "catch_up": daily if wanted.catch_up is None else wanted.catch_up,
        "run": None if wanted.run is None else dict(wanted.run),
        "by": dict(by),
        "next": due,
    })  # fmt: skip


def _first(wanted: When, now: int) -> int | None:
    """One ``at`` a moment that has passed while it was asked for is due at once."""
    return when.next_after(wanted, now - (MAX_LATE_MS if wanted.kind == "at" else 0))


def coming(one: Schedule) -> list[int]:
    """When it is due next, the first few times."""
    first = one.due
    return [] if first is None else [first, *when.upcoming(one.when, first, TOLD - 1)]


def remove(s: Scratch, id: str, by: By) -> None:
    of(s.state, id)
    s.emit("schedule/removed", {"ids": [id], "by": dict(by)})


def clear(s: Scratch, by: By) -> None:
    """Remove all; when a session is closed with all that it has."""
    if ids := [one.id for one in standing(s.state.schedules)]:
        s.emit("schedule/removed", {"ids": ids, "by": dict(by)})


def pause(s: Scratch, id: str, by: By) -> None:
    """Raises `Conflict` if it is over. One that is paused stays so, by whom it was."""
    found = of(s.state, id)
    if found.over:
        raise Conflict(f"not paused: {id} has fired, and was to fire once.", outcome="not-written")
    if found.paused is None:
        s.emit("schedule/paused", {"id": id, "by": dict(by)})


def resume(s: Scratch, id: str, by: By) -> None:
    """What was due meanwhile is not made up for; but for an ``at``, which is due now."""
    found = of(s.state, id)
    if s.state.closed:
        raise Conflict(f"not resumed: session {s.state.name} is closed.",
                       hint=f"dshctl reopen {s.state.name}", outcome="not-written")  # fmt: skip
    if found.over:
        raise Conflict(f"not resumed: {id} has fired, and was to fire once.", outcome="not-written")
    if found.paused is not None:
        due = found.next if found.when.kind == "at" else when.next_after(found.when, s.now)
        s.emit("schedule/resumed", {"id": id, "by": dict(by), "next": due})


def of(state: State, id: str) -> Schedule:
    """Raises `NotFound`."""
    found = state.schedules.get(id)
    if found is None:
        raise NotFound(f"no schedule {id}", hint="dshctl schedule ls", outcome="not-written")
    return found
