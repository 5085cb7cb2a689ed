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
| the daemon's start and end, finding them         | here          |
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from dshd import wire
from dshd.driver.port import ROOM_POLL_S, Services
from dshd.errors import Conflict, Damaged, Denied, DshError, NoSpace, NotFound
from dshd.log.disk import Disk
from dshd.log.store import OWN, Store
from dshd.log.threads import Threads
from dshd.session.fold.approvals import Allowed
from dshd.session.fold.who import Peer
from dshd.session.owner import loading
from dshd.session.owner.board import Board
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from dshd.session.owner.surroundings import Surroundings
from dshd.session.registry.creating import Created, Creator
from dshd.session.registry.desk import Desk
from dshd.session.registry.environment import Environments
from dshd.session.registry.hops import Hops
from dshd.session.registry.jobs import AllJobs
from dshd.session.registry.kept_jobs import KeptJobs
from dshd.session.registry.kin import Kin, Ties
from dshd.session.registry.listing import Listing
from dshd.session.registry.loader import Loader
from dshd.session.registry.making import Maker
from dshd.session.registry.mending import Mender
from dshd.session.registry.naming import Naming
from dshd.session.registry.removing import Remover
from dshd.session.registry.run_keys import RunKeys
from dshd.session.registry.scheduler import Scheduler
from dshd.session.shown import questions

if TYPE_CHECKING:
    from dshd.session.porting.packing import Read
    from dshd.session.registry.porter import Export, Porter

log = logging.getLogger(__name__)
Json = dict[str, Any]

RESERVE_POLL_S: Final = 60.0  # how often room for the reserve is looked for, once it is given up
AGAIN_S: Final = 60.0  # after an opening that failed
LAST_KEEPING_S: Final = 3.0  # for checkpoints, when the daemon stops


