"""All sessions of a state directory: which there are, which are loaded, making and removing them.

| what                                             | is in         |
|--------------------------------------------------|---------------|
| which there are, without loading them            | `listing`     |
| which are in memory                              | `loader`      |
| who is called what                               | `naming`      |
| making one, or finding the one of a key          | `creating`    |
| removing them                                    | `removing`    |
| forks, imports and exports                       | `porter`      |
| checking, repairing, reopening after a fault     | `mending`     |
| what tools run with                              | `environment` |
| what is due when                                 | `scheduler`   |
| jobs: where they are, and those that were kept   | `jobs`, `kept_jobs` |
| subagents                                        | `kin`         |
| who asks, and what answers allow everywhere      | `approvals`   |
| the daemon's start and end, finding them         | here          |
"""

from __future__ import annotations

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from dshd import wire
from dshd.driver.port import Services
from dshd.errors import Conflict, Damaged, Denied, DshError, NotFound
from dshd.log.disk import Disk
from dshd.log.store import OWN, Store
from dshd.session.fold.who import Peer
from dshd.session.owner import loading
from dshd.session.owner.board import Board
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from dshd.session.owner.surroundings import Surroundings
from dshd.session.registry.approvals import Approvals
from dshd.session.registry.creating import Created, Creator
from dshd.session.registry.desk import Desk
from dshd.session.registry.environment import Environments
from dshd.session.registry.hops import Hops
from dshd.session.registry.host import Host
from dshd.session.registry.jobs import AllJobs
from dshd.session.registry.kept_jobs import KeptJobs
from dshd.session.registry.kin import Kin, Ties
from dshd.session.registry.listing import Listed, Listing
from dshd.session.registry.loader import Loader
from dshd.session.registry.making import Maker
from dshd.session.registry.mending import Mender
from dshd.session.registry.naming import Naming
from dshd.session.registry.removing import Remover
from dshd.session.registry.reserve import Reserve
from dshd.session.registry.run_keys import RunKeys
from dshd.session.registry.scheduler import Scheduler
from dshd.session.registry.starting import Starting

if TYPE_CHECKING:
    from dshd.session.porting.packing import Read
    from dshd.session.registry.porter import Export, Porter

log = logging.getLogger(__name__)
Json = dict[str, Any]

LAST_KEEPING_S: Final = 3.0  # for checkpoints, when the daemon stops


