"""A session that is asked for: a new one, or what the same key stands for.

| the key                                   | then                                                         |
|-------------------------------------------|--------------------------------------------------------------|
| none, or never used                       | a new session                                                |
| of a session that is there                | that one; its first receipt, if something was said           |
| of a run whose session was removed        | what came of that (`run_keys`); nothing is run               |
| the same, it had failed, and ``retry``    | a new session                                                |
| used for something else                   | a conflict                                                   |
| perhaps that of a session of which        | refused: it may have run                                     |
| nothing can be read                       |                                                              |
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from dshd import wire
from dshd.driver.port import Services
from dshd.errors import Conflict, Denied, NotFound
from dshd.session.deciding import agreeing
from dshd.session.fold.state import State
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry.listing import Listing
from dshd.session.registry.loader import Loader
from dshd.session.registry.making import Maker
from dshd.session.registry.naming import Naming, fresh_id
from dshd.session.registry.run_keys import RunKeys, Used

Json = dict[str, Any]

_ASKED: Final = (
    "name", "dir", "model", "mode", "net", "ask", "patience",
    "max_cost", "max_steps", "max_time", "max_tokens",
)  # fmt: skip


@attrs.frozen(slots=True)
class Created:
    """``session`` None: it is no more, and ``result`` is what came of it. ``duplicate``: the key was used."""

    session: Session | None
    receipt: Json | None
    duplicate: bool = False
    result: Json | None = None


class Creator:
    def __init__(
        self, listing: Listing, naming: Naming, loader: Loader, maker: Maker, run_keys: RunKeys,
        services: Services,
    ) -> None:  # fmt: skip
        self._listing = listing
        self._naming = naming
        self._loader = loader
        self._maker = maker
        self._run_keys = run_keys
        self._services = services

    async def create(self, p: wire.CreateParams, peer: Peer) -> Created:
        """Durability: on return the session's directory, its log and the message are on disk.

        Raises `Denied`, `Invalid`, `Conflict` (the name is taken, the key was used for something else),
        `NotConfigured` (no model).
        """
        if peer.kind == "agent":
            raise Denied("a tool can't make sessions.")
        choice = await self._services.models.choose(p.model, client_is_terminal=p.terminal)
        async with self._naming.alone:
            unread = p.key is not None and await self._listing.look_again()
            rows = await self._listing.rows()
            if p.key is not None and (again := await self._again(p.key, p, peer)) is not None:
                return again
            if unread and peer.kind != "schedule":  # whose instants are noted in a log of their own
                wire.refuse_if_unread(rows, f'may be what key "{p.key}" stands for', "dshctl ls")
            id = fresh_id(rows)
            receipt = await self._maker.make(id, p, rows, choice, peer)
            session = await self._loader.get(id)
            session.driver.poke()
            return Created(session, receipt)

    async def check(self, p: wire.CreateParams, peer: Peer) -> None:
        """Raises what `create` would, of what can be known before."""
        if p.name is not None:
            wire.check_name(p.name)
        choice = await self._services.models.choose(p.model, client_is_terminal=p.terminal)
        await self._maker.check(p.replace(name=None), choice)

    async def _again(self, key: str, p: wire.CreateParams, peer: Peer) -> Created | None:
        session = await self._of_key(key)
        if session is not None:
            return Created(session, await self._first_again(session, p, peer), duplicate=True)
        used = self._run_keys.get(key) if p.run else None
        if used is None or (p.retry and used.failed):
            return None
        self._check_same(key, used, p, peer)
        return Created(None, used.receipt, duplicate=True, result=used.result)

    async def _of_key(self, key: str) -> Session | None:
        """None, too, if it is removed in this moment."""
        known = self.id_of_key(key)
        try:
            return None if known is None else await self._loader.get(known)
        except NotFound:
            return None

    def id_of_key(self, key: str) -> str | None:
        return next((view["id"] for view in self._listing.known() if view.get("key") == key), None)

    async def _first_again(self, session: Session, p: wire.CreateParams, peer: Peer) -> Json | None:
        if p.text is None and p.content is None:
            self._check_asked(session, p)
            return None
        send = wire.SendParams(verb="followup", text=p.text, content=p.content, key=p.key, retry=p.retry)
        return await session.send(send, peer)

    def _check_asked(self, session: Session, p: wire.CreateParams) -> None:
        """What was asked for must be what the first one was made as, whatever became of that."""
        header = session.state.header or {}
        asked = {name: value for name in _ASKED if (value := getattr(p, name)) is not None}
        first = State(header=header, settings=dict(header))
        wanted = agreeing.meant(asked, first, self._services)
        agreeing.check(wanted, first, f'not made: key "{p.key}" was used, and', f"dshctl show {session.name}")

    def _check_same(self, key: str, used: Used, p: wire.CreateParams, peer: Peer) -> None:
        if self._maker.fingerprint(p, peer) != used.fingerprint:
            message = used.receipt["message"]
            raise Conflict(f'key "{key}" was used for another text ({message}, removed since).',
                           outcome="not-written", data={"message": message})  # fmt: skip
