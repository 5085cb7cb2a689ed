"""Which sessions there are, and what is known of each without loading it.

What `ls` and name resolution need of a session that isn't loaded comes from one file for all (`index`),
else from ``view.json`` beside its log, each believed only if it fits the log's size; else the log is
folded. Of a loaded one it is asked of the session. With a view comes what its session spent lately, for
the sum of all (`days`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import orjson
import trio

from dshd import wire
from dshd.log.store import OWN, Store
from dshd.session.disk import days
from dshd.session.disk.days import Days
from dshd.session.fold import spending
from dshd.session.fold.state import State
from dshd.session.owner.session import Session
from dshd.session.registry import index
from dshd.session.registry.bell import Bell
from dshd.session.registry.hops import Hops
from dshd.session.registry.index import Index, Packed
from dshd.session.registry.unloaded import unreadable, view_from_log
from dshd.session.shown import views

log = logging.getLogger(__name__)
Json = dict[str, Any]
T = TypeVar("T")

AT_ONCE: Final = 64  # views that are read in one hop


@attrs.frozen(slots=True)
class Listed:
    """``json``: the ``session`` object, for `orjson`; as it was written, if it is in memory only so."""

    row: wire.SessionRow
    agent: bool
    json: Any


class Listing:
    """``loaded``: the sessions that are, kept up by their loader; it tells what leaves (`left`, `gone`).
    ``now`` gives Unix ms. ``bell``: rung for what may be listed in another way now."""

    def __init__(
        self, store: Store, hops: Hops, loaded: Mapping[str, Session], days: Days, now: Callable[[], int]
    ) -> None:
        self._days = days
        self._now = now
        self._store = store
        self._hops = hops
        self._loaded = loaded
        self._views = Index()
        self.bell = Bell()
        self._listed: set[str] = set()  # on disk at the start, and not deleted since
        self._saving = trio.Lock()
        self._read = trio.Event()
        self._noted: dict[str, Json] = {}  # views of the index that don't fit, for `unloaded`
        self._named: dict[str, str] = {}  # {name: id}: looked at before it is believed

    # --- asking

    async def rows(self) -> list[wire.SessionRow]:
        """What `wire.resolve` chooses from."""
        await self._read.wait()
        loaded = {id: session.row() for id, session in self._loaded.items() if self._tells(id, session)}
        return list({**dict(self._views.rows()), **loaded}.values())

    async def look_again(self) -> bool:
        """At those of which nothing is known, for a disk may have been mended; whether there are any."""
        unread = [row.id for row in await self.rows() if row.unread]
        for id, view in await self._hops.read(partial(self._views_of, unread)) if unread else ():
            if id in self._views:
                self._views.pop(id)
                self._note(id, view)
        return bool(unread)

    async def views(self, all: bool) -> list[Json]:
        """``session`` objects, newest activity first."""
        await self._read.wait()
        views = [v for v in self.known() if all or v["state"] != "closed"]
        return sorted(views, key=lambda v: -(v["active_at"] or 0))

    async def listed(self) -> list[Listed]:
        """All that `views` gives, for one who only passes it on."""
        await self._read.wait()
        loaded = {id: _listed(session) for id, session in self._loaded.items() if self._tells(id, session)}
        others = {
            id: Listed(one.row, one.agent, orjson.Fragment(one.raw))
            for id, one in self._views.packed().items()
        }
        return sorted({**others, **loaded}.values(), key=lambda one: -one.row.active_at)

    def known(self) -> list[Json]:
        """``session`` objects of all that have been read by now."""
        loaded = {id: session.show() for id, session in self._loaded.items() if self._tells(id, session)}
        return list({**dict(self._views.views()), **loaded}.values())

    def view(self, id: str) -> Json | None:
        """The ``session`` object of one that has been read by now."""
        session = self._loaded.get(id)
        tells = session is not None and self._tells(id, session)
        return session.show() if session is not None and tells else self._views.view(id)

    def _tells(self, id: str, session: Session) -> bool:
        """Whether a loaded one knows more of itself than was read before: one whose log has lost its header
        does not."""
        return id != OWN and (session.state.header is not None or id not in self._views)

    def loaded_as(self, ref: str) -> str | None:
        """Without looking at all sessions: an open one of this name is the only one, and no name looks
        like an id."""
        if ref == OWN:
            return None  # no session, and nobody's to name
        if ref in self._loaded:
            return ref
        known = self._loaded.get(self._named.get(ref, ""))
        if known is None or not _is_called(known, ref):
            known = next((one for one in self._loaded.values() if _is_called(one, ref)), None)
        if known is None:
            return None
        if len(self._named) >= len(self._loaded):
            self._named.clear()
        self._named[ref] = known.id
        return known.id

    # --- reading

    async def read(self, ids: set[str]) -> None:
        """Those that were on disk at the start: first what the index knows, then each of the others."""
        store, self._listed = self._store, ids
        read = partial(index.read, store.disk, store.state, store.sessions, set(ids))
        fitting, self._noted = await self._hops.read(read)
        for packed, lately in fitting:
            self._keep(packed, lately)
        missing = [id for id in sorted(ids) if id not in self._loaded and id not in self._views]
        for some in batched(missing, AT_ONCE):
            for id, view in await self._hops.read(partial(self._views_of, some)):
                self._note(id, view)
        spent = await self._hops.read(partial(days.read, store.disk, store.state))
        self._days.restore({id: lately for id, lately in spent.items() if id not in ids})
        self._days.complete()
        self._read.set()
        if missing:
            await self._save()

    def _note(self, id: str, view: Json) -> None:
        """A view that was read, unless something became of the session meanwhile."""
        lately = view.pop("lately", None)
        self._keep(Packed.of({**view, "id": id}), lately)

    def _keep(self, packed: Packed, lately: Any) -> None:
        id = packed.row.id
        if id in self._listed and id not in self._loaded and id not in self._views:
            self._days.note(id, spending.from_json(lately))
            self._views.keep(packed)
            self.bell.ring(id)

    def _views_of(self, ids: list[str]) -> list[tuple[str, Json]]:
        return [(id, self._view_of(id)) for id in ids]

    def _view_of(self, id: str) -> Json:
        disk, path = self._store.disk, self._store.log_path(id)
        try:
            noted = self._noted.get(id)
            return index.read_beside(disk, path) or view_from_log(disk, path, noted, unread=True)
        except Exception:  # the boundary: a mistake of ours in one session is not the end of the others
            log.exception("session %s can't be read", id)
            return unreadable(id)

    # --- keeping up

    def came(self, state: State, size: int) -> None:
        """It was made by others, and is on disk; not loaded yet."""
        self._listed.add(state.id)
        self._views.put(views.session(state, size=size))
        self.bell.ring(state.id)

    def left(self, session: Session) -> None:
        """It leaves memory."""
        if self._tells(session.id, session):
            self._views.put({**session.show(), "id": session.id})
            self.bell.ring(session.id)

    async def gone(self, id: str) -> None:
        """It is about to be deleted.

        Durability: that what it spent today stays spent is on disk, if the disk takes it.
        """
        self._views.pop(id)
        self._listed.discard(id)
        self.bell.ring(id)
        self._days.delete(id)
        if self._days.of(id):
            await self._save_spent()

    async def comes(self, id: str) -> None:
        """Another session of this id is about to be there.

        Durability: that what a deleted one of the id spent isn't the new one's is on disk, if the disk takes
        it.
        """
        if self._days.part(id):
            await self._save_spent()

    async def _save_spent(self) -> None:
        store = self._store
        async with self._saving:
            spent = self._days.deleted(self._now())
            try:
                await self._hops.read(lambda: days.write(store.disk, store.state, spent))
            except OSError as error:
                log.warning("%s was not written: %s", days.NAME, error)

    async def save(self) -> None:
        """Write the index, if all has been read."""
        if self._read.is_set():
            await self._save()

    async def _save(self) -> None:
        store = self._store
        self._days.forget(self._now())
        lines = list(self._lines())
        try:
            async with self._saving:
                await self._hops.read(lambda: index.write(store.disk, store.state, lines))
        except OSError as error:
            log.warning("%s was not written: %s", index.NAME, error)

    def _lines(self) -> Iterator[bytes]:
        """The view of each, with what it spent lately."""
        told = {id for id, session in self._loaded.items() if self._tells(id, session)}
        for id in told:
            yield orjson.dumps(self._with_lately(self._loaded[id].show()))
        for id, packed in self._views.packed().items():
            if id not in told:
                spent = self._days.of(id)
                yield orjson.dumps(self._with_lately(packed.view())) if spent else packed.raw

    def _with_lately(self, view: Json) -> Json:
        lately = self._days.of(view["id"])
        return {**view, "lately": spending.to_json(lately)} if lately else view

    async def save_view(self, session: Session) -> None:
        """Write the view beside a session's log."""
        if session.ledger is None or session.broken is not None:
            return
        view, path = self._with_lately(session.show()), self._store.log_path(session.id)
        durable = session.ledger.writer.synced
        try:
            async with self._saving:
                await self._hops.read(lambda: index.write_beside(self._store.disk, path, view, durable))
        except OSError as error:
            log.warning("session %s: %s was not written: %s", session.id, index.VIEW, error)


def _listed(session: Session) -> Listed:
    view = session.show()
    return Listed(index.row(view), bool(view.get("agent")), view)


def _is_called(session: Session, name: str) -> bool:
    return session.name == name and not session.state.closed


def batched(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
