"""Schedules in the fold: what is to be sent when, and what became of it each time.

A schedule belongs to one log: its session's, or, if it makes a new run each time, that of `HOME`. Ids count
up in the state directory, whatever log a schedule is in.

What events say of them is in `applied.schedules`. One that is due no more
(``at``, once it has fired) is *over*; it stays where it can be asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import attrs

from dshd.log.store import OWN
from dshd.session.fold.events import Message
from dshd.session.fold.values import evolve

HOME: Final = OWN  # the log that belongs to no session
KEPT: Final = 50  # firings that the fold remembers of each; the log has all

Overlap = Literal["skip", "queue", "supersede"]
Kind = Literal["cron", "every", "at"]


@attrs.frozen(slots=True, weakref_slot=False)
class When:
    """``line``: five fields of cron; ``every``: ms, counted from ``anchor``; ``at``: the one instant."""

    kind: Kind
    zone: str
    line: str | None = None
    every: int | None = None
    anchor: int = 0
    at: int | None = None


@attrs.frozen(slots=True, weakref_slot=False)
class Firing:
    """An instant that is settled. ``due`` and ``at`` (when that was) in Unix ms; ``message``: what was sent,
    ``session``: to which, if it was a new one. ``skipped``: why nothing was, ``detail`` in words. ``missed``:
    how many instants before it passed without anything. ``by``: who asked for it, if not the clock.
    ``outcome``: how what was sent has ended, once it has."""

    due: int
    at: int
    key: str
    message: str | None = None
    session: str | None = None
    skipped: str | None = None
    detail: str | None = None
    code: str | None = None
    missed: int = 0
    by: Mapping[str, Any] | None = None
    outcome: str | None = None


@attrs.frozen(slots=True, weakref_slot=False)
class Schedule:
    """``typed``: when, as a person wrote it. ``run``: what each new session is made as (`CreateParams`), None
    if it sends to the session that it is in. ``next``: when it is due (Unix ms), and ``reckoned``: when that
    was found. ``paused``: ``{by, at, why}``."""

    id: str
    when: When
    typed: str
    text: str
    overlap: str
    catch_up: bool
    run: Mapping[str, Any] | None
    by: Mapping[str, Any]
    created: int
    next: int | None
    reckoned: int
    paused: Mapping[str, Any] | None = None
    firings: tuple[Firing, ...] = ()

    @property
    def over(self) -> bool:
        return self.next is None

    @property
    def due(self) -> int | None:
        """When the clock has to look at it."""
        return None if self.paused is not None else self.next

    @property
    def last(self) -> Firing | None:
        return self.firings[-1] if self.firings else None

    @property
    def sent(self) -> Firing | None:
        """The last time that something was sent."""
        return next((one for one in reversed(self.firings) if one.message is not None), None)


Schedules = Mapping[str, Schedule]


class State(Protocol):
    """What is looked at, and changed, of a `State`."""

    schedules: Schedules


def standing(schedules: Schedules) -> list[Schedule]:
    """Those that aren't over."""
    return [one for one in schedules.values() if not one.over]


def became(state: State, message: Message, outcome: str | None) -> None:
    """How what was sent has ended; None: it goes on after all."""
    found = state.schedules.get(message.source.get("via", "")) if message.kind == "schedule" else None
    if found is not None:
        ended(state, found, message.id, outcome)


def ended(state: State, found: Schedule, message: str, outcome: str | None) -> None:
    """How what this one sent has ended."""
    firings = tuple(evolve(one, outcome=outcome) if one.message == message else one for one in found.firings)
    state.schedules = {**state.schedules, found.id: evolve(found, firings=firings)}
