"""Names are unique among open sessions; making, renaming and reopening are decided one at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import trio

from dshd import wire
from dshd.errors import Conflict
from dshd.session.registry.listing import Listing


class Naming:
    def __init__(self, listing: Listing) -> None:
        self.alone = trio.Lock()  # held by who decides
        self._listing = listing

    @contextlib.asynccontextmanager
    async def taking(self, name: str, id: str) -> AsyncIterator[None]:
        """Within, ``id`` may come to be called ``name``. Raises `Conflict` if it is taken."""
        async with self.alone:
            for row in await self._listing.rows():
                if row.name == name and row.id != id and row.state != "closed":
                    raise Conflict(f'the name "{name}" is taken by {row.id}.', hint="dshctl ls",
                                   outcome="not-written")  # fmt: skip
            yield


def name_of(p: wire.CreateParams, taken: list[str]) -> str | None:
    """What a new session is called."""
    if p.name is not None:
        wire.check_name(p.name)
        if p.name in taken:
            raise Conflict(f'the name "{p.name}" is taken.', hint=f"dshctl show {p.name}")
        return p.name
    return wire.name_for_directory(p.dir, taken) if p.implicit else None


def fresh_id(rows: list[wire.SessionRow]) -> str:
    """An id for a new session that none has."""
    taken = {row.id for row in rows}
    while (id := wire.session_id(os.urandom(7))) in taken:
        pass
    return id
