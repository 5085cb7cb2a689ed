"""Views of the sessions that aren't loaded, for ten thousand of them: packed in memory, in one file on disk.

``STATE/views.jsonl`` is derived and deletable: one ``session`` object a line. So is ``view.json`` beside a
log: its one. Both are `sealed`. A view is believed only if it has what views of this version have and fits
its log's size (its ``bytes``); that costs a `stat` each, all in one hop. In memory a view stays the bytes
that it is, some 700 of them, beside the row that names are resolved by.

Blocking parts: all that read and write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from dshd import kept, wire
from dshd.log import aside, witness
from dshd.log.disk import Disk
from dshd.log.sealed import seal, unseal
from dshd.log.store import LOG
from dshd.session.fold.state import State
from dshd.session.shown import views

NAME: Final = "views.jsonl"
VIEW: Final = "view.json"
FIELDS: Final = frozenset(views.session(State()))
Json = dict[str, Any]


def row(view: Json) -> wire.SessionRow:
    return wire.SessionRow(
        id=view["id"],
        name=view["name"],
        dir=view["dir"] or "",
        state=view["state"],
        implicit=bool(view.get("implicit")),
        active_at=view["active_at"] or 0,
        unread=unread(view),
    )


def unread(view: Json) -> str:
    """Why nothing is known of a session but that it is there; empty, if something is."""
    whys = [need.get("what") for need in view["needs"] if need["kind"] == "damaged"]
    return str(whys[0] or "") if whys and view["dir"] is None else ""


@attrs.frozen(slots=True)
class Packed:
    """A view that nobody looks into. ``agent``: the session is another's subagent."""

    row: wire.SessionRow
    agent: bool
    raw: bytes

    @classmethod
    def of(cls, view: Json) -> Packed:
        return cls(row(view), bool(view.get("agent")), kept.written(view))

    def view(self) -> Json:
        view: Json = orjson.loads(self.raw)
        return view


Sorted = tuple[list[tuple[Packed, Any]], dict[str, Json]]


class Index:
    """``{id: view}``."""

    def __init__(self) -> None:
        self._packed: dict[str, Packed] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._packed

    def put(self, view: Json) -> None:
        self.keep(Packed.of(view))

    def keep(self, packed: Packed) -> None:
        self._packed[packed.row.id] = packed

    def pop(self, id: str) -> None:
        self._packed.pop(id, None)

    def view(self, id: str) -> Json | None:
        found = self._packed.get(id)
        return found.view() if found is not None else None

    def rows(self) -> Iterator[tuple[str, wire.SessionRow]]:
        return ((id, packed.row) for id, packed in self._packed.items())

    def views(self) -> Iterator[tuple[str, Json]]:
        return ((id, packed.view()) for id, packed in self._packed.items())

    def packed(self) -> Mapping[str, Packed]:
        """As they are: of ten thousand, one after the other costs nothing, and all at once 80 MB."""
        return self._packed


def write(disk: Disk, state: Path, lines: Iterable[bytes]) -> None:
    """Durability: on return the new file is on disk, or (`OSError`) the old one is."""
    body = b"".join(line + b"\n" for line in lines)
    disk.write_atomic(state / NAME, seal(body))


def read(disk: Disk, state: Path, sessions: Path, ids: set[str]) -> Sorted:
    """The views that fit their logs, each with what it spent lately, and by id those that don't, as it was
    once; none, if the file is not whole: then it is set aside."""
    sort = partial(_sorted, disk, sessions, ids)
    return aside.read(disk, state / NAME, sort, "so each session is looked at") or ([], {})


def peek(disk: Disk, state: Path, sessions: Path, ids: set[str]) -> Sorted:
    """The same, and nothing is set aside, for who isn't the daemon."""
    try:
        return _sorted(disk, sessions, ids, unseal(disk.read_bytes(state / NAME)))
    except aside.FAULTS:
        return [], {}


def _sorted(disk: Disk, sessions: Path, ids: set[str], body: bytes) -> Sorted:
    """One after the other: ten thousand views at once are 80 MB."""
    *lines, rest = body.split(b"\n")
    if rest:
        raise ValueError("it has no end")
    fit: dict[str, tuple[Packed, Any]] = {}
    others: dict[str, Json] = {}
    for view in (dict(orjson.loads(line)) for line in lines):
        if view.get("id") not in ids or not view.keys() >= FIELDS:
            continue
        if _fits(disk, sessions / view["id"] / LOG, view):
            lately = view.pop("lately", None)
            fit[view["id"]] = Packed.of(view), lately
        else:
            others[view["id"]] = view
    return list(fit.values()), {id: view for id, view in others.items() if id not in fit}


def write_beside(disk: Disk, log: Path, view: Json, durable: int = -1) -> None:
    """``durable``: all up to this seq is. Durability: as for `write`."""
    known = witness.testimony(disk, log, durable) if durable >= 0 else {}
    disk.write_atomic(log.with_name(VIEW), seal(orjson.dumps({**known, **view})))


def read_beside(disk: Disk, log: Path) -> Json | None:
    """The view beside ``log`` as that directory's, if it fits."""
    view = saved_beside(disk, log)
    return views.in_directory(view, log.parent.name) if view and _fits(disk, log, view) else None


def saved_beside(disk: Disk, log: Path) -> Json | None:
    """The view beside ``log``, whether it fits or not."""
    try:
        view: Json = orjson.loads(unseal(disk.read_bytes(log.with_name(VIEW))))
    except (OSError, ValueError):
        return None
    view.pop("durable", None)
    return view if view.keys() >= FIELDS else None


def _fits(disk: Disk, log: Path, view: Json) -> bool:
    try:
        return bool(view["bytes"] == disk.stat(log).size)
    except OSError:
        return False
