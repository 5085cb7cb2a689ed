"""A session's events under another id: what an import as a new session takes, and what a fork takes.

An **import as a new session** takes all of it. Ids of messages name their log, so each is renamed; seqs,
times and everything else stay, and so do the lengths: ids of sessions are all of one.

A **fork** takes the history and nothing that is still to come. Its log is whole in itself: it needs neither
the parent nor its directory.

| of the parent's log, up to the point          | in the fork's log                                      |
|-----------------------------------------------|--------------------------------------------------------|
| turns, steps, what entered, answers, calls,   | the same, renumbered; ids of messages are the fork's,  |
| results, requests, the agent's list           | their keys are left out                                |
| the header, settings                          | a new header with the settings as they were there      |
| the inbox, parking, aborts, what streamed,    | nothing; `session/forked` says where the fork begins,  |
| retries, rejects, openings, approvals, ...    | and ends whatever the last turn left open              |

So the surface is the parent's at that point, each request that was sent can be made again from the fork's
log alone, turn numbers go on where they were, and a receipt tells of each message that is history here.
Messages that had not entered are no part of it: they were said to the parent.

Decisions, no IO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from dshd.errors import Conflict, Damaged, NotFound
from dshd.log.codec import Event
from dshd.log.vocabulary import GAP
from dshd.session.fold import events, folding, surface
from dshd.session.fold import gap as gaps
from dshd.session.fold.folding import Nonsense
from dshd.session.fold.layer import Rows
from dshd.session.fold.state import State
from dshd.session.fold.surface import Entry

Json = dict[str, Any]
Rename = Callable[[str], str]

# --- another id ----------------------------------------------------------------------------------


def renamed(event: Event, old: str, new: str) -> Event:
    """The event in the log of ``new``, which is a copy of that of ``old``."""
    change = _IDS.get(event.type)
    if change is None:
        return event
    return attrs.evolve(event, data=change(event.data, _renaming(old, new)))


def _renaming(old: str, new: str) -> Rename:
    """Of messages' ids; those of other sessions' stay."""
    return lambda id: new + id[len(old) :] if id.startswith(f"{old}.") else id


def _header(data: Json, rename: Rename) -> Json:
    return {**data, "id": rename(f"{data['id']}.")[:-1]}


def _spliced(data: Json, rename: Rename) -> Json:
    return {**data, "ops": [_op(op, rename) for op in data["ops"]]}


def _op(op: Json, rename: Rename) -> Json:
    return {
        **op,
        "remove": [rename(id) for id in op["remove"]],
        "insert": [_message(message, rename) for message in op["insert"]],
        "before": rename(op["before"]) if op["before"] is not None else None,
    }


def _message(data: Json, rename: Rename) -> Json:
    return {**data, "id": rename(data["id"])}


def _rejected(data: Json, rename: Rename) -> Json:
    return {**data, "messages": [rename(id) for id in data["messages"]]}


def _fired(data: Json, rename: Rename) -> Json:
    return {**data, "message": rename(data["message"])} if data.get("message") else data


_IDS: Final[dict[str, Callable[[Json, Rename], Json]]] = {
    "session/header": _header,
    "inbox/spliced": _spliced,
    "user/message": _message,
    "step/rejected": _rejected,
    "schedule/fired": _fired,
}

# --- where a fork begins -------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Outside:
    """A place outside a turn: behind the event ``seq``, with the parent's settings and title there, and the
    number of its newest turn."""

    seq: int
    settings: Mapping[str, Any]
    title: str
    turn: int


def newest(state: State) -> Outside:
    """The newest place of a session: now, or before the turn that runs. Settings are those of now."""
    if state.turn is None:
        return Outside(state.seq, state.settings, state.title, state.last_turn)
    return Outside(state.turn.seq - 1, state.settings, state.title, state.last_turn - 1)


class Point:
    """Takes the parent's events in order and finds whether ``at`` is such a place."""

    def __init__(self, at: int) -> None:
        self.at = at
        self._state = State()
        self._before: Outside | None = None  # the newest place up to ``at``
        self._after: int | None = None
        self._inside: int | None = None  # the turn that ``at`` is inside of

    def take(self, event: Event) -> None:
        if self._after is not None or self._is_there:
            return
        folding.apply(self._state, event)
        if self._state.turn is not None:
            self._inside = self._state.turn.number if event.seq == self.at else self._inside
            return
        if self._state.seq <= self.at:
            state = self._state
            self._before = Outside(state.seq, state.settings, state.title, state.last_turn)
        else:
            self._after = self._state.seq

    @property
    def _is_there(self) -> bool:
        return self._before is not None and self._before.seq == self.at

    def found(self, name: str) -> Outside:
        """Raises `Conflict` if ``at`` is inside a turn, `NotFound` if the session has no such event."""
        if self._before is not None and self._is_there:
            return self._before
        if self._state.seq < self.at:
            raise NotFound(f"{name} has no event {self.at}; its last is {self._state.seq}.",
                           hint=f"dshctl log -o json -s {name}", outcome="not-written")  # fmt: skip
        near = [seq for seq in (self._before and self._before.seq, self._after) if seq is not None]
        places = " and ".join(map(str, near))
        turn = "a turn" if self._inside is None else f"turn {self._inside}"
        raise Conflict(
            f"not forked: event {self.at} of {name} is inside {turn}; the nearest outside: {places}.",
            hint="     or: ".join(f"dshctl fork --at {seq} {name}" for seq in near),
            outcome="not-written",
            data={"nearest": near},
        )


