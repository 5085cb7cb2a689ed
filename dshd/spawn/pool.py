"""Supervisors that wait for a call, one ahead of need; and the spawner they come from, replaced if it dies.

A daemon whose spawner was killed can't fork another: it has threads by then. So the next one is executed
(``python -m dshd.spawn``), and as a parent-death signal would belong to the thread that happened to start
it, it watches its parent instead.

A spawner that died under its supervisors leaves them, and what killed ones among them ran, to the subreaper
above it: the daemon (`start` makes it one). What arrives here and is not a supervisor at work is ended
(`clear_up`) before the next spawner begins.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Collection

import trio

from dshd import errors
from dshd.order import InOrder
from dshd.spawn import SpawnerHandle, kernel, tree
from dshd.spawn.call import Call, SpawnFailed
from dshd.spawn.protocol import MORE, NO_PROCESS, receive_supervisor

log = logging.getLogger(__name__)

START_LIMIT = 10.0  # s for the spawner to fork, and for a supervisor to begin
MOST_IDLE = 3  # supervisors that are kept waiting
STRAY_LIMIT = 2.0  # s to end what was left to us
CLOSE_LIMIT = 10.0  # s for the spawner to end all calls and itself


class Pool:
    """``pids`` are those of every spawner there has been."""

    def __init__(self, handle: SpawnerHandle, brand: int | None = None) -> None:
        self.handle = handle
        self.carried: int | None = None  # the brand that its spawner, and so every tool, really has
        self._brand = brand
        self._mark(handle)
        self.pids = {handle.pid}
        self._waiting: deque[Call] = deque()  # the last used, and so warmest, at the right
        self._asked = 0  # for how many supervisors we wait
        self._lock = InOrder()
        self._closed = False

    async def take(self) -> Call:
        """A supervisor that waits for its request. Raises SpawnFailed, Unavailable once closed."""
        async with self._lock:
            while True:
                self._collect()
                while self._waiting:
                    if not (call := self._waiting.pop()).is_over:
                        return call
                    call.close()
                await self._more()

    def give_back(self, call: Call) -> None:
        """A supervisor whose call is over, for the next."""
        if self._closed or len(self._waiting) + self._asked >= MOST_IDLE or call.spawner != self.handle.pid:
            call.close()
        else:
            self._waiting.append(call)

    def want(self) -> None:
        """Have one ready for the next call. Costs a system call; the fork happens elsewhere."""
        if not self._closed and not self._waiting and not self._asked:
            self._ask()

    async def clear_up(self, spawner: int, at_work: Callable[[], Collection[int]]) -> list[int]:
        """End what is left of a call that nobody reported on. ``spawner``: whose it was; if it is the one
        that we have, it is not to be trusted any more, and replaced. ``at_work``: supervisors that see to
        themselves. Returns the pids of what can't be ended, after STRAY_LIMIT at most."""
        async with self._lock:
            retired = self.handle.pid == spawner and not self._closed
            if retired:
                await self._retire(self.handle)
            left = await self._end_strays(at_work)
            if retired:
                with contextlib.suppress(SpawnFailed):  # the next call tries again, and says so
                    await self._launch()
            return left

    def reap(self) -> None:
        """Wait for the spawner, should it have ended, and for children that we have inherited, so that no
        zombie is left."""
        reaped(self.handle.pid)
        for pid, process in self._inherited().items():
            if process.state == "Z":
                reaped(pid)

    async def aclose(self) -> None:
        """End the spawner; running calls end with it. Returns when it is gone, at most CLOSE_LIMIT later."""
        self._closed = True
        self._drop()
        with trio.move_on_after(CLOSE_LIMIT, shield=True):
            await gone(self.handle)

    async def _more(self) -> None:
        """Wait for one more to arrive, or for what is wrong to be put right."""
        if self._closed:
            raise errors.Unavailable("the daemon is stopping: no command is started any more.")
        lost = self.handle
        if not reaped(lost.pid):
            kernel.send([lost.pid], signal.SIGCONT)  # in case somebody has stopped it
        if self._asked or self._ask():
            with trio.move_on_after(START_LIMIT), contextlib.suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(lost.sock)
                return
        await self._replace(lost)

    def _ask(self) -> bool:
        try:
            self.handle.sock.send(MORE, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return False
        self._asked += 1
        return True

    def _collect(self) -> None:
        """Take in what the spawner has sent."""
        while self._asked:
            try:
                found = receive_supervisor(self.handle.sock)
            except BlockingIOError:
                return
            except OSError:
                found = ""
            if not isinstance(found, str):
                self._asked -= 1
                self._waiting.appendleft(Call(*found, self.handle.pid))
            elif found.startswith(NO_PROCESS):
                self._asked -= 1
                raise SpawnFailed(found)
            elif found:
                log.error("the spawner failed: %s", found)
            else:
                self._asked = 0

    async def _replace(self, lost: SpawnerHandle) -> None:
        if self.handle is lost and not self._closed:
            await self._retire(lost)
            await self._launch()

    async def _retire(self, lost: SpawnerHandle) -> None:
        log.error("the spawner (process %d) is gone; starting another", lost.pid)
        if (process := tree.look(lost.pid)) is not None and process.parent == os.getpid():
            kernel.send([lost.pid], signal.SIGKILL)
        self._drop()
        with trio.move_on_after(STRAY_LIMIT):
            await gone(lost)

    async def _launch(self) -> None:
        try:
            self.handle = await trio.to_thread.run_sync(launch)
        except OSError as error:
            raise SpawnFailed(f"no other spawner could be started: {error.strerror}") from error
        self._mark(self.handle)
        self.pids.add(self.handle.pid)

    def _mark(self, handle: SpawnerHandle) -> None:
        """Before it has forked a supervisor."""
        if self._brand is not None:
            kernel.brand(handle.pid, self._brand)
            self.carried = tree.brand_of(handle.pid)

    async def _end_strays(self, at_work: Callable[[], Collection[int]]) -> list[int]:
        limit = trio.current_time() + STRAY_LIMIT
        while True:
            self.reap()
            strays = self._strays() - set(at_work())
            if not strays:  # nor a zombie, whose children could be on their way to us
                return []
            found = {pid for stray in strays for pid in tree.kill_below(stray, apart=at_work())}
            kernel.send(strays, signal.SIGKILL)
            if trio.current_time() > limit:
                return sorted(filter(tree.is_alive, strays | found))
            await trio.sleep(0.01)

    def _strays(self) -> set[int]:
        """Those of our children that came from a spawner: they carry another brand than we, which nobody but
        root can take off. What else comes to us is not ours to end: what was there before us, what an
        ``api_key_command`` left in the background, strangers if we are process 1 of a container."""
        ours = tree.brand_of(os.getpid())
        children = self._inherited().items()
        return {pid for pid, child in children if child.state in "ZX" or tree.brand_of(pid) != ours}

    def _inherited(self) -> dict[int, tree.Process]:
        """Our children that we didn't start: those have our session, but for the spawner."""
        me, session, known = os.getpid(), os.getsid(0), self.handle.pid
        return {
            pid: process
            for pid, process in tree.processes().items()
            if process.parent == me and process.session != session and pid != known
        }

    def _drop(self) -> None:
        self._asked = 0
        if self.handle.sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self.handle.sock)
            self.handle.sock.close()
        for call in self._waiting:
            call.close()
        self._waiting.clear()


async def gone(handle: SpawnerHandle) -> None:
    """Wait for our child, so that no zombie is left."""
    while not reaped(handle.pid):  # noqa: ASYNC110
        await trio.sleep(0.01)


def reaped(pid: int) -> bool:
    """Has this child of ours ended (and been waited for, by this or before)?"""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def launch() -> SpawnerHandle:
    """A spawner by exec, from any thread. Blocks for some 50 ms."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        argv = [sys.executable, "-P", "-m", "dshd.spawn", str(theirs.fileno())]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd="/")
    process.returncode = 0  # we reap it ourselves, in `gone`
    return SpawnerHandle(process.pid, ours)
