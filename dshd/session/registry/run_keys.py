"""The keys of runs whose sessions were removed: who asks again is told what came of it, and nothing is run.

A key of a run holds in the whole state directory, and longer than its session does. While that is there its
own log answers; before its directory goes, what it would have answered is written to ``STATE/run-keys.json``:
the first receipt, the result without the answer's text, and the fingerprint of what was asked. Of a session
that is still there after a crash, its own log is believed. The newest `MOST` keys are kept; the file can't be
made again from anything else.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import attrs
import orjson
import trio

from dshd.log import aside
from dshd.log.disk import Disk
from dshd.log.sealed import seal
from dshd.log.store import Store
from dshd.session.deciding import sending
from dshd.session.disk import opening
from dshd.session.fold.state import State
from dshd.session.registry.hops import Hops
from dshd.session.shown import ends, views

log = logging.getLogger(__name__)
Json = dict[str, Any]

NAME: Final = "run-keys.json"
MOST: Final = 4096


@attrs.frozen(slots=True)
class Used:
    """``fingerprint``: of what was asked (`state.fingerprint`); ``receipt`` and ``result``: what came of it,
    as the protocol has them."""

    fingerprint: str
    receipt: Json
    result: Json

    @property
    def failed(self) -> bool:
        """Whether ``--retry`` means it."""
        return self.result["outcome"] in sending.RETRIED


def used(state: State) -> tuple[str, Used] | None:
    """What is to be kept of a session that is about to be removed: ``(key, ...)`` of a run that had one. Its
    first message must be in memory."""
    key = state.settings.get("key")
    keyed = state.keys.get(key) if key is not None and state.settings.get("run") else None
    if keyed is None:
        return None
    id = keyed.message
    if state.receipts[id].message.kind == "schedule":
        return None  # an instant is settled once, and nobody comes again
    removed = ends.result(state, message=id, turn=None, exit=17, outcome="removed")
    result = {**(ends.settled(state, id) or removed), "text": None, "parked": None}
    receipt = {**views.receipt(state, id, duplicate=True), "parked": None, "outcome": result["outcome"]}
    return str(key), Used(keyed.fingerprint, receipt, result)


class RunKeys:
    def __init__(self, store: Store, hops: Hops) -> None:
        self._store = store
        self._hops = hops
        self._used: dict[str, Used] = {}  # the newest last
        self._writing = trio.Lock()

    async def read(self) -> None:
        store = self._store
        self._used = await self._hops.read(lambda: read(store.disk, store.state))

    def get(self, key: str) -> Used | None:
        return self._used.get(key)

    async def keep(self, id: str, state: State | None) -> None:
        """This session is about to be removed; ``state`` None: it could not be opened.

        Durability: on return what its key stands for is on disk, if the disk takes it.
        """
        found = used(state if state is not None else await self._hops.read(lambda: self._glance(id)))
        if found is None:
            return
        key, what = found
        self._used.pop(key, None)
        self._used[key] = what
        for oldest in list(self._used)[:-MOST]:
            del self._used[oldest]
        await self._write()

    def _glance(self, id: str) -> State:
        try:
            return opening.glance(self._store.disk, self._store.log_path(id)).state
        except Exception:  # the boundary: whatever is wrong with it, it is to be removed
            log.exception("session %s can't be read: if it was a run with a key, that is forgotten", id)
            return State()

    async def _write(self) -> None:
        store = self._store
        async with self._writing:
            used = dict(self._used)
            try:
                await self._hops.read(lambda: write(store.disk, store.state, used))
            except OSError as error:
                log.warning("%s was not written: %s", NAME, error)


# Blocking.


def write(disk: Disk, state: Path, used: dict[str, Used]) -> None:
    """Durability: on return it is on disk, or (`OSError`) what was there still is."""
    body = orjson.dumps({key: attrs.asdict(what) for key, what in used.items()})
    disk.write_atomic(state / NAME, seal(body))


def read(disk: Disk, state: Path) -> dict[str, Used]:
    """What was written; nothing, if the file is not whole."""
    return aside.read(disk, state / NAME, _parsed, "so the keys in it are forgotten") or {}


def _parsed(body: bytes) -> dict[str, Used]:
    return {key: Used(**what) for key, what in orjson.loads(body).items()}
