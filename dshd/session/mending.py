"""Looking after the logs: checking one, repairing a damaged one, reopening one whose disk failed."""

from __future__ import annotations

from typing import Any

import trio

from dshd.errors import Conflict, Damaged, Denied
from dshd.log import recovery, repair
from dshd.log.store import Store
from dshd.session import opening
from dshd.session import requests as sent
from dshd.session.hops import Hops
from dshd.session.loader import Loader
from dshd.session.session import Session
from dshd.session.who import Peer

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
        found = await self._hops.read(lambda: opening.look(disk, path))
        rebuilt = await self._hops.read(lambda: opening.state_until(disk, path, seq))
        differ = [part for part, value in rebuilt.digest().items() if digest[part] != value]
        problem = found.broken.error.message if found.broken else None
        if differ and problem is None:
            problem = f"memory differs from the log in {', '.join(differ)}"
        report = {
            "type": "fsck", "session": id, "name": session.name, "ok": problem is None,
            "events": seq + 1, "bytes": found.opened.size, "problem": problem,
            "hint": found.broken.error.hint if found.broken else None, "requests": None,
            "exit": 0 if problem is None else 7,
        }  # fmt: skip
        if not requests:
            return report
        rebuild = self._models.rebuild
        return sent.add(report, await self._hops.read(lambda: sent.check(disk, path, rebuild, until=seq)))

    async def repair(self, id: str, peer: Peer) -> Json:
        if peer.kind == "agent":
            raise Denied("a tool can't repair sessions.")
        session = await self._loader.get(id)
        if session.state.turn is not None and session.usable:
            raise Conflict(f"{session.state.name} runs a turn.", hint=f"dshctl wait -s {session.state.name}")
        if isinstance(session.broken and session.broken.error, Damaged):
            with trio.CancelScope(shield=True):
                async with self._mending:
                    if self._loader.has(session):
                        disk, path = self._store.disk, self._store.log_path(id)
                        await self._hops.write(lambda: repair.repair(disk, path))
                        self._loader.let_go(session)
            await (await self._loader.get(id)).start()
        return await self.fsck(id)

    async def reopen(self, session: Session, peer: Peer) -> Session:
        """Leave the faulted state: the synced prefix is copied to a new file, and the old inode is
        never trusted."""
        if peer.kind == "agent":
            raise Denied("a tool can't reopen sessions.")
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
        await self._hops.write(
            lambda: recovery.reopen_copy(disk, path, writer.synced_size, source=writer.file)
        )
