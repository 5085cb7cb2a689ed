"""Ids that count up in the state directory: approvals (``a1``), jobs (``j1``), schedules (``c1``).

``STATE/ids.json`` holds the next number of each kind, and which session the newest ids are of. A number is
taken on disk before it is used, so none is given twice; one that is taken and never used is a gap that means
nothing. If the file is lost, it is made again from the logs, when the next number is wanted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any, Final

import orjson
import trio

from dshd.log import aside
from dshd.log.disk import explained
from dshd.log.reader import read_lines
from dshd.log.sealed import seal
from dshd.log.store import OWN, Store
from dshd.session.registry.hops import Hops

log = logging.getLogger(__name__)
Json = dict[str, Any]

NAME: Final = "ids.json"
MOST: Final = 4096  # ids whose session is remembered
# Of each kind: what stands in a log's line that brings one, and in it the number.
IN_LOGS: Final = {
    "a": re.compile(rb'"type":"approval/asked","data":\{"id":"a([0-9]{1,15})"'),
    "c": re.compile(rb'"type":"schedule/added","data":\{"id":"c([0-9]{1,15})"'),
    "j": re.compile(rb'"type":"job/started","data":\{"id":"j([0-9]{1,15})"'),
}


class Numbers:
    def __init__(self, store: Store, hops: Hops) -> None:
        self._store = store
        self._hops = hops
        self._next: dict[str, int] | None = None  # until it is first needed
        self._of: dict[str, str] = {}  # {id: session}, the newest last
        self._one_at_a_time = trio.Lock()

    async def take(self, kind: str, count: int, session: str, least: int = 1) -> list[str]:
        """The next ``count`` ids, for this session; none is under ``least``.

        Durability: on return they are taken for ever. Raises what the disk refuses with; then none is.
        """
        async with self._one_at_a_time:
            known = await self._known()
            first = max(known.get(kind, 1), least)
            ids = [f"{kind}{number}" for number in range(first, first + count)]
            of = {**self._of, **dict.fromkeys(ids, session)}
            of = dict(list(of.items())[-MOST:])
            after = {**known, kind: first + count}
            store = self._store
            await self._hops.write(lambda: write(store, after, of))
            self._next, self._of = after, of
            return ids

    async def session_of(self, id: str) -> str | None:
        """Whose id it is, if it is among the newest."""
        async with self._one_at_a_time:
            await self._known()
        return self._of.get(id)

    async def _known(self) -> dict[str, int]:
        if self._next is None:
            store = self._store
            known, self._of = await self._hops.read(lambda: read(store))
            self._next = known
        return self._next


# Blocking.


def write(store: Store, next: dict[str, int], of: dict[str, str]) -> None:
    """Durability: on return it is on disk, or what was there still is (`DshError`)."""
    body = orjson.dumps({"next": next, "of": of})
    with explained("write", store.state / NAME):
        store.disk.write_atomic(store.state / NAME, seal(body))


def read(store: Store) -> tuple[dict[str, int], dict[str, str]]:
    """(next numbers, sessions of ids): as written, else as the logs have them."""
    lost = "so it is made again from the logs"
    return aside.read(store.disk, store.state / NAME, _parsed, lost) or from_logs(store)


def _parsed(body: bytes) -> tuple[dict[str, int], dict[str, str]]:
    found = orjson.loads(body)
    return {str(k): int(v) for k, v in found["next"].items()}, dict(found["of"])


def from_logs(store: Store) -> tuple[dict[str, int], dict[str, str]]:
    """The same as far as logs that can be read tell."""
    next: dict[str, int] = {}
    of: dict[str, tuple[int, str]] = {}
    for session in [*store.ids(), *([OWN] if store.exists(OWN) else [])]:
        for kind, number in _in_log(store, session):
            next[kind] = max(next.get(kind, 1), number + 1)
            of[f"{kind}{number}"] = (number, session)
    newest = sorted(of.items(), key=lambda item: item[1][0])[-MOST:]
    return next, {id: session for id, (_, session) in newest}


def _in_log(store: Store, session: str) -> Iterator[tuple[str, int]]:
    path = store.log_path(session)
    try:
        for _, line in read_lines(store.disk, path):
            for kind, pattern in IN_LOGS.items():
                if (found := pattern.search(line[:200])) is not None:
                    yield kind, int(found[1])
    except OSError as error:
        log.warning("%s can't be read: %s", path, error)
