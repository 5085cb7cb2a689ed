"""What a person has allowed in every session: ``dshctl allow ID --always``.

``STATE/allowed.json`` holds it, for the config is a person's to write, and these are answers: each names the
approval that it was given to. It answers a rule's *ask* about the very same thing and nothing else (see
`tools.grants`). A file that is not whole is no answer: it is set aside, and everything is asked about again.
"""

from __future__ import annotations

from typing import Final

import attrs
import orjson
import trio

from dshd.log import aside
from dshd.log.disk import explained
from dshd.log.sealed import seal
from dshd.log.store import Store
from dshd.session.fold.approvals import Allowed
from dshd.session.registry.hops import Hops
from dshd.tools.grants import Grant

NAME: Final = "allowed.json"


class Always:
    """``allowed``: the oldest first; `read` must have been called. ``grants``: the same, for the tools."""

    def __init__(self, store: Store, hops: Hops) -> None:
        self.allowed: tuple[Allowed, ...] = ()
        self.grants: tuple[Grant, ...] = ()
        self._store = store
        self._hops = hops
        self._writing = trio.Lock()

    async def read(self) -> None:
        store = self._store
        self._hold(await self._hops.read(lambda: read(store)))

    async def add(self, allowed: Allowed) -> None:
        """Durability: on return it is on disk. Raises what the disk refuses with; then it isn't allowed."""
        async with self._writing:
            if all(one.grant != allowed.grant for one in self.allowed):
                await self._write((*self.allowed, allowed))

    async def forget(self, id: str) -> bool:
        """Whether there was anything to take back. Durability: on return it is gone for good."""
        async with self._writing:
            left = tuple(one for one in self.allowed if one.id != id)
            there = len(left) < len(self.allowed)
            if there:
                await self._write(left)
            return there

    async def _write(self, allowed: tuple[Allowed, ...]) -> None:
        store = self._store
        await self._hops.write(lambda: write(store, allowed))
        self._hold(allowed)

    def _hold(self, allowed: tuple[Allowed, ...]) -> None:
        self.allowed = allowed
        self.grants = grants(allowed)


def grants(allowed: tuple[Allowed, ...]) -> tuple[Grant, ...]:
    """As the tools' rules take them."""
    return tuple(Grant.from_json(one.grant) for one in allowed)


# Blocking.


def write(store: Store, allowed: tuple[Allowed, ...]) -> None:
    """Durability: on return it is on disk, or (`DshError`) what was there still is."""
    body = orjson.dumps([attrs.asdict(one) for one in allowed])
    with explained("write", store.state / NAME):
        store.disk.write_atomic(store.state / NAME, seal(body))


def read(store: Store) -> tuple[Allowed, ...]:
    """What was written; nothing, if the file is not whole."""
    lost = "so what it allowed is asked about again"
    return aside.read(store.disk, store.state / NAME, _parsed, lost) or ()


def _parsed(body: bytes) -> tuple[Allowed, ...]:
    found = tuple(Allowed(**one) for one in orjson.loads(body))
    grants(found)
    return found
