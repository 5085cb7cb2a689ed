"""Looking after the logs: checking one, repairing a damaged one, reopening one whose disk failed."""

from __future__ import annotations

from typing import Any

import trio

from dshd.errors import Conflict, Damaged, Denied, DshError, Faulted
from dshd.log import recovery, repair
from dshd.log.store import Store
from dshd.session.disk import opening
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry import requests as sent
from dshd.session.registry.hops import Hops
from dshd.session.registry.loader import Loader

Json = dict[str, Any]


class Mender:
    """``models`` makes requests again (`Services`). One log is mended at a time."""

    def __init__(self, store: Store, hops: Hops, loader: Loader, models: Any) -> None:
        self._store = store
        self._hops = hops
        self._loader = loader
        self._models = models
        self._mending = trio.Lock()

    async def fsck(self, id: str, *, requests: bool = False) -> Json:
        session = await self._loader.get(id)
        held = session.state
        digest, seq = held.digest(), held.seq
        disk, path = self._store.disk, self._store.log_path(id)
        try:
            found = await self._hops.read(lambda: opening.look(disk, path))
        except Damaged as damaged:
            raise self.instead(session, damaged) from None
        rebuilt = await self._hops.read(lambda: opening.state_until(disk, path, seq))
        differ = [part for part, value in rebuilt.digest().items() if digest[part] != value]
        broken = session.broken or found.broken
        problem = broken.error.message if broken else None
        if differ and problem is None:
            problem = f"memory differs from the log in {', '.join(differ)}"
        report = {
            "type": "fsck", "session": id, "name": session.name, "ok": problem is None,
            "events": seq + 1, "bytes": found.opened.size, "problem": problem,
            "hint": broken.error.hint if broken else None, "requests": None,
            "exit": 0 if problem is None else 7,
        }  # fmt: skip
        if not requests:
            return report
        rebuild = self._models.rebuild
        return sent.add(report, await self._hops.read(lambda: sent.check(disk, path, rebuild, until=seq)))

    @staticmethod
    def instead(session: Session | None, damaged: Damaged) -> DshError:
        """What the error of looking at a file is to be: of a session whose disk failed, that one. It is held
        open, and reopened whatever stands in its place; nobody should think that it is lost."""
        broken = session.broken if session is not None else None
        return broken.refusal() if broken is not None and broken.word == "faulted" else damaged

    async def repair(self, id: str, peer: Peer) -> Json:
        if peer.kind == "agent":
            raise Denied("a tool can't repair sessions.")
        session = await self._to_be_repaired(id)
        if session is None or not session.usable:
            with trio.CancelScope(shield=True):
                async with self._mending:
                    if session is None or self._loader.has(session):
                        await self._rewrite(id, session)
            await (await self._loader.get(id)).start()
        elif session.state.turn is not None:
            raise Conflict(f"{session.state.name} runs a turn.", hint=f"dshctl wait -s {session.state.name}")
        return await self.fsck(id)

    async def _to_be_repaired(self, id: str) -> Session | None:
        """The session; None if what stands in its log's place can't even be opened."""
        try:
            return await self._loader.get(id)
        except Damaged:
            return None

    async def _rewrite(self, id: str, session: Session | None) -> None:
        """A log that is damaged; or one that somebody has cut under us, and so can't just be reopened."""
        disk, path = self._store.disk, self._store.log_path(id)
        try:
            if session is not None and session.word == "faulted":
                await session.drain()
                await self._copy_synced(session)
            else:
                raise Damaged("as it is")
        except Damaged:
            known = session.state.header if session is not None else None
            make = (lambda raw, id, now: dict(known)) if known else repair.salvage
            await self._hops.write(lambda: repair.repair(disk, path, make_header=make))
        if session is not None:
            self._loader.let_go(session)

    async def reopen(self, session: Session, peer: Peer) -> Session:
        """Leave the faulted state: the synced prefix is copied to a new file, and the old inode is
        never trusted."""
        if peer.kind == "agent":
            raise Denied("a tool can't reopen sessions.")
        if not await self._hops.read(lambda: self._store.exists(session.id)):
            gone = f"the directory of {session.name} was taken away; nothing is left to go on with."
            raise Faulted(gone, hint=f"dshctl rm {session.id}", outcome="not-written")
        with trio.CancelScope(shield=True):
            async with self._mending:
                if self._loader.has(session):  # nobody else did it meanwhile
                    await session.drain()
                    await self._copy_synced(session)
                    self._loader.let_go(session)
        again = await self._loader.get(session.id)
        await again.start()
        return again

    async def _copy_synced(self, session: Session) -> None:
        """What was synced goes to a new file, read through the descriptor that is still open: the
        name may be another file's by now, and the old inode's cache may lie."""
        assert session.ledger is not None
        writer, disk, path = session.ledger.writer, self._store.disk, self._store.log_path(session.id)
        with writer.using() as file:
            await self._hops.write(lambda: recovery.reopen_copy(disk, path, writer.synced_size, source=file))
