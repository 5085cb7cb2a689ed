"""Sessions that come from others, and go elsewhere: fork, import, export.

The directory is made without anybody waiting (`transfer`); what depends on the other sessions, names first,
is decided when nobody else decides such things (`Naming.alone`), and then the session is there at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import attrs
import trio

from dshd import wire
from dshd.driver.port import Services
from dshd.errors import Conflict, Damaged, DshError
from dshd.log.disk import explained
from dshd.log.store import Store
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.state import State
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.porting import packing, transfer
from dshd.session.porting.copying import Outside, newest
from dshd.session.porting.packing import Read
from dshd.session.porting.transfer import Made
from dshd.session.registry import environment
from dshd.session.registry.environment import Environments
from dshd.session.registry.hops import Hops
from dshd.session.registry.listing import Listing
from dshd.session.registry.loader import Loader
from dshd.session.registry.naming import Naming, fresh_id

log = logging.getLogger(__name__)
Json = dict[str, Any]
T = TypeVar("T")

AT_ONCE: Final = 2  # copies that are made at the same time


class Porter:
    def __init__(
        self, store: Store, hops: Hops, listing: Listing, naming: Naming, loader: Loader,
        environments: Environments, services: Services,
        take_numbers: Callable[[str, int], Awaitable[list[str]]],
    ) -> None:  # fmt: skip
        """``take_numbers`` gives ids for schedules of a session."""
        self._take_numbers = take_numbers
        self._store = store
        self._hops = hops
        self._listing = listing
        self._naming = naming
        self._loader = loader
        self._environments = environments
        self._services = services
        self._few = trio.CapacityLimiter(AT_ONCE)

    # --- fork

    async def fork(self, session: Session, p: wire.ForkParams, peer: Peer, agent: str | None = None) -> Json:
        """A new session with this one's history up to a point outside a turn; ``agent``: a subagent of it,
        with this id.

        Raises `Conflict` (inside a turn; the name is taken), `NotFound` (no such event).
        Durability: on return the fork is on disk.
        """
        if p.name is not None:
            wire.check_name(p.name)
        if session.broken is not None:
            raise session.broken.refusal()
        disk, path = self._store.disk, self._store.log_path(session.id)
        async with self._begun(agent) as id:
            place, runs = await self._place(session, p.at)
            now, header = self._services.now(), session.state.header or {}
            files = environment.file(await self._hops.read(lambda: self._environments.read(session.id)))
            made = await self._read_of(
                session,
                lambda: transfer.fork(
                    disk, path, self._store.begin(id), id=id, point=place, files=files, now=now,
                    depth=int(header.get("depth") or 0) + (agent is not None),
                ),
            )  # fmt: skip

            def last(rows: list[wire.SessionRow]) -> Scratch:
                name = _name_of_fork(p.name, place.settings.get("name"), rows)
                changes: Json = {"name": name} if name is not None else {}
                if agent is not None:
                    changes = {"agent": session.id, "run": True}
                now = self._services.now()
                return transfer.fork_batch(made, now, by=peer.source(), point=place, changes=changes)

            state = await self._finish(made, id, last)
        return {
            "type": "forked", "exit": 0, "session": id, "name": state.name,
            "dir": state.settings.get("dir"), "parent": session.id, "parent_name": session.state.name,
            "seq": place.seq, "turn": place.turn or None,
            "runs": runs,
        }  # fmt: skip

    async def _place(self, session: Session, at: int | None) -> tuple[Outside, int | None]:
        """Where to fork; and the turn that runs behind it, if it is the newest place."""
        if at is None:
            turn = session.state.turn
            return newest(session.state), turn.number if turn is not None else None
        path, until = self._store.log_path(session.id), session.state.seq
        point = await self._read_of(session, lambda: transfer.point_of(self._store.disk, path, at, until))
        return point.found(session.state.name), None

    async def _read_of(self, session: Session, work: Callable[[], T]) -> T:
        """What reading a session's files gives. They may go while that is done: then who removed them was
        first, and that is the answer."""
        try:
            with explained("read", self._store.log_path(session.id)):
                return await self._hops.read(work)
        except DshError:
            session.refuse_if_gone()
            raise

    # --- import

    async def take(self, read: Read, p: wire.ImportParams, peer: Peer) -> Json:
        """A session out of an export, of which ``read`` gives the bytes. Nothing of it runs before
        somebody says so.

        Raises `Conflict` (the id is taken, and not ``as_new``), `Damaged` (and not ``repair``), `Invalid`,
        `Unsupported`. Durability: on return it is on disk, and parked.
        """
        async with self._begun() as token:
            made = await self._arrived(read, p, token)
            schedules = await self._numbered(made)
            turn, was = made.state.turn, made.state.name

            def last(rows: list[wire.SessionRow]) -> Scratch:
                self._refuse_taken(made, rows, p.repair)
                changes = self._changes(made, rows, p.env)
                around, now = self._loader.around, self._services.now()
                return transfer.import_batch(
                    made, now, by=peer.source(), boot=around.boot, version=around.version, settings=changes,
                    schedules=schedules, describe=self._services.tools.describe,
                )  # fmt: skip

            state = await self._finish(made, token, last)
        dir = str(state.settings.get("dir"))
        return {
            "type": "imported", "exit": 0, "session": state.id, "name": state.name, "dir": dir,
            "dir_exists": await self._hops.read(lambda: os.path.isdir(dir)),
            "original": made.original, "original_name": was, "closed": state.closed,
            "turn": turn.number if turn is not None else None, "pending": state.pending,
            "mode": state.settings.get("mode"), "repaired": made.repaired, "lost": made.lost,
        }  # fmt: skip

    async def _numbered(self, made: Made) -> dict[str, str]:
        """The ids that its schedules have here: ``{there: here}``."""
        theirs = list(made.state.schedules)
        return (
            dict(zip(theirs, await self._take_numbers(made.id, len(theirs)), strict=True)) if theirs else {}
        )

    async def _arrived(self, read: Read, p: wire.ImportParams, token: str) -> Made:
        """What came, on disk. Of a damaged one the error names all that it takes to import it: under a new
        id, too, if there is one of its id."""
        disk, now, new_id = self._store.disk, self._services.now(), token if p.as_new else None
        try:
            return await self._hops.read(
                lambda: transfer.arrive(
                    disk, read, self._store.begin(token), new_id=new_id, mend=p.repair, now=now
                )
            )
        except Damaged as error:
            damaged = error
        if "id" in damaged.data:
            taken = any(row.id == damaged.data["id"] for row in await self._listing.rows())
            damaged.hint = transfer.again(as_new=p.as_new or taken, repair=True)
        raise damaged

    def _refuse_taken(self, made: Made, rows: list[wire.SessionRow], repair: bool) -> None:
        taken = next((row for row in rows if row.id == made.id), None)
        if taken is not None:
            raise Conflict(
                f"not imported: there is a session {made.id} already ({taken.name or taken.id}).",
                hint=transfer.again(as_new=True, repair=repair),
                outcome="not-written",
            )

    def _changes(self, made: Made, rows: list[wire.SessionRow], env: Mapping[str, str]) -> Json:
        """Settings that are others here."""
        settings, config = made.state.settings, self._services.config()
        others = [row for row in rows if row.state != "closed"]
        wanted: Json = {"env": environment.parted(env)[0]}
        wanted |= {name: None for name in settings if name.startswith("env.")}
        wanted["mode"] = config.within_policy(settings.get("mode", "read-only"))
        if not made.state.closed and settings.get("name") is not None:
            wanted["name"] = wire.numbered(settings["name"], {row.name for row in others})
        if any(row.implicit and row.dir == settings.get("dir") for row in others):
            wanted["implicit"] = False
        if settings.get("key") in {view.get("key") for view in self._listing.known()}:
            wanted["key"] = None
        return {name: value for name, value in wanted.items() if settings.get(name) != value}

    # --- both

    @asynccontextmanager
    async def _begun(self, wanted: str | None = None) -> AsyncIterator[str]:
        """An id that is free (``wanted``: this one is); its directory, if it was begun and not finished, goes
        with the block."""
        async with self._few:
            id = wanted or fresh_id(await self._listing.rows())
            try:
                yield id
            except BaseException:
                with trio.CancelScope(shield=True):
                    await self._hops.read(lambda: self._store.abandon(id))
                raise

    async def _finish(
        self, made: Made, token: str, last: Callable[[list[wire.SessionRow]], Scratch]
    ) -> State:
        """The last batch, and the name of the directory."""
        try:
            async with self._naming.alone:
                s = last(await self._listing.rows())
                await self._listing.comes(made.id)
                await self._hops.write(lambda: self._put(made, token, s))
                self._listing.came(s.state, made.file.size)
            if s.state.active:
                await self._start(made.id)
            return s.state
        finally:
            made.close()

    async def _start(self, id: str) -> None:
        """It is on disk, whatever comes of this: who asks for it next is told what is wrong."""
        try:
            await (await self._loader.get(id)).start()
        except DshError as error:
            log.warning("session %s was made, and not opened: %s", id, error)

    def _put(self, made: Made, token: str, s: Scratch) -> None:
        made.finish(s.lines)
        if s.state.active:
            self._store.mark(made.id)
        self._store.finish(token, made.id)

    # --- export

    async def export(self, id: str) -> Export:
        """A session as it is now; of a loaded one, what is durable of it.

        Raises `Damaged` if there is no log, `NotFound`, and what reading raised; so may `Export.next`.
        """
        session = self._loader.loaded(id)
        ledger = session.ledger if session is not None and session.usable else None
        size = ledger.writer.synced_size if ledger is not None else None
        name = next((view["name"] for view in self._listing.known() if view["id"] == id), None) or id
        now = self._services.now()
        pieces = await self._hops.read(lambda: packing.packed(self._store, id, name, size, now))
        return Export(name, filter(None, pieces), self._hops)


@attrs.define
class Export:
    """The bytes of a file, read as they are asked for."""

    name: str
    _pieces: Iterator[bytes]
    _hops: Hops

    async def next(self) -> bytes:
        """The next piece; empty at the end."""
        return await self._hops.read(lambda: next(self._pieces, b""))


def _name_of_fork(asked: str | None, parents: Any, rows: list[wire.SessionRow]) -> str | None:
    taken = {row.name for row in rows if row.state != "closed"}
    if asked is not None and asked in taken:
        raise Conflict(f'not forked: the name "{asked}" is taken.', hint=f"dshctl show {asked}",
                       outcome="not-written")  # fmt: skip
    return asked or (wire.numbered(parents, taken) if isinstance(parents, str) else None)
