"""The life of the process: from the state lock to the exit status.

In this order, and each for a reason:

1. the **state lock**: who doesn't get it has changed nothing;
2. the sockets, made under the lock, listening: clients may come, and wait;
3. **ready** (``READY=1``): hello is answered;
4. sessions that have something to do are opened and go on by themselves; all others on demand;
5. what was spooled is taken up; until then sends wait (`control.takeup`).

And at the end:

1. a signal, or ``daemon.stop``: running turns get ``shutdown_grace`` to reach a step boundary. Sends are
   written and answered meanwhile, with ``"warning": "stopping"``;
2. requests are refused, those under way are answered;
3. connections end, tools end, the socket's name goes, the lock last.

A second signal skips to the end. What doesn't end in time is ended: every wait here has a deadline.

Nurseries, outer to inner: *tasks* (the hub, the watchdog, signals), *sessions* (drivers, which must end
before the spawner does), *clients* (listeners with their connections), *writes* (requests that are carried
through, and answered: so they end before the connections).
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from dshd import __version__
from dshd.control.address import Address, Lookout, inherited
from dshd.control.calls import Room
from dshd.control.feed import Hub
from dshd.control.handlers.saying import deliver_spooled
from dshd.control.listener import Listener
from dshd.control.takeup import TakingUp
from dshd.errors import Conflict
from dshd.log.disk import RealDisk
from dshd.log.lock import StateLock
from dshd.log.store import Store
from dshd.log.threads import Threads
from dshd.order import InOrder
from dshd.session.owner.loading import Upkeep
from dshd.session.registry import kept_jobs
from dshd.session.registry.host import Host
from dshd.session.registry.registry import Registry
from dshd.settings import Daemon, Setup
from dshd.spawn.client import Spawner, kill_orphans
from dshd.systemd import look_what_ends_it

if TYPE_CHECKING:
    from dshd.control.websocket.serving import WebSockets

log = logging.getLogger(__name__)
Json = dict[str, Any]

WRITERS: Final = 32  # threads that write and sync logs
READERS: Final = 8  # threads that read logs for followers
LAST_ANSWERS_S: Final = 10.0  # for what is under way when the turns have ended
GUARD_S: Final = 10.0  # between looks at the state lock
LAST_DRAIN_S: Final = 30.0  # beyond the grace, for turns to be closed on a slow disk


def _start(nursery: trio.Nursery, work: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run a session's task. The boundary: a mistake of ours in one session is not the end of the others."""

    async def guarded() -> None:
        try:
            await work(*args)
        except Exception:
            log.exception("a session's task failed")

    nursery.start_soon(guarded, name=getattr(work, "__qualname__", None))


async def serve(setup: Setup) -> int:
    """Be the daemon, until it is told to stop; the exit status. Raises `DshError` if it can't begin."""
    _make_private(setup.places.state)
    with contextlib.closing(StateLock(Path(setup.places.state))) as lock, contextlib.ExitStack() as names:
        address = _address(setup, lock)
        if address is not None:
            names.callback(address.close)
        held = [names.enter_context(inherited(setup.places, fd)) for fd in setup.manager.descriptors]
        _raise_limits()
        return await _Life(Daemon(setup), lock, address, held).run()


def _make_private(state: str) -> None:
    os.makedirs(state, mode=0o700, exist_ok=True)
    os.chmod(state, 0o700)


def _address(setup: Setup, lock: StateLock) -> Address | None:
    """The socket of our own, unless the manager holds ours."""
    return None if setup.manager.descriptors else Address(setup.places, lock.still_ours)


