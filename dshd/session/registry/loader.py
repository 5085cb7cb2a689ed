"""Which sessions are in memory: loaded when something is asked of them, unloaded after a long rest.

Loading one twice at the same time is one loading. A session is unloaded when it has rested for long and
nobody holds it (`loading`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import trio

from dshd.errors import DshError, NotFound
from dshd.log.store import Store
from dshd.log.writer import LogWriter
from dshd.session.disk import opening
from dshd.session.disk.checkpoint import Kept
from dshd.session.disk.ledger import Ledger
from dshd.session.fold.state import State
from dshd.session.owner import loading
from dshd.session.owner.keeping import Keeper
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from dshd.session.owner.surroundings import Surroundings
from dshd.session.registry.environment import Environments
from dshd.session.registry.hops import Hops
from dshd.session.registry.listing import Listing


class Loader:
    """``loaded`` is shared with the `Listing`. ``draining``: it is the end; no turn begins, and nothing is
    unloaded."""

    def __init__(
        self,
        store: Store,
        hops: Hops,
        loaded: dict[str, Session],
        listing: Listing,
        environments: Environments,
        around: Surroundings,
        upkeep: Upkeep,
    ) -> None:
        self.draining = False
        self.around = around
        self._store = store
        self._hops = hops
        self._loaded = loaded
        self._listing = listing
        self._environments = environments
        self._upkeep = upkeep
        self._loading: dict[str, trio.Event] = {}

    async def get(self, id: str) -> Session:
        """The session, loaded if it wasn't; held until the end of the caller's `loading.holding`.

        Raises `NotFound` and what reading its file raised.
        """
        while id in self._loading:
            await self._loading[id].wait()
        if id not in self._loaded:
            self._loading[id] = trio.Event()
            try:
                session = await self._load(id)
                session.driver.draining = self.draining
                self._loaded[id] = session
                self._listing.bell.ring(id)
            finally:
                self._loading.pop(id).set()
        session = self._loaded[id]
        loading.hold_or_drop(session.hold())
        return session

    @contextlib.contextmanager
    def kept_out(self, id: str) -> Iterator[None]:
        """Within, who asks for it waits, and looks anew at the end."""
        self._loading[id] = trio.Event()
        try:
            yield
        finally:
            self._loading.pop(id).set()

    async def _load(self, id: str) -> Session:
        disk, path, read = self._store.disk, self._store.log_path(id), self._hops.read
        if not await read(lambda: self._store.exists(id)):
            raise NotFound(f'no session "{id}"', hint="dshctl ls")
        found = await read(lambda: opening.load_or_tell(disk, path))
        marked = await read(lambda: self._store.is_marked(id))
        self._environments.know(id, await read(lambda: self._environments.read(id)))
        return Session(
            id,
            found.state,
            self._writer(found),
            self.around,
            broken=found.broken,
            partial=found.partial,
            found=found.found,
            marked=marked,
            refold=self._refold,
            keeper=partial(self._keeper, found.kept) if found.kept is not None else None,
        )

    async def _refold(self, writer: LogWriter) -> State:
        with writer.using() as file:
            return await self._hops.read(lambda: opening.state_synced(file, writer.synced_size))

    def _writer(self, found: opening.Loaded) -> LogWriter | None:
        if found.file is None:
            return None
        o, threads = found.opened, self._hops.threads
        return LogWriter(found.file, next_seq=o.next_seq, synced=o.synced, size=o.size, threads=threads)

    def _keeper(self, kept: Kept, ledger: Ledger) -> Keeper:
        refold = partial(opening.state_until, self._store.disk, kept.log)
        return Keeper(kept, ledger, self._upkeep, self._hops.read, refold)

    # --- leaving memory

    async def look_after(self) -> None:
        """Unload what has rested for long, until the end."""
        while not self.draining:
            await trio.sleep(self._upkeep.look)
            for session in list(self._loaded.values()):
                rested = trio.current_time() - session.used
                if rested >= self._upkeep.rest(session.size) and not session.holders and session.rests:
                    await self._unload(session)

    async def _unload(self, session: Session) -> None:
        """Let a session leave memory, unless something comes of it meanwhile."""
        used = session.used
        await session.keep()
        if session.ledger is not None and session.ledger.wrote:
            await self._listing.save_view(session)
        if session.used != used or session.holders or not session.rests or self.draining:
            return
        if self.has(session):  # from here on without a checkpoint
            self._listing.left(session)
            self.let_go(session)

    def loaded(self, id: str) -> Session | None:
        """The session, if it is in memory."""
        return self._loaded.get(id)

    def has(self, session: Session) -> bool:
        """Whether it is this one that is loaded, and not another made of the same log since."""
        return self._loaded.get(session.id) is session

    def let_go(self, session: Session, why: DshError | None = None) -> None:
        """Close it; who asks for it next gets another, made of the log as it is then. ``why`` is told to
        those who wait for something of this one. Of one that was let go of nothing more becomes."""
        if self.has(session):
            session.let_go(why)
            del self._loaded[session.id]
            self._listing.bell.ring(session.id)
            self._environments.forget(session.id)
