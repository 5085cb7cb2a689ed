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
from dshd.log.disk import Disk
from dshd.log.store import LOG
from dshd.session.disk.sealed import seal, unseal
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
    )


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


def read(disk: Disk, state: Path, sessions: Path, ids: set[str]) -> list[Json]:
    """The views that fit their logs; none, if the file is not whole."""
    try:
        lines = unseal(disk.read_bytes(state / NAME)).split(b"\n")[:-1]
    except (OSError, ValueError):
        return []
    found: list[Json] = list(map(orjson.loads, lines))
    return [v for v in found if v.get("id") in ids and _fits(disk, sessions / v["id"] / LOG, v)]


def write_beside(disk: Disk, log: Path, view: Json) -> None:
    """Durability: as for `write`."""
    disk.write_atomic(log.with_name(VIEW), seal(orjson.dumps(view)))


def read_beside(disk: Disk, log: Path) -> Json | None:
    """The view beside ``log`` as that directory's, if it fits."""
    try:
        view: Json = orjson.loads(unseal(disk.read_bytes(log.with_name(VIEW))))
    except (OSError, ValueError):
        return None
    return views.in_directory(view, log.parent.name) if _fits(disk, log, view) else None


def _fits(disk: Disk, log: Path, view: Json) -> bool:
    try:
        return view.keys() >= FIELDS and view["bytes"] == disk.stat(log).size
    except OSError:
        return False