class Registry:
    """One of each room, wired; the verbs go to them. `approvals`, `jobs`, `kin` and `schedules` are asked
    themselves."""

    def __init__(self, store: Store, services: Services, host: Host) -> None:
        self.store = store
        self.loaded: dict[str, Session] = {}
        self._host = host
        self._opened = trio.Event()
        self._hops = hops = Hops(store.disk, host.threads)
        self._reserve = Reserve(store, hops, services.reserve, host.start)
        self._environments = Environments(store)
        self.desk = desk = Desk(store, hops)
        self.services = self._joined(services)
        self._kept_jobs = KeptJobs(store, hops)
        self._run_keys = RunKeys(store, hops)
        self._listing = listing = Listing(store, hops, self.loaded, services.days, services.now)
        self._naming = Naming(listing)
        self.bell = listing.bell
        self.kin = Kin(store, hops, self.loaded, listing, self._naming, self.services)
        self._board = self._new_board()
        self._around = self._surroundings()
        self._loader = loader = Loader(
            store, hops, self.loaded, listing, self._environments, self._around, host.upkeep or Upkeep()
        )
        self._starting = Starting(loader.get, self._reserve.give, host.start)
        self._mender = Mender(store, hops, loader, self.services.models)
        maker = Maker(store, hops, self.services)
        self._creator = Creator(listing, self._naming, loader, maker, self._run_keys, self.services)
        self.schedules = Scheduler(
            store, hops, listing, loader, self._creator, self.services, self._board, desk.numbers,
            host.what_ends_us,
        )  # fmt: skip
        self.approvals = Approvals(store, hops, self.loaded, desk, loader.get)
        self.jobs = AllJobs(store, hops, self.loaded, loader, self._kept_jobs, desk.numbers)
        self._remover = Remover(
            store, hops, listing, loader, self._run_keys, self.services, self._gone, self.kin.of
        )
        self.kin.has(loader, maker, lambda: self._porter)
        services.attention.begin(host.start)

    def _joined(self, services: Services) -> Services:
        """The daemon's, with what is ours."""
        desk = self.desk
        return attrs.evolve(
            services, environment=self._environments.of, reserve=self._reserve.give, numbers=desk.numbers,
            allowed=lambda: desk.always.grants, ties=Ties(self.loaded, services),
        )  # fmt: skip

    def _new_board(self) -> Board:
        return Board(
            self.services.now, self._host.start, lambda id: self.schedules.fire(id),
            lambda key, outcome: self.schedules.ended(key, outcome),
        )  # fmt: skip

    def _surroundings(self) -> Surroundings:
        store, hops, host = self.store, self._hops, self._host
        on_lines = host.on_lines
        return Surroundings(
            services=self.services,
            start=host.start,
            mark=lambda id: hops.write(lambda: store.mark(id)),
            unmark=self._unmark,
            attach=lambda id, files: hops.write(lambda: store.attach(id, files)),
            detach=lambda id, names: hops.read(lambda: store.detach(id, names)),
            what_ends_us=host.what_ends_us,
            reopening=self._naming.taking,
            board=self._board,
            kept_jobs=self._kept_jobs,
            kin=self.kin,
            on_lines=lambda id, first, lines: on_lines(id, first, lines) if id != OWN else None,
            on_reset=host.on_reset,
            on_approvals=self.desk.changed.fire,
            on_changed=self._listing.bell.ring,
            boot=host.boot,
            version=host.version,
        )

    def _gone(self, id: str) -> None:
        self._board.gone(id)
        self._host.on_gone(id)

    @cached_property
    def _porter(self) -> Porter:
        """Imported when the first session comes or goes: few daemons ever do that."""
        from dshd.session.registry.porter import Porter

        return Porter(
            self.store, self._hops, self._listing, self._naming, self._loader, self._environments,
            self.services, self.schedules.take_numbers,
        )  # fmt: skip

    @property
    def disk(self) -> Disk:
        return self.store.disk

    # --- start and stop

    async def start(self) -> None:
        """Sweep leftovers, open what is marked active and drive it; then list all the others."""
        read, unloads = self._hops.read, self._host.upkeep is not None
        await read(self.store.sweep)
        await self.desk.always.read()
        ids = set(await read(self.store.ids))
        marked = await read(self.store.marked)
        with self.services.places.settling(len(marked)):
            for id in marked:
                there = id in ids or id == OWN
                await (self._starting.one(id) if there else self._around.unmark(id))
            for _ in range(2):  # until those that were opened last stand in line, too
                await trio.lowlevel.checkpoint()
        self._opened.set()
        await self.jobs.end_leftovers()
        if unloads:
            self._host.start(self._loader.look_after)
        self.schedules.ready()
        await self._run_keys.read()
        await self._listing.read(ids)
        if unloads:
            self._host.start(self._remover.look_after)
        await self._reserve.hold()

    async def opened(self) -> None:
        """Returns when all that a start opens by itself is open. What is asked of the sessions in memory
        (who has a question, whose job runs) has no answer before."""
        await self._opened.wait()

    async def _unmark(self, id: str) -> None:
        """A mark too many does no harm, so that it stays is no reason to stop anything."""
        try:
            await self._hops.read(lambda: self.store.unmark(id))
        except DshError as error:
            log.warning("%s", error)

    async def drain(self, grace: float) -> None:
        """Let running turns reach a step boundary for ``grace`` s, then interrupt them."""
        self._loader.draining = True
        sessions = list(self.loaded.values())
        for session in sessions:
            session.driver.stop_at_boundary()
            session.rested()  # those who wait for room
        with trio.move_on_after(grace):
            for session in sessions:
                await session.drain()
        for session in sessions:
            session.driver.cancel("shutdown")
            session.ends.stop()
        with trio.move_on_after(grace + 5):
            async with trio.open_nursery() as nursery:
                for session in sessions:
                    nursery.start_soon(session.jobs.stop_all, "shutdown")
            for session in sessions:
                await session.drain()
        await self._keep(sessions)

    async def written(self) -> None:
        """Returns when nothing that was asked is still on its way to disk, and all are told."""
        for session in list(self.loaded.values()):
            await session.written()

    async def _keep(self, sessions: list[Session]) -> None:
        """What makes the next start a quick one."""
        last = trio.current_time() + LAST_KEEPING_S
        for session in sessions:
            await self._listing.save_view(session)
            if trio.current_time() < last:
                await session.keep()
        await self._listing.save()

    def reloaded(self) -> None:
        """The config was read again, and may be what a provider is waited for."""
        for session in self.loaded.values():
            session.try_now("reload")
        self.services.places.look()

    # --- which there are

    async def rows(self) -> list[wire.SessionRow]:
        """What `wire.resolve` chooses from."""
        return await self._listing.rows()

    async def views(self, all: bool) -> list[Json]:
        """``session`` objects, newest activity first."""
        return await self._listing.views(all)

    async def listed(self) -> list[Listed]:
        """The same, for one who only passes them on."""
        return await self._listing.listed()

    def known(self) -> list[Json]:
        """``session`` objects of all that have been read by now."""
        return self._listing.known()

    def view(self, id: str) -> Json | None:
        """The ``session`` object of one that has been read by now."""
        return self._listing.view(id)

    async def has_own_log(self) -> bool:
        """Whether there is the log that belongs to no session."""
        return await self._hops.read(lambda: self.store.exists(OWN))

    async def all_logs(self) -> list[str]:
        """The ids of all sessions, and of that one."""
        return [row.id for row in await self.rows()] + ([OWN] if await self.has_own_log() else [])

    async def resolve(self, ref: str | None, cwd: str | None, *, exact: bool = False) -> str:
        """The id that a reference as typed means. Raises `NotFound`, `Invalid`."""
        if ref is not None and (known := self._listing.loaded_as(ref)) is not None:
            return known
        home = str(self.services.home or "")
        try:
            return await self._resolved(ref, cwd, exact, home)
        except (NotFound, Damaged) as error:
            unknown = error
        if ref is None or not await self._came_since(ref):
            raise unknown
        return ref

    async def _resolved(self, ref: str | None, cwd: str | None, exact: bool, home: str) -> str:
        """Of those that couldn't be read it is asked once more before anything is made of that."""
        try:
            return str(wire.resolve(ref, await self.rows(), cwd, exact=exact, home=home).id)
        except Damaged:
            await self._listing.look_again()
        return str(wire.resolve(ref, await self.rows(), cwd, exact=exact, home=home).id)

    async def _came_since(self, name: str) -> bool:
        """Whether somebody has put a directory of this name beside the others since the start: a copy."""
        if os.path.basename(name) != name or name.startswith(".") or name == OWN:
            return False
        return await self._hops.read(lambda: self.store.exists(name))

    def at_hand(self, ref: str) -> Session | None:
        """The loaded session of this name or id; None if finding it takes more than a look."""
        id = self._listing.loaded_as(ref)
        return None if id is None else self.loaded.get(id)

    async def get(self, id: str) -> Session:
        """The session, loaded if it wasn't; held until the end of the caller's `loading.holding`.

        Raises `NotFound` and what reading its file raised.
        """
        return await self._loader.get(id)

    async def of_message(self, message: str) -> Session:
        """The session that a message's id names."""
        id = wire.session_of(message)
        if id not in self.loaded and not await self._hops.read(lambda: self.store.exists(id)):
            raise NotFound(f'no message "{message}"', hint="dshctl queue")
        session = await self.get(id)
        loading.hold_or_drop(await session.recall(("m", message)))
        return session

    # --- making and removing

    async def create(self, p: wire.CreateParams, peer: Peer) -> tuple[Session, Json | None]:
        """A new session, with its first message's receipt if it came with one.

        Durability: on return the session's directory, its log and the message are on disk.
        Raises `Denied`, `Invalid`, `Conflict` (the name is taken), `NotConfigured` (no model).
        """
        made = await self._creator.create(p, peer)
        if made.session is None:
            raise Conflict(f'key "{p.key}" is of a run whose session was removed.', outcome="not-written")
        return made.session, made.receipt

    async def make(self, p: wire.CreateParams, peer: Peer) -> Created:
        """The same, or what is left of a session of that key (`Creator.create`)."""
        return await self._creator.create(p, peer)

    def id_of_key(self, key: str | None) -> str | None:
        """The session that was made with this key, of those that are there."""
        return None if key is None else self._creator.id_of_key(key)

    async def rename(self, session: Session, name: str, peer: Peer) -> Json:
        wire.check_name(name)
        async with self._naming.taking(name, session.id):
            return await session.change({"name": name}, peer)

    async def delete(self, id: str, force: bool, peer: Peer) -> Json:
        """Remove a session for good. Raises `Conflict` while it runs, is to go on or holds messages, unless
        ``force``, which aborts and clears first."""
        if peer.kind == "agent":
            raise Denied("a tool can't remove sessions.")
        return await self._remover.remove(id, force=force, peer=peer)

    # --- from others, and elsewhere

    async def fork(self, session: Session, p: wire.ForkParams, peer: Peer) -> Json:
        """A new session with this one's history (`Porter.fork`)."""
        if peer.kind == "agent":
            raise Denied("a tool can't fork sessions.")
        return await self._porter.fork(session, p, peer)

    async def take(self, read: Read, p: wire.ImportParams, peer: Peer) -> Json:
        """A session out of an export (`Porter.take`)."""
        if peer.kind == "agent":
            raise Denied("a tool can't import sessions.")
        return await self._porter.take(read, p, peer)

    async def export(self, id: str) -> Export:
        """A session at this instant, as one file (`Porter.export`)."""
        try:
            return await self._porter.export(id)
        except Damaged as damaged:
            raise self.instead(id, damaged) from None

    def instead(self, id: str, damaged: Damaged) -> DshError:
        """What to say where a session's file can't be read (`Mender.instead`)."""
        return self._mender.instead(self.loaded.get(id), damaged)

    # --- looking after them

    async def reopen(self, session: Session, peer: Peer) -> tuple[Session, Json]:
        """Open a closed session again, or leave the faulted state (`Mender.reopen`)."""
        if session.word != "faulted":
            async with self._naming.taking(session.state.name, session.id):
                return session, await session.reopen(peer)
        again = await self._mender.reopen(session, peer)
        return again, again.show()

    async def fsck(self, id: str, *, requests: bool = False) -> Json:
        """Fold the log anew and compare with what is held in memory (G3); with ``requests``, also make
        each request again that was sent (G9)."""
        return await self._mender.fsck(id, requests=requests)

    async def repair(self, id: str, peer: Peer) -> Json:
        """``fsck --repair``: rewrite a damaged log around its bad regions. See `log.repair`."""
        return await self._mender.repair(id, peer)
