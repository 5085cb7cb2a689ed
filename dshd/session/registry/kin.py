"""The sessions of subagents: made, found, stopped, closed and removed with their parents.

Such a session has its parent's id in the setting ``agent``, and how deep it is in its header. It is like a
run: closed when it is over, kept for a while, and never the session of a directory. `Ties` says what it may
not go beyond: its parent's budgets, mode and network, as they are now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from dshd import wire
from dshd.driver.port import Services
from dshd.errors import DshError, NotFound
from dshd.log.store import Store
from dshd.model.routes import Choice
from dshd.session.deciding import budget
from dshd.session.deciding.budget import Now, Stop
from dshd.session.deciding.subagenting import depth_of
from dshd.session.fold.state import State
from dshd.session.fold.subagents import Subagent
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry.hops import Hops
from dshd.session.registry.listing import Listing
from dshd.session.registry.loader import Loader
from dshd.session.registry.making import Maker
from dshd.session.registry.naming import Naming, fresh_id
from dshd.session.shown import agents as shown
from dshd.wire import MODES

if TYPE_CHECKING:
    from dshd.session.registry.porter import Porter

log = logging.getLogger(__name__)
Json = dict[str, Any]

_LIKE_ITS_PARENT: Final = (
    "dir", "mode", "net", "ask", "patience", "max_cost", "max_steps", "max_time", "max_tokens",
)  # fmt: skip


@attrs.frozen(slots=True)
class ByAgent(Peer):
    """Who makes and steers them."""

    about: Any = None

    def _source(self, kind: str) -> Json:
        return dict(self.about)


def by(parent: str) -> ByAgent:
    return ByAgent(uid=0, kind="system", about={"kind": "agent", "via": parent})


class Ties:
    """What a subagent shares with its parent. ``loaded``: sessions in memory, among them the parents of all
    subagents that work."""

    def __init__(self, loaded: Mapping[str, Session], services: Services) -> None:
        self._loaded = loaded
        self._services = services

    def stops(self, state: State) -> Stop | None:
        """The budget of its parent, or of that one's, that keeps a subagent from going on."""
        parent = self._parent(state)
        if parent is None:
            return None
        services = self._services
        work, today = parent.driver.work, services.days.counted(services.config(), services.now())
        now = Now(work.worked if work is not None else None, today)
        return budget.stops(parent.state, services.config(), now) or self.stops(parent.state)

    def bounds(self, state: State, mode: str, net: bool) -> tuple[str, bool]:
        """Its mode and network, no more than its parent has now."""
        parent = self._parent(state)
        if parent is None:
            return mode, net
        settings = parent.state.settings
        theirs = str(settings.get("mode") or "workspace")
        least = min(mode, theirs, key=MODES.index) if mode in MODES and theirs in MODES else mode
        return self.bounds(parent.state, least, net and bool(settings.get("net")))

    def _parent(self, state: State) -> Session | None:
        id = state.settings.get("agent")
        return self._loaded.get(str(id)) if id else None


def works_for(loaded: Mapping[str, Session], state: State) -> list[Session]:
    """The sessions that this one works for, the nearest first: none, if it is no subagent's."""
    parent = loaded.get(str(state.settings.get("agent") or ""))
    return [] if parent is None else [parent, *works_for(loaded, parent.state)]


def asking(loaded: Mapping[str, Session], session: Session) -> list[Json]:
    """Its questions that wait for a person, and who it works for."""
    above = [{"id": one.id, "name": one.name} for one in works_for(loaded, session.state)]
    return [{**approval, "works_for": above} for approval in session.approvals()]