# --- a fork --------------------------------------------------------------------------------------

_COPIED: Final = frozenset(
    """
    turn/start turn/end step/start step/end user/message assistant/message tool/call tool/result
    request/header request/context request/sent todo/write
    """.split()  # noqa: SIM905 - a list to be read
)
_NOT_INHERITED: Final = ("name", "implicit", "run", "key", "agent", "schema")


def header_of(point: Outside, parent: str, depth: int, own: Mapping[str, Any]) -> Json:
    """The data of a fork's `session/header`; ``own``: what is its own, version and id at least."""
    inherited = {k: v for k, v in point.settings.items() if k not in _NOT_INHERITED and v is not None}
    origin = {"parent": parent, "seed": point.seq, "origin": "fork", "depth": depth}
    return events.header({**inherited, **origin, **own})


class Fork:
    """Takes the parent's events up to the point, in order, and gives the fork's. ``state`` is its fold."""

    def __init__(self, header: Json, now: int) -> None:
        self.state = State()
        self._gap = False  # the parent's log was repaired: what comes now may not fit
        self._surface_there: Rows[Entry] = Rows()
        self._seqs: dict[int, int] = {}  # of what is on the surface: {the parent's: ours}
        self._header = Event(0, now, "session/header", header)
        self._rename: Rename = lambda id: id

    def begin(self) -> Event:
        folding.apply(self.state, self._header)
        self._rename = _renaming(str(self._header.data["parent"]), self.state.id)
        return self._header

    def take(self, event: Event) -> Iterator[Event]:
        self._gap = self._gap or event.type == GAP
        if event.type not in _COPIED:
            return
        if event.surface is not None:
            sources = event.sources if self._gap else None
            surface.place(self._surface_there, Entry(event.seq, event.type, {}), event.surface, sources)
        fitting = gaps.fit(self.state, event) if self._gap else iter((event,))
        for one in fitting:
            if one.type in _COPIED and (ours := self._ours(one)) is not None:
                yield ours

    def _ours(self, event: Event) -> Event | None:
        """The event as it is here; None if it can't be (behind a gap, something it builds on may lack)."""
        ours = Event(self.state.seq + 1, event.time, event.type, self._data(event),
                     self._surface(event.surface), self._sources(event.sources), event.ignorable)  # fmt: skip
        if not self._applied(ours):
            return None
        if ours.surface is not None:
            self._seqs[event.seq] = ours.seq
        return ours

    def _applied(self, ours: Event) -> bool:
        if not self._gap:
            folding.apply(self.state, ours)
            return True
        tried = self.state.layer()  # what raises in the middle must leave nothing behind
        try:
            folding.apply(tried, ours)
        except Nonsense:
            return False
        self.state = tried.merged_into(self.state)
        return True

    def _data(self, event: Event) -> Json:
        if event.type != "user/message":
            return event.data
        return {k: v for k, v in _message(event.data, self._rename).items() if k != "key"}

    def _surface(self, where: Any) -> Any:
        if not isinstance(where, dict):
            return where
        return {"replace": [self._seqs.get(seq, -1) for seq in where["replace"]]}

    def _sources(self, sources: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return sources and tuple(self._seqs[seq] for seq in sources if seq in self._seqs)

    def check(self) -> None:
        """Raises `Damaged` unless the model would see here what it sees there. Behind a gap it sees there,
        too, only what fits."""
        theirs = [self._seqs.get(entry.seq) for entry in self._surface_there]
        same = self._gap or theirs == [entry.seq for entry in self.state.surface]
        if not same or self.state.turn is not None:
            raise Damaged("not forked: what was repaired in this log leaves no whole history there.",
                          outcome="not-written")  # fmt: skip