def _raise_limits() -> None:
    """All descriptors we may have. After the spawner was forked: tools keep the usual limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def guard(lock: StateLock) -> None:
    """See, as long as the daemon lives, that the state directory is still ours. Raises `Conflict` if it is
    not: what is written by path would go into another daemon's."""
    while True:
        await trio.sleep(GUARD_S)
        try:
            found = await trio.to_thread.run_sync(lock.look)
        except OSError as error:  # a full disk, say; the directory is locked all the same
            log.warning("%s can't be looked at or made again: %s", lock.path, error.strerror)
            continue
        if found == "mended":
            log.warning("%s was removed or replaced, and is made again", lock.path)
        if found == "gone":
            raise Conflict(f"state directory {lock.state} was moved, removed or replaced under dshd.")


class _Life:
    """One run of the event loop."""

    def __init__(self, daemon: Daemon, lock: StateLock, address: Address | None, held: list[Any]) -> None:
        self._daemon = daemon
        self._lock = lock
        self._manager = daemon._setup.manager
        self._address = address
        self._lookout: Lookout | None = None
        self._taking_up = InOrder()
        self._sockets = held if address is None else [address.sock]
        self._disk = RealDisk()
        self._store = Store(self._disk, Path(daemon.places.state))
        self._spawner = Spawner(daemon._setup.handle, state_dir=Path(daemon.places.state))
        self._hub = Hub(self._disk, self._store.log_path, self._told, threads=Threads(READERS))
        self._registry: Registry
        self._listeners: list[Listener] = []
        self._web: WebSockets | None = None

    def _told(self, session: str) -> int | None:
        """The last event that a loaded session has folded, and so told; None for one that isn't loaded,
        or whose log nobody writes."""
        loaded = self._registry.loaded.get(session)
        return None if loaded is None or loaded.ledger is None else loaded.state.seq

    async def run(self) -> int:
        self._store.prepare()
        async with self._spawning(), trio.open_nursery() as tasks:
            tasks.start_soon(self._signals, tasks)
            await tasks.start(self._hub.run)
            tasks.start_soon(guard, self._lock)
            if self._manager.watchdog:
                tasks.start_soon(self._pet, self._manager.watchdog / 2)
            async with trio.open_nursery() as sessions:
                await self._serve(sessions, tasks)
                sessions.cancel_scope.cancel()
            tasks.cancel_scope.cancel()
        log.info("stopped")
        return 0

    @contextlib.asynccontextmanager
    async def _spawning(self) -> AsyncIterator[None]:
        """Tools end before the process does, also when it ends by an error."""
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._daemon.models.aclose()
                await self._spawner.aclose()

    async def _serve(self, sessions: trio.Nursery, tasks: trio.Nursery) -> None:
        daemon = self._daemon
        self._registry = Registry(
            self._store,
            daemon.services(self._spawner, self._store, partial(_start, sessions)),
            Host(
                start=partial(_start, sessions),
                threads=Threads(WRITERS),
                on_lines=self._hub.publish,
                on_reset=self._hub.reset,
                on_gone=self._hub.forget,
                what_ends_us=lambda: look_what_ends_it(self._manager),
                boot=daemon.boot,
                version=__version__,
                upkeep=Upkeep(),
            ),
        )
        daemon.on_reload = self._registry.reloaded
        room = Room(self._registry, self._hub, daemon)
        async with trio.open_nursery() as clients:
            await self._be_there(room, clients, sessions, tasks)
            clients.cancel_scope.cancel()

    async def _be_there(
        self, room: Room, clients: trio.Nursery, sessions: trio.Nursery, tasks: trio.Nursery
    ) -> None:
        """Answer until told to stop; returns when what was asked to be written is written."""
        last = trio.CancelScope()
        try:
            with last:
                async with trio.open_nursery() as writes:
                    room.gate.close()
                    self._listen(room, writes, clients)
                    self._listen_on_web(room, writes, clients)
                    self._manager.ready()
                    log.info("dshd %s is ready, process %d", __version__, os.getpid())
                    sessions.start_soon(self._begin, room)
                    self._look_out(room, sessions, clients)
                    if self._daemon.config.daemon.idle_exit:
                        tasks.start_soon(self._exit_when_idle)
                    await self._daemon.stop_asked.wait()
                    await self._drain()
                    room.closing.set()
                    last.deadline = trio.current_time() + LAST_ANSWERS_S
                    await self._registry.written()
        finally:
            room.closing.set()

    def _listen(self, room: Room, writes: trio.Nursery, clients: trio.Nursery) -> None:
        for sock in self._sockets:
            one = Listener(sock, room, writes, self._spawner.owner)
            self._listeners.append(one)
            clients.start_soon(one.run)

    def _listen_on_web(self, room: Room, writes: trio.Nursery, clients: trio.Nursery) -> None:
        config = self._daemon.config.daemon
        if config.websocket is None:
            return
        from dshd.control.websocket.serving import WebSockets

        state = Path(self._daemon.places.state)
        self._web = WebSockets(
            config.websocket, tuple(config.origins), state, room, writes, self._spawner.owner
        )
        clients.start_soon(self._web.run)

    def _look_out(self, room: Room, sessions: trio.Nursery, clients: trio.Nursery) -> None:
        """See that clients find us; whatever they spooled while they couldn't is taken up."""
        if self._address is None:
            return

        async def moved(sock: Any) -> None:
            room.gate.close()
            self._listeners[0].move(sock)
            sessions.start_soon(self._take_up_again, room)

        self._lookout = Lookout(self._address, moved)
        clients.start_soon(self._lookout.run)

    async def _begin(self, room: Room) -> None:
        """Clear what an earlier daemon left, and go on with what it had begun, then with what was spooled."""
        async with self._taking_up:
            taking_up = self._spooled(room)
            spooled = await taking_up.look()
            state = self._store.state
            left = await trio.to_thread.run_sync(lambda: kill_orphans(state, kept_jobs.spared(state)))
            if left:
                log.warning("ended what an earlier daemon left: %s", ", ".join(map(str, left)))
            await self._registry.start()
            await taking_up.run(spooled)

    async def _take_up_again(self, room: Room) -> None:
        async with self._taking_up:
            room.gate.close()
            taking_up = self._spooled(room)
            await taking_up.run(await taking_up.look())

    def _spooled(self, room: Room) -> TakingUp:
        return TakingUp(room.spool, room.gate, partial(deliver_spooled, room), self._registry.services.now)

    async def _drain(self) -> None:
        self._manager.stopping()
        grace = self._daemon.config.daemon.shutdown_grace
        log.info("stopping; running turns have %g s", grace)
        with trio.move_on_after(grace + LAST_DRAIN_S):
            await self._registry.drain(grace)

    async def _signals(self, tasks: trio.Nursery) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        with trio.open_signal_receiver(*numbers) as received:
            async for number in received:
                if number == signal.SIGCHLD:
                    self._spawner.reap()
                elif number == signal.SIGHUP:
                    if self._lookout is not None:
                        self._lookout.look_now()
                    await self._daemon.reload_quietly()
                elif self._daemon.stop_asked.is_set():
                    log.warning("a second signal: stopping at once")
                    tasks.cancel_scope.cancel()
                else:
                    self._daemon.stop()

    async def _pet(self, interval: float) -> None:
        while True:
            self._manager.alive()
            await trio.sleep(interval)

    async def _exit_when_idle(self) -> None:
        """Leave after ``idle_exit`` without a client and without a session that has anything to do."""
        patience = self._daemon.config.daemon.idle_exit
        quiet_since = trio.current_time()
        while trio.current_time() - quiet_since < patience:
            await trio.sleep(min(patience / 4, 10))
            clients = sum(one.clients for one in self._listeners)
            clients += self._web.clients if self._web is not None else 0
            busy = await trio.to_thread.run_sync(lambda: bool(self._store.marked()))
            if clients or busy:
                quiet_since = trio.current_time()
        log.info("nothing to do for %g s", patience)
        self._daemon.stop()