class Kin:
    """`owner.agents.House`."""

    def __init__(
        self, store: Store, hops: Hops, loaded: Mapping[str, Session], listing: Listing, naming: Naming,
        services: Services,
    ) -> None:  # fmt: skip
        self._store = store
        self._hops = hops
        self._loaded = loaded
        self._listing = listing
        self._naming = naming
        self._services = services
        self._loader: Loader
        self._maker: Maker
        self._porter: Callable[[], Porter]

    def has(self, loader: Loader, maker: Maker, porter: Callable[[], Porter]) -> None:
        """What makes sessions, and loads them: those need us in their turn."""
        self._loader, self._maker, self._porter = loader, maker, porter

    # --- for their parents

    async def fresh_id(self) -> str:
        return fresh_id(await self._listing.rows())

    async def make(self, parent: str, one: Subagent) -> State:
        """See `House`. After a crash it may be there, and its prompt not."""
        above = await self._loader.get(parent)
        if not await self._there(one.id):
            await (self._fork if one.context == "fork" else self._fresh)(above, one)
        session = await self._loader.get(one.id)
        if one.context == "fork" and not session.state.closed:
            send = wire.SendParams(verb="followup", text=one.prompt, key=f"agent:{one.id}")
            await session.send(send, by(parent))
        session.driver.poke()
        return session.state

    async def _there(self, id: str) -> bool:
        return await self._hops.read(lambda: self._store.exists(id))

    async def _fresh(self, parent: Session, one: Subagent) -> None:
        settings = parent.state.settings
        like: Any = {name: settings.get(name) for name in _LIKE_ITS_PARENT}
        env = dict(self._services.environment(parent.state))
        p = wire.CreateParams(**like, env=env, run=True, text=one.prompt)
        choice = Choice(str(settings.get("model")), "its parent's")
        more = {
            "parent": parent.id,
            "agent": parent.id,
            "origin": "agent",
            "depth": depth_of(parent.state) + 1,
        }
        async with self._naming.alone:
            rows = await self._listing.rows()
            await self._maker.make(one.id, p, rows, choice, by(parent.id), more)

    async def _fork(self, parent: Session, one: Subagent) -> None:
        await self._porter().fork(parent, wire.ForkParams(session=parent.id), by(parent.id), agent=one.id)

    async def say(self, parent: str, id: str, text: str) -> None:
        session = await self._loader.get(id)
        await session.send(wire.SendParams(verb="steer", text=text), by(parent))

    async def abort(self, id: str, by: Any) -> State | None:
        try:
            session = await self._loader.get(id)
            await session.abort(wire.AbortParams(disposition="clear", reason="stopped"), _as(by))
            return session.state
        except NotFound:
            return None

    def changed(self, state: State) -> None:
        parent = self._loaded.get(str(state.settings.get("agent")))
        if parent is not None:
            parent.agents.child(state)

    def asked(self, state: State) -> None:
        """Who waits for one of those that it works for may have another end to tell of."""
        for above in works_for(self._loaded, state):
            above.rested()

    def asks(self, id: str) -> list[Json]:
        child = self._loaded.get(id)
        if child is None:
            return []
        between = child.state.turn is None  # then it goes on when those that it has at work end
        return [*asking(self._loaded, child), *child.agents.asks(all=between)]

    # --- with their parents

    def of(self, parent: str) -> list[str]:
        """The sessions of its subagents that are there."""
        return [view["id"] for view in self._listing.known() if view.get("agent") == parent]

    async def close_all(self, parent: str, by: Any) -> None:
        for id in self.of(parent):
            try:
                session = await self._loader.get(id)
                if not session.state.closed:
                    await session.close(True, _as(by))
            except DshError as error:
                log.warning("subagent %s was not closed: %s", id, error)

    # --- for people

    async def rows(self, session: str | None, all: bool) -> list[Json]:
        """``agent`` objects, the oldest first: those at work, or ``all`` that are known."""
        sessions = [await self._loader.get(session)] if session is not None else list(self._loaded.values())
        rows = [
            self._row(parent, one)
            for parent in sessions
            for one in parent.state.agents.values()
            if all or one.runs
        ]
        return sorted(rows, key=lambda row: row["started_at"])

    def _row(self, parent: Session, one: Subagent) -> Json:
        child = self._loaded.get(one.id)
        if child is None:
            return shown.agent(parent.state, one, None)
        return shown.agent(parent.state, one, child.state, child.activity)

    async def stop(self, id: str, peer: Peer) -> Json:
        """End one. Raises `NotFound`, `Conflict` if it has ended."""
        parent = next((one for one in self._loaded.values() if id in one.state.agents), None)
        if parent is None:
            raise NotFound(f"no subagent {id} is at work", hint="dshctl agents --all")
        parent.guard_person(peer)
        await parent.agents.stop(id)
        return shown.agent(parent.state, parent.state.agents[id], None)


def _as(by: Any) -> ByAgent:
    return ByAgent(uid=0, kind="system", about=dict(by or {"kind": "system", "via": "agent"}))
