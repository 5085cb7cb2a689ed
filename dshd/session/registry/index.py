"""Views of the sessions that aren't loaded, for ten thousand of them: packed in memory, in one file on disk.

``STATE/views.jsonl`` is derived and deletable: one ``session`` object a line. So is ``view.json`` beside a
log: its one. Both are `sealed`. A view is believed only if it has what views of this version have and fits
its log's size (its ``bytes``); that costs a `stat` each, all in one hop. In memory a view stays the bytes
that it is, some 700 of them, beside the row that names are resolved by.

Blocking parts: all that read and write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from dshd import wire
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


class Index:
    """``{id: (row, view as JSON)}``."""

    def __init__(self) -> None:
        self._packed: dict[str, tuple[wire.SessionRow, bytes]] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._packed

    def put(self, view: Json) -> None:
        self._packed[view["id"]] = row(view), orjson.dumps(view)

    def pop(self, id: str) -> None:
        self._packed.pop(id, None)

    def view(self, id: str) -> Json | None:
        found = self._packed.get(id)
        if found is None:
            return None
        view: Json = orjson.loads(found[1])
        return view

    def rows(self) -> Iterator[tuple[str, wire.SessionRow]]:
        return ((id, row) for id, (row, _raw) in self._packed.items())

    def views(self) -> Iterator[tuple[str, Json]]:
        return ((id, orjson.loads(raw)) for id, (_row, raw) in self._packed.items())

    def lines(self) -> list[bytes]:
        return [raw for _row, raw in self._packed.values()]


def write(disk: Disk, state: Path, lines: Iterable[bytes]) -> None:
    """Durability: on return the new file is on disk, or (`OSError`) the old one is."""
    body = b"".join(line + b"\n" for line in lines)
    disk.write_atomic(state / NAME, seal(body))


def read(disk: Disk, state: Path, sessions: Path, ids: set[str]) -> tuple[list[Json], dict[str, Json]]:
    """The views that fit their logs, and by id those that don't, as it was once; none, if the file is not
    whole: then it is set aside."""
    views = aside.read(disk, state / NAME, _views, "so each session is looked at") or []
    return _sorted(views, disk, sessions, ids)


def peek(disk: Disk, state: Path, sessions: Path, ids: set[str]) -> tuple[list[Json], dict[str, Json]]:
    """The same, and nothing is set aside, for who isn't the daemon."""
    try:
        views = _views(unseal(disk.read_bytes(state / NAME)))
    except aside.FAULTS:
        views = []
    return _sorted(views, disk, sessions, ids)


def _sorted(
    views: list[Json], disk: Disk, sessions: Path, ids: set[str]
) -> tuple[list[Json], dict[str, Json]]:
    found = [v for v in views if v.get("id") in ids and v.keys() >= FIELDS]
    fit = [v for v in found if _fits(disk, sessions / v["id"] / LOG, v)]
    fitting = {v["id"] for v in fit}
    return fit, {v["id"]: v for v in found if v["id"] not in fitting}


def _views(body: bytes) -> list[Json]:
    *lines, rest = body.split(b"\n")
    if rest:
        raise ValueError("it has no end")
    return [dict(orjson.loads(line)) for line in lines]


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
