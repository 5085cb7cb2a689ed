"""All sessions of a state directory: which there are, which are loaded, making and removing them.

- A session is loaded when something is asked of it, or at the daemon's start if it is marked
  active. Loading one twice at the same time is one loading. It is unloaded when it has rested for
  long and nobody holds it (`loading`).
- What `ls` and name resolution need of a session that isn't loaded comes from one file for all
  (`index`), else from ``view.json`` beside its log, each believed only if it fits the log's size;
  else the log is folded.
- Names are unique among open sessions; making, renaming and reopening are decided one at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import orjson
import trio

from dshd import paths, wire
from dshd.driver.driver import ROOM_POLL_S
from dshd.driver.port import Services
from dshd.errors import Conflict, Damaged, Denied, DshError, Invalid, NoSpace, NotFound
from dshd.log import recovery, repair
from dshd.log.disk import Disk
from dshd.log.store import ATTACHMENTS, Store
from dshd.log.writer import LogWriter, hop
from dshd.model.routes import Choice
from dshd.session import attachments, index, loading, opening, sending, views
from dshd.session import requests as sent
from dshd.session.checkpoint import Kept
from dshd.session.events import VERSION, file_name
from dshd.session.index import Index
from dshd.session.keeping import Keeper
from dshd.session.ledger import Ledger
from dshd.session.loading import Upkeep
from dshd.session.scratch import Scratch
from dshd.session.session import Session
from dshd.session.state import State
from dshd.session.surroundings import Surroundings
from dshd.session.who import Peer

log = logging.getLogger(__name__)
Json = dict[str, Any]
T = TypeVar("T")

VIEW: Final = "view.json"
SECRETS: Final = "env.json"
RESERVE_POLL_S: Final = 60.0  # how often room for the reserve is looked for, once it is given up
LAST_KEEPING_S: Final = 3.0  # for checkpoints, when the daemon stops
AT_ONCE: Final = 64  # views that are read in one hop
READERS: Final = 8  # threads that load, list and check; never the log writers'


class Registry:
    """``start`` runs a coroutine function in the daemon's session nursery."""

    def __init__(
        self,
        store: Store,
        services: Services,
        *,
        start: Callable[..., None],
        on_lines: Callable[[str, int, list[bytes]], None],
        on_reset: Callable[[str, int], None],
        boot: str,
        version: str,
        limiter: trio.CapacityLimiter,
        what_ends_us: Callable[[], str | None] = lambda: None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self.store = store
        self._reserve = services.reserve
        self.services = attrs.evolve(services, environment=self.environment, reserve=self._give_reserve)
        self.loaded: dict[str, Session] = {}
        self._views = Index()
        self._listed: set[str] = set()  # on disk at the start, and not deleted since
        self._loading: dict[str, trio.Event] = {}
        self._secrets: dict[str, dict[str, str]] = {}
        self._limiter = limiter
        self._readers = trio.CapacityLimiter(READERS)
        self._naming = trio.Lock()
        self._mending = trio.Lock()
        self._saving = trio.Lock()
        self._indexed = trio.Event()
        self._draining = False
        self._upkeep = upkeep
        self._start = start
        self._around = Surroundings(
            services=self.services,
            start=start,
            mark=lambda id: self._write(lambda: self.store.mark(id)),
            unmark=lambda id: self._read(lambda: self.store.unmark(id)),
            attach=lambda id, files: self._write(lambda: self.store.attach(id, files)),
            detach=lambda id, names: self._read(lambda: self.store.detach(id, names)),
            what_ends_us=what_ends_us,
            reopening=self._reopening,
            on_lines=on_lines,
            on_reset=on_reset,
            boot=boot,
            version=version,
        )

    @property
    def disk(self) -> Disk:
        return self.store.disk

    async def _read(self, work: Callable[[], T]) -> T:
        return await hop(self.disk, work, self._readers)

    async def _write(self, work: Callable[[], T]) -> T:
        return await hop(self.disk, work, self._limiter)

    # --- start and stop

    async def start(self) -> None:
        """Sweep leftovers, open what is marked active and drive it; then list all the others."""
        await self._read(self.store.sweep)
        ids = set(await self._read(self.store.ids))
        for id in await self._read(self.store.marked):
            if id in ids:
                await self._start_one(id)
            else:
                await self._around.unmark(id)
        if self._upkeep is not None:
            self._start(self._look_after, self._upkeep)
        await self._index(ids)
        if not await self._read(self.store.reserve.hold):
            self._start(self._take_reserve_back)

    async def _start_one(self, id: str) -> None:
        try:
            session = await self.get(id)
            await session.start()
        except NoSpace as error:
            log.warning("session %s is opened when there is room: %s", id, error)
            self._start(self._start_later, id)
        except DshError as error:
            log.error("session %s was not opened: %s", id, error)

    async def _start_later(self, id: str) -> None:
        """A torn tail could not be set aside: the disk is full."""
        if not self._give_reserve():
            await trio.sleep(ROOM_POLL_S)
        await self._start_one(id)

    def _give_reserve(self) -> bool:
        """Give up the reserve for a closing event; whether it was held. It is taken back later."""
        held = self._reserve()
        if held:
            self._start(self._take_reserve_back)
        return held

    async def _take_reserve_back(self) -> None:
        while not self.store.reserve.held:
            await trio.sleep(RESERVE_POLL_S)
            await self._read(self.store.reserve.hold)

    async def _index(self, ids: set[str]) -> None:
        store, self._listed = self.store, ids
        for view in await self._read(lambda: index.read(self.disk, store.state, store.sessions, set(ids))):
            self._note(view["id"], view)
        missing = [id for id in sorted(ids) if id not in self.loaded and id not in self._views]
        for some in batched(missing, AT_ONCE):
            found = await self._read(lambda: [(id, self._view_of(id)) for id in some])  # noqa: B023 - awaited
            for id, view in found:
                self._note(id, view)
        self._indexed.set()
        if missing:
            await self._save_index()

    def _note(self, id: str, view: Json) -> None:
        """A view that was read, unless something became of the session meanwhile."""
        if id in self._listed and id not in self.loaded and id not in self._views:
            self._views.put({**view, "id": id})

    async def _save_index(self) -> None:
        lines = {view["id"]: orjson.dumps(view) for view in self._all_views()}
        try:
            async with self._saving:
                await self._read(lambda: index.write(self.disk, self.store.state, lines.values()))
        except OSError as error:
            log.warning("%s was not written: %s", index.NAME, error)

    async def drain(self, grace: float) -> None:
        """Let running turns reach a step boundary for ``grace`` s, then interrupt them."""
        self._draining = True
        sessions = list(self.loaded.values())
        for session in sessions:
            session.driver.stop_at_boundary()
            session.rested()  # those who wait for room
        with trio.move_on_after(grace):
            for session in sessions:
                await session.drain()
        for session in sessions:
            session.driver.cancel("shutdown")
        with trio.move_on_after(grace + 5):
            for session in sessions:
                await session.drain()
        last = trio.current_time() + LAST_KEEPING_S
        for session in sessions:
            await self._save_view(session)
            if trio.current_time() < last:
                await session.keep()
        if self._indexed.is_set():
            await self._save_index()

    # --- which there are

    async def rows(self) -> list[wire.SessionRow]:
        """What `wire.resolve` chooses from."""
        await self._indexed.wait()
        loaded = {id: session.row() for id, session in self.loaded.items()}
        return list({**dict(self._views.rows()), **loaded}.values())

    def _all_views(self) -> list[Json]:
        loaded = {id: session.show() for id, session in self.loaded.items()}
        return list({**dict(self._views.views()), **loaded}.values())

    async def views(self, all: bool) -> list[Json]:
        """``session`` objects, newest activity first."""
        await self._indexed.wait()
        views = [v for v in self._all_views() if all or v["state"] != "closed"]
        return sorted(views, key=lambda v: -(v["active_at"] or 0))

    async def resolve(self, ref: str | None, cwd: str | None, *, exact: bool = False) -> str:
        """The id that a reference as typed means. Raises `NotFound`, `Invalid`."""
        if ref is not None and (known := self._loaded_as(ref)) is not None:
            return known
        home = str(self.services.home or "")
        return str(wire.resolve(ref, await self.rows(), cwd, exact=exact, home=home).id)

    def _loaded_as(self, ref: str) -> str | None:
        """Without looking at all sessions: an open one of this name is the only one, and a name
        goes before an id."""
        named = (id for id, s in self.loaded.items() if s.state.name == ref and not s.state.closed)
        return next(named, ref if ref in self.loaded and not wire.MESSAGE_ID.match(ref) else None)

    async def of_message(self, message: str) -> Session:
        """The session that a message's id names."""
        id = wire.session_of(message)
        if id not in self.loaded and not await self._read(lambda: self.store.exists(id)):
            raise NotFound(f'no message "{message}"', hint="dshctl queue")
        session = await self.get(id)
        loading.hold_or_drop(await session.recall(("m", message)))
        return session

    # --- loading

    async def get(self, id: str) -> Session:
        """The session, loaded if it wasn't; held until the end of the caller's `loading.holding`.

        Raises `NotFound` and what reading its file raised.
        """
        while id in self._loading:
            await self._loading[id].wait()
        if id not in self.loaded:
            self._loading[id] = trio.Event()
            try:
                session = await self._load(id)
                session.driver.draining = self._draining
                self.loaded[id] = session
            finally:
                self._loading.pop(id).set()
        session = self.loaded[id]
        loading.hold_or_drop(session.hold())
        return session

    async def _look_after(self, upkeep: Upkeep) -> None:
        """Unload what has rested for long."""
        while not self._draining:
            await trio.sleep(upkeep.look)
            for session in list(self.loaded.values()):
                rested = trio.current_time() - session.used
                if rested >= upkeep.rest(session.size) and not session.holders and session.rests:
                    await self._unload(session)

    async def _unload(self, session: Session) -> None:
        """Let a session leave memory, unless something comes of it meanwhile."""
        used, id = session.used, session.id
        await session.keep()
        if session.ledger is not None and session.ledger.wrote:
            await self._save_view(session)
        if session.used != used or session.holders or not session.rests or self._draining:
            return
        if self.loaded.get(id) is session:  # from here on without a checkpoint
            self._views.put({**session.show(), "id": id})
            del self.loaded[id]
            self._secrets.pop(id, None)
            session.let_go()

    async def _load(self, id: str) -> Session:
        path = self.store.log_path(id)
        if not await self._read(lambda: self.disk.exists(path)):
            raise NotFound(f'no session "{id}"', hint="dshctl ls")
        found = await self._read(lambda: opening.load(self.disk, path))
        writer = None
        if found.file is not None:
            o = found.opened
            writer = LogWriter(
                found.file, next_seq=o.next_seq, synced=o.synced, size=o.size, limiter=self._limiter
            )
        marked = await self._read(lambda: self.store.is_marked(id))
        self._secrets[id] = await self._read(lambda: self._read_secrets(id))
        return Session(
            id,
            found.state,
            writer,
            self._around,
            broken=found.broken,
            partial=found.partial,
            found=found.found,
            marked=marked,
            refold=lambda w: self._read(lambda: opening.state_synced(w.file, w.synced_size)),
            keeper=partial(self._keeper, found.kept) if found.kept is not None else None,
        )

    def _keeper(self, kept: Kept, ledger: Ledger) -> Keeper:
        refold = partial(opening.state_until, self.disk, kept.log)
        return Keeper(kept, ledger, self._upkeep or Upkeep(), self._read, refold)

    # --- making and removing

    async def create(self, p: wire.CreateParams, peer: Peer) -> tuple[Session, Json | None]:
        """A new session, with its first message's receipt if it came with one.

        Durability: on return the session's directory, its log and the message are on disk.
        Raises `Denied`, `Invalid`, `Conflict` (the name is taken), `NotConfigured` (no model).
        """
        if peer.kind == "agent":
            raise Denied("a tool can't make sessions.")
        choice = await self.services.models.choose(p.model, client_is_terminal=p.terminal)
        async with self._naming:
            rows = await self.rows()
            if p.key is not None and (known := self._by_run_key(p.key)) is not None:
                session = await self.get(known)
                return session, await self._first_again(session, p, peer)
            header = await self._header(p, rows, choice)
            return await self._make(header, p, peer)

    def _by_run_key(self, key: str) -> str | None:
        return next((v["id"] for v in self._all_views() if v.get("key") == key), None)

    async def _first_again(self, session: Session, p: wire.CreateParams, peer: Peer) -> Json | None:
        if p.text is None and p.content is None:
            return None
        send = wire.SendParams(verb="followup", text=p.text, content=p.content, key=p.key, retry=p.retry)
        return await session.send(send, peer)

    async def _header(self, p: wire.CreateParams, rows: list[wire.SessionRow], choice: Choice) -> Json:
        config = self.services.config()
        if not os.path.isabs(p.dir):
            raise Invalid("expected an absolute path @ $.dir")
        if not await self._read(lambda: os.path.isdir(p.dir)):
            raise NotFound(f"no directory {p.dir}", hint="dshctl new -C DIR")
        taken = [row.name for row in rows if row.name and row.state != "closed"]
        mode = p.mode or ("read-only" if self._is_wide(p.dir) else config.sessions.mode)
        return {
            "version": VERSION,
            "id": self._fresh_id(rows),
            "name": _name(p, taken),
            "created": self.services.now(),
            "dir": p.dir,
            "model": choice.ref,
            "model_why": choice.why,
            "adapter": self.services.models.adapter_name(choice.ref),
            "mode": config.within_policy(mode),
            "parent": None,
            "seed": None,
            "origin": "run" if p.run else "user",
            "depth": 0,
            "ask": p.ask or config.sessions.ask or ("wait" if p.terminal else "deny"),
            "net": config.sessions.net if p.net is None else p.net,
            "implicit": p.implicit,
            "run": p.run,
            "patience": p.patience,
            "env": {k: v for k, v in p.env.items() if not paths.looks_secret(k)},
            "key": p.key,
        }

    def _is_wide(self, dir: str) -> bool:
        """Whether a directory holds so much that only reading is safe: /, $HOME or above it."""
        home = os.path.realpath(str(self.services.home or "/"))
        real = os.path.realpath(dir)
        return real == "/" or home == real or home.startswith(real.rstrip("/") + "/")

    def _fresh_id(self, rows: list[wire.SessionRow]) -> str:
        taken = {row.id for row in rows}
        while (id := wire.session_id(os.urandom(7))) in taken:
            pass
        return id

    async def _make(self, header: Json, p: wire.CreateParams, peer: Peer) -> tuple[Session, Json | None]:
        id = str(header["id"])
        s = Scratch(State(), self.services.now(), -1)
        s.emit("session/header", {k: v for k, v in header.items() if v is not None})
        receipt, attached = _first_message(s, p, peer)
        secrets = {k: v for k, v in p.env.items() if paths.looks_secret(k)}
        files = {SECRETS: json.dumps(secrets).encode()} if secrets else {}
        files |= {f"{ATTACHMENTS}/{name}": content for name, content in attached.items()}

        def write() -> None:
            if receipt is not None:
                self.store.mark(id)
            self.store.create(id, b"".join(s.lines), files)

        await self._write(write)
        session = await self.get(id)
        session.driver.poke()
        if receipt is not None:
            receipt = {**receipt, "created": True, "turn": 1}
        return session, receipt

    async def rename(self, session: Session, name: str, peer: Peer) -> Json:
        wire.check_name(name)
        async with self._naming:
            await self._check_free(name, session.id)
            return await session.change({"name": name}, peer)

    async def reopen(self, session: Session, peer: Peer) -> tuple[Session, Json]:
        """Open a closed session again, or leave the faulted state: the synced prefix is copied to
        a new file, and the old inode is never trusted."""
        if session.word != "faulted":
            async with self._naming:
                await self._check_free(session.state.name, session.id)
                return session, await session.reopen(peer)
        if peer.kind == "agent":
            raise Denied("a tool can't reopen sessions.")
        with trio.CancelScope(shield=True):
            async with self._mending:
                if self.loaded.get(session.id) is session:  # nobody else did it meanwhile
                    await session.drain()
                    await self._copy_synced(session)
                    self._forget(session)
        again = await self.get(session.id)
        await again.start()
        return again, again.show()

    def _forget(self, session: Session) -> None:
        session.let_go()
        del self.loaded[session.id]

    async def _copy_synced(self, session: Session) -> None:
        """What was synced goes to a new file, read through the descriptor that is still open: the
        name may be another file's by now, and the old inode's cache may lie."""
        assert session.ledger is not None
        writer, path = session.ledger.writer, self.store.log_path(session.id)
        await self._write(
            lambda: recovery.reopen_copy(self.disk, path, writer.synced_size, source=writer.file)
        )

    @contextlib.asynccontextmanager
    async def _reopening(self, name: str, id: str) -> AsyncIterator[None]:
        async with self._naming:
            await self._check_free(name, id)
            yield

    async def _check_free(self, name: str, id: str) -> None:
        for row in await self.rows():
            if row.name == name and row.id != id and row.state != "closed":
                raise Conflict(f'the name "{name}" is taken by {row.id}.', hint="dshctl ls",
                               outcome="not-written")  # fmt: skip

    async def delete(self, id: str, force: bool, peer: Peer) -> Json:
        """Remove a session for good. Raises `Conflict` while it runs or holds messages, unless
        ``force``, which aborts and clears first."""
        if peer.kind == "agent":
            raise Denied("a tool can't remove sessions.")
        session = await self.get(id)
        view = session.show()
        if force and session.usable:
            await session.abort(wire.AbortParams(disposition="clear", reason="rm"), peer)
        elif session.usable and (session.state.turn is not None or session.state.pending):
            raise Conflict(f"not removed: {session.state.name} runs or holds messages.",
                           hint=f"dshctl rm --force {session.state.name}", outcome="not-written")  # fmt: skip
        with trio.CancelScope(shield=True):
            await session.drain()
            session.let_go()
            self.loaded.pop(id, None)
            self._views.pop(id)
            self._listed.discard(id)
            await self._write(lambda: self.store.delete(id))
        return {"type": "removed", "exit": 0, "session": id, "name": view["name"]}

    # --- looking after them

    async def fsck(self, id: str, *, requests: bool = False) -> Json:
        """Fold the log anew and compare with what is held in memory (G3); with ``requests``, also make
        each request again that was sent (G9)."""
        session = await self.get(id)
        held = session.state
        digest, seq = held.digest(), held.seq
        path = self.store.log_path(id)
        found = await self._read(lambda: opening.look(self.disk, path))
        rebuilt = await self._read(lambda: opening.state_until(self.disk, path, seq))
        differ = [part for part, value in rebuilt.digest().items() if digest[part] != value]
        problem = found.broken.error.message if found.broken else None
        if differ and problem is None:
            problem = f"memory differs from the log in {', '.join(differ)}"
        report = {
            "type": "fsck", "session": id, "name": session.state.name, "ok": problem is None,
            "events": seq + 1, "bytes": found.opened.size, "problem": problem,
            "hint": found.broken.error.hint if found.broken else None, "requests": None,
            "exit": 0 if problem is None else 7,
        }  # fmt: skip
        if not requests:
            return report
        rebuild = self.services.models.rebuild
        return sent.add(report, await self._read(lambda: sent.check(self.disk, path, rebuild, until=seq)))

    async def repair(self, id: str, peer: Peer) -> Json:
        """``fsck --repair``: rewrite a damaged log around its bad regions. See `log.repair`."""
        if peer.kind == "agent":
            raise Denied("a tool can't repair sessions.")
        session = await self.get(id)
        if session.state.turn is not None and session.usable:
            raise Conflict(f"{session.state.name} runs a turn.", hint=f"dshctl wait -s {session.state.name}")
        if isinstance(session.broken and session.broken.error, Damaged):
            with trio.CancelScope(shield=True):
                async with self._mending:
                    if self.loaded.get(id) is session:
                        path = self.store.log_path(id)
                        await self._write(lambda: repair.repair(self.disk, path))
                        self._forget(session)
            await (await self.get(id)).start()
        return await self.fsck(id)

    def environment(self, state: State) -> Mapping[str, str]:
        """What the session's tools run with: its environment, and the secrets named by ``--env``."""
        env = dict(state.settings.get("env") or {})
        env.update({k[4:]: v for k, v in state.settings.items() if k.startswith("env.") and v is not None})
        return {**env, **self._secrets.get(state.id, {})}

    def _read_secrets(self, id: str) -> dict[str, str]:
        try:
            return dict(json.loads(self.disk.read_bytes(self.store.session_dir(id) / SECRETS)))
        except (OSError, ValueError):
            return {}

    # --- views beside the logs

    async def _save_view(self, session: Session) -> None:
        if session.ledger is None or session.broken is not None:
            return
        view = {**session.show(), "size": session.size}
        path = self.store.session_dir(session.id) / VIEW
        try:
            async with self._saving:
                await self._read(lambda: self.disk.write_atomic(path, json.dumps(view).encode()))
        except OSError as error:
            log.warning("session %s: %s was not written: %s", session.id, VIEW, error)

    def _view_of(self, id: str) -> Json:
        path = self.store.log_path(id)
        try:
            size = self.disk.stat(path).size
            view = json.loads(self.disk.read_bytes(path.with_name(VIEW)))
            if view.pop("size") == size and view["type"] == "session":
                return dict(view)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return view_from_log(self.disk, path)


def batched(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def view_from_log(disk: Disk, path: Path) -> Json:
    """A session's view by folding its log; of one that can't be read, what its directory says."""
    id = path.parent.name
    try:
        found = opening.glance(disk, path)
    except DshError as error:
        log.warning("session %s can't be read: %s", id, error)
        return {**views.session(State(), broken="damaged"), "id": id, "name": id}
    word = found.broken.word if found.broken else None
    view = views.session(found.state, size=found.opened.size, broken=word)
    return view if view["id"] else {**view, "id": id, "name": id, "state": "damaged"}


def _name(p: wire.CreateParams, taken: list[str]) -> str | None:
    if p.name is not None:
        wire.check_name(p.name)
        if p.name in taken:
            raise Conflict(f'the name "{p.name}" is taken.', hint=f"dshctl show {p.name}")
        return p.name
    return wire.name_for_directory(p.dir, taken) if p.implicit else None


def _first_message(s: Scratch, p: wire.CreateParams, peer: Peer) -> tuple[Json | None, dict[str, bytes]]:
    """Its receipt, and the attachments that go with it, by file name."""
    if p.text is None and p.content is None:
        return None, {}
    content = attachments.content_of(p.text, p.content)
    send = sending.Send(
        verb="followup",
        queue="next-turn",
        wake=True,
        content=content.blocks,
        source=peer.source(p.as_),
        key=p.key,
    )
    return sending.decide(s, send, 1), {file_name(sha): raw for sha, raw in content.files.items()}
