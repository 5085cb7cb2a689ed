"""Views of the sessions that aren't loaded, for ten thousand of them: packed in memory, in one file on disk.

``STATE/views.jsonl`` is derived and deletable: a checksum line, then one ``session`` object a line. A view
is believed only if it fits its log's size (its ``bytes``); that costs a `stat` each, all in one hop. In
memory a view stays the bytes that it is, some 700 of them, beside the row that names are resolved by.

Blocking parts: `read` and `write`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from dshd import wire
from dshd.log.disk import Disk
from dshd.log.store import LOG

NAME: Final = "views.jsonl"
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

    def rows(self) -> Iterator[tuple[str, wire.SessionRow]]:
        return ((id, row) for id, (row, _raw) in self._packed.items())

    def views(self) -> Iterator[tuple[str, Json]]:
        return ((id, orjson.loads(raw)) for id, (_row, raw) in self._packed.items())

    def lines(self) -> list[bytes]:
        return [raw for _row, raw in self._packed.values()]


def write(disk: Disk, state: Path, lines: Iterable[bytes]) -> None:
    """Durability: on return the new file is on disk, or (`OSError`) the old one is."""
    body = b"".join(line + b"\n" for line in lines)
    disk.write_atomic(state / NAME, [_digest(body) + b"\n", body])


def read(disk: Disk, state: Path, sessions: Path, ids: set[str]) -> list[Json]:
    """The views that fit their logs; none, if the file is not whole."""
    try:
        digest, _, body = disk.read_bytes(state / NAME).partition(b"\n")
        if digest != _digest(body):
            return []
        views = map(orjson.loads, body.split(b"\n")[:-1])
        return [view for view in views if view["id"] in ids and _fits(disk, sessions, view)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _fits(disk: Disk, sessions: Path, view: Json) -> bool:
    try:
        size = disk.stat(sessions / view["id"] / LOG).size
    except OSError:
        return False
    return bool(view["type"] == "session" and view["bytes"] == size)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).hexdigest().encode()