class Registry:
    """``start`` runs a coroutine function in the daemon's session nursery. Without ``upkeep`` nothing is
    unloaded."""

    def __init__(
        self,
        store: Store,
        services: Services,
        *,
        start: Callable[..., None],
        on_lines: Callable[[str, int, list[bytes]], None],
        on_reset: Callable[[str, int], None],
        on_gone: Callable[[str], None] = lambda id: None,
        boot: str,
        version: str,
        threads: Threads,
        what_ends_us: Callable[[], str | None] = lambda: None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self.store = store
        self.loaded: dict[str, Session] = {}
        self._start = start
        self._unloads = upkeep is not None
        self._reserve = services.reserve
        self._environments = environments = Environments(store)
        self._hops = hops = Hops(store.disk, threads)
        self._opened = trio.Event()
        self.desk = Desk(store, hops)
        self.services = attrs.evolve(
            services, environment=environments.of, reserve=self._give_reserve,
            numbers=self.desk.numbers, allowed=lambda: self.desk.always.grants,
            ties=Ties(self.loaded, services),
        )  # fmt: skip
        services.attention.begin(start)
        self._kept_jobs = KeptJobs(store, hops)
        self._listing = Listing(store, hops, self.loaded, services.days, services.now)
        self._naming = Naming(self._listing)
        self._run_keys = RunKeys(store, hops)
        self.kin = Kin(store, hops, self.loaded, self._listing, self._naming, self.services)
        board = Board(services.now, start, lambda id: self.schedules.fire(id),
                      lambda key, outcome: self.schedules.ended(key, outcome))  # fmt: skip
        self._around = Surroundings(
            services=self.services,
            start=start,
            mark=lambda id: hops.write(lambda: store.mark(id)),
            unmark=self._unmark,
            attach=lambda id, files: hops.write(lambda: store.attach(id, files)),
            detach=lambda id, names: hops.read(lambda: store.detach(id, names)),
            what_ends_us=what_ends_us,
            reopening=self._naming.taking,
            board=board,
            kept_jobs=self._kept_jobs,
            kin=self.kin,
            on_lines=lambda id, first, lines: on_lines(id, first, lines) if id != OWN else None,
            on_reset=on_reset,
            on_approvals=self.desk.changed.fire,
            boot=boot,
            version=version,
        )
        self._loader = Loader(
            store, hops, self.loaded, self._listing, environments, self._around, upkeep or Upkeep()
        )
        self._mender = Mender(store, hops, self._loader, self.services.models)
        maker = Maker(store, hops, self.services)
        self._creator = Creator(
            self._listing, self._naming, self._loader, maker, self._run_keys, self.services,
        )  # fmt: skip
        self.schedules = Scheduler(
            store, hops, self._listing, self._loader, self._creator, self.services, board,
            self.desk.numbers, what_ends_us,
        )  # fmt: skip

        def gone(id: str) -> None:
            board.gone(id)
            on_gone(id)

        self.jobs = AllJobs(store, hops, self.loaded, self._loader, self._kept_jobs, self.desk.numbers)
        self._remover = Remover(
            store, hops, self._listing, self._loader, self._run_keys, self.services,
            gone, self.kin.of,
        )  # fmt: skip
        self.kin.has(self._loader, maker, lambda: self._porter)

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
        read = self._hops.read
        await read(self.store.sweep)
        await self.desk.always.read()
        ids = set(await read(self.store.ids))
        marked = await read(self.store.marked)
        with self.services.places.settling(len(marked)):
            for id in marked:
                there = id in ids or id == OWN
                await (self._start_one(id) if there else self._around.unmark(id))
            for _ in range(2):  # until those that were opened last stand in line, too
                await trio.lowlevel.checkpoint()
        self._opened.set()
        await self.jobs.end_leftovers()
        if self._unloads:
            self._start(self._loader.look_after)
        self.schedules.ready()
        await self._run_keys.read()
        await self._listing.read(ids)
        if self._unloads:
            self._start(self._remover.look_after)
        if not await read(self.store.reserve.hold):
            self._start(self._take_reserve_back)

    async def opened(self) -> None:
        """Returns when all that a start opens by itself is open. What is asked of the sessions in memory
        (who has a question, whose job runs) has no answer before."""
        await self._opened.wait()

    async def _start_one(self, id: str) -> None:
        try:
            session = await self.get(id)
            await session.start()
        except NoSpace as error:
            log.warning("session %s is opened when there is room: %s", id, error)
            self._start(self._start_later, id)
        except (Damaged, NotFound) as error:
            log.error("session %s was not opened: %s", id, error)
        except DshError as error:
            log.error("session %s was not opened: %s; tried again in a minute", id, error)
            self._start(self._start_again, id)
        except Exception:  # the boundary: a mistake of ours in one session is not the end of the others
            log.exception("session %s was not opened", id)

    async def _start_again(self, id: str) -> None:
        """Its files could not be read or written, for what reason ever; it has work to do."""
        await trio.sleep(AGAIN_S)
        await self._start_one(id)

    async def _start_later(self, id: str) -> None:
        """A torn tail could not be set aside: the disk is full."""
        if not self._give_reserve():
            await trio.sleep(ROOM_POLL_S)
        await self._start_one(id)

    async def _unmark(self, id: str) -> None:
        """A mark too many does no harm, so that it stays is no reason to stop anything."""
        try:
            await self._hops.read(lambda: self.store.unmark(id))
        except DshError as error:
            log.warning("%s", error)

    def _give_reserve(self) -> bool:
        """Give up the reserve for a closing event; whether it was held. It is taken back later."""
        held = self._reserve()
        if held:
            self._start(self._take_reserve_back)
        return held

    async def _take_reserve_back(self) -> None:
        while not self.store.reserve.held:
            await trio.sleep(RESERVE_POLL_S)
            await self._hops.read(self.store.reserve.hold)

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
            return str(wire.resolve(ref, await self.rows(), cwd, exact=exact, home=home).id)
        except NotFound as error:
            unknown = error
        if ref is None or not await self._came_since(ref):
            raise unknown
        return ref

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

    # --- approvals

    def approvals(self, session: str | None = None) -> list[Json]:
        """The questions that wait for an answer, of one session or of all, the oldest first. Those that ask
        are in memory."""
        asking = [one for id, one in self.loaded.items() if session in (None, id)]
        found = [approval for one in asking for approval in one.approvals()]
        return sorted(found, key=lambda approval: approval["asked_at"])

    async def of_approval(self, id: str) -> Session:
        """The session that an approval's id is of. Raises `NotFound`."""
        open = next((one for one in self.loaded.values() if id in one.state.approvals), None)
        if open is not None:
            return await self.get(open.id)
        owner = await self.desk.numbers.session_of(id)
        if owner is None or not await self._hops.read(lambda: self.store.exists(owner)):
            raise NotFound(f'no approval "{id}"', hint="dshctl approvals", outcome="not-written")
        return await self.get(owner)

    async def answer_approval(self, session: Session, p: wire.ApprovalAnswerParams, peer: Peer) -> Json:
        """`Session.answer_approval`; ``always`` is kept here.

        Durability: the answer is on disk, with all that it allows. If only the latter is refused
        (`NoSpace`), the call is allowed all the same, and the error says so.
        """
        answered = await session.answer_approval(p, peer)
        if p.scope == "always":
            done = session.state.approvals[p.id]
            try:
                await self.desk.always.add(Allowed(p.id, done.grant, done.answered_at or 0, done.by))
            except DshError as error:
                error.message = f"{p.id} is allowed this once, but not for always: {error.message}"
                raise
        return answered

    async def allowed(self, session: str | None = None) -> list[Json]:
        """What answers have allowed: everywhere, and for one session (or for all that are in memory)."""
        own = [
            questions.allowed(one, loaded.state)
            for id, loaded in self.loaded.items() if session in (None, id)
            for one in loaded.state.allowed
        ]  # fmt: skip
        return [questions.allowed(one) for one in self.desk.always.allowed] + own

    async def forget_approval(self, id: str, peer: Peer) -> None:
        """Take back what the answer to this approval allowed. Raises `NotFound` if that is nothing.

        Durability: it is on disk; the next call of it is asked about.
        """
        if peer.kind == "agent":
            raise Denied("a tool can't answer for a person.")
        gone = await self.desk.always.forget(id)
        session = await self.of_approval(id) if not gone else None
        if session is not None and not await session.forget_approval(id, peer):
            raise NotFound(f"{id} allows nothing any more.", hint="dshctl approvals", outcome="not-written")

    def ended_approval(self, asked: Json) -> Json:
        """How one ended that was open, as far as that is known."""
        session = self.loaded.get(asked["session"])
        found = session.state.approvals.get(asked["id"]) if session is not None else None
        if session is None or found is None or found.open:
            return {**asked, "answer": "withdrawn", "arguments": None}
        return questions.approval(session.state, found)

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
