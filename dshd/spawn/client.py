"""The daemon's side of the spawner, on Trio."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd import errors
from dshd.spawn import SpawnerHandle, kernel, lifecycle
from dshd.spawn.protocol import Decoder, Frame, Request, encode

log = logging.getLogger(__name__)

GRACE = 0.5  # s from SIGTERM to SIGKILL
START_LIMIT = 10.0  # s until a supervisor must have said that it is there
END_LIMIT = lifecycle.KILL_LIMIT + lifecycle.DRAIN_LIMIT + 2.0  # s, after the grace, for everything else
CLOSE_LIMIT = 10.0  # s for the spawner to end all calls and itself
MARK = "DSHD_SCOPE"  # in the environment of all we start: whose it is
BOOT = secrets.token_hex(8)  # this daemon, among those of its state directory


class SpawnFailed(Exception):
    """A command could not be started, or the process that watched it was lost. ``str()`` is a sentence,
    ``survivors`` are pids that could not be ended."""

    def __init__(self, message: str, survivors: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.survivors = list(survivors)


class SpawnerLost(SpawnFailed):
    """The spawner died under a call. ``started``: its command had been (and was ended)."""

    def __init__(self, message: str, *, started: bool) -> None:
        super().__init__(message)
        self.started = started


@attrs.frozen(slots=True, kw_only=True)
class Completed:
    """How a command ended. ``returncode`` is None if ``signal`` ended it. ``head`` and ``tail`` are the
    first and last bytes of ``total``; ``spill`` is the file with all of them, if that is more, or with
    the first ``spilled`` if ``spill_error`` says what stopped it. ``left``: how many background
    processes it left, which were ended; ``survivors``: pids that could not be (uninterruptible sleep,
    or not ours to signal)."""

    returncode: int | None
    signal: int | None
    timed_out: bool
    head: bytes
    tail: bytes
    total: int
    spill: Path | None
    spill_error: str | None
    spilled: int
    stderr: bytes
    duration_s: float
    left: int
    survivors: list[int]

    @property
    def output(self) -> bytes:
        """Head and tail; everything, if ``total`` is as long."""
        return self.head + self.tail


class Spawner:
    """Runs commands. One per daemon; any number of calls at once."""

    def __init__(self, handle: SpawnerHandle, *, state_dir: Path | None = None) -> None:
        self._handle = handle
        self._state_dir = state_dir
        self._lock = trio.Lock()
        self._closed = False
        self._calls: dict[int, str] = {}  # supervisor's pid -> label
        self._pids = {handle.pid}  # every spawner there has been
        self.survivors: dict[int, str] = {}  # pid -> label of what could not be ended

    @property
    def handle(self) -> SpawnerHandle:
        """The spawner that takes calls now."""
        return self._handle

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._handle.pid

    @property
    def running(self) -> dict[int, str]:
        """{pid of its supervisor: label} of the calls that run now."""
        return dict(self._calls)

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes | None = None,
        timeout: float | None,  # noqa: ASYNC109 - kept by the supervisor, whatever the daemon does
        head: int,
        tail: int,
        spill: Path | None = None,
        label: str = "",
        merge: bool = True,
        grace: float = GRACE,
        wrapper: bool = False,
        landlock: dict[str, Any] | None = None,
    ) -> Completed:
        """Run ``argv`` to its end, and the end of everything it started.

        ``timeout`` and ``grace`` in s, ``head`` and ``tail`` in bytes. ``merge``: stderr goes into the
        output, in order; else its head and tail are ``stderr``. ``wrapper``: the main process is a
        sandbox around the command. Returns when the main process has ended, whoever else holds its
        pipes. Raises SpawnFailed.

        Cancellation: the tree is ended (SIGTERM, ``grace``, SIGKILL) before Cancelled goes on, at most
        END_LIMIT later.
        """
        request = Request(
            argv=list(argv),
            cwd=cwd,
            env={**env, **self._mark()},
            timeout=timeout,
            grace=grace,
            head=head,
            tail=tail,
            spill=str(spill) if spill is not None else None,
            merge=merge,
            wrapper=wrapper,
            landlock=landlock,
        )
        frame = encode(attrs_free(request), [stdin] if stdin is not None else [])
        try:
            reply = await self._call(frame, request, label)
        except SpawnerLost as lost:
            if lost.started:
                raise
            reply = await self._call(frame, request, label)
        return completed(reply, spill)

    async def aclose(self) -> None:
        """End the spawner; running calls end with it. Returns when it is gone, at most CLOSE_LIMIT later."""
        self._closed = True
        self._handle.sock.close()
        with trio.move_on_after(CLOSE_LIMIT, shield=True):
            await _gone(self._handle)

    def owner(self, pid: int) -> str | None:
        """The label of the call that ``pid`` is below; "" if it is below a tool of an unknown call, or
        already gone (then nobody can say); None if it is not below a tool."""
        line = [pid, *kernel.ancestors(pid)]
        for ancestor in line:
            if ancestor in self._calls:
                return self._calls[ancestor]
        if self._pids & set(line) or (pid != os.getpid() and kernel.stat_fields(pid) is None):
            return ""
        return None

    def is_below_tool(self, pid: int) -> bool:
        """Is this process (or was it, if it is gone) started by one of our tools?"""
        return self.owner(pid) is not None

    # -- one call

    async def _call(self, frame: bytes, request: Request, label: str) -> Frame:
        handle = await self._alive()
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    socket.send_fds(handle.sock, [b"c"], [theirs.fileno()])
            except OSError as error:
                raise SpawnerLost(f"the spawner is gone: {error}", started=False) from None
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
            call = _Call(stream, self._calls, label)
            try:
                return await self._drive(call, frame, request)
            except trio.Cancelled:
                with trio.move_on_after(request.grace + 2 * END_LIMIT + 1, shield=True):
                    self._note(await self._stop(call, request.grace), label)
                raise
            finally:
                call.forget()

    async def _drive(self, call: _Call, frame: bytes, request: Request) -> Frame:
        """To the last frame. The supervisor keeps the time limit; ours is for one that doesn't answer."""
        with trio.move_on_after(START_LIMIT):
            await call.begin(frame)
        if call.pid is None:
            await self._replace(self._handle)
            raise SpawnerLost("the spawner does not answer", started=False)
        limit = math.inf if request.timeout is None else request.timeout + request.grace + END_LIMIT
        with trio.move_on_after(limit):
            return await call.end()
        last = await self._stop(call, 0)
        raise SpawnFailed("the process that watched the command did not answer", survivors_of(last))

    async def _stop(self, call: _Call, grace: float) -> Frame | None:
        """Have a call ended, by its supervisor if that answers in time, else by the spawner."""
        with trio.move_on_after(grace + END_LIMIT if grace else 0.5, shield=True):
            return await call.stop()
        call.kill()
        with trio.move_on_after(END_LIMIT, shield=True):
            return await call.stop()
        return None

    def _note(self, reply: Frame | None, label: str) -> None:
        for pid in survivors_of(reply):
            log.warning("process %d of %s could not be ended", pid, label or "a call")
            self.survivors[pid] = label

    def _mark(self) -> dict[str, str]:
        return {MARK: mark(self._state_dir)} if self._state_dir is not None else {}

    # -- the spawner itself

    async def _alive(self) -> SpawnerHandle:
        """The spawner, a new one if the last is gone."""
        if self._closed:
            raise errors.Unavailable("the daemon is stopping: no command is started any more.")
        if is_gone(self._handle):
            await self._replace(self._handle)
        return self._handle

    async def _replace(self, lost: SpawnerHandle) -> None:
        async with self._lock:
            if self._handle is not lost:
                return
            log.error("the spawner (pid %d) is gone; starting another", lost.pid)
            lost.sock.close()
            kernel.send([lost.pid], signal.SIGKILL)
            self._handle = await trio.to_thread.run_sync(launch)
            self._pids.add(self._handle.pid)
        await _gone(lost)


class _Call:
    """The socket of one call, and what is known of its supervisor."""

    def __init__(self, stream: trio.SocketStream, calls: dict[int, str], label: str) -> None:
        self._stream = stream
        self._calls = calls
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self.label = label
        self.pid: int | None = None
        self._sent = False

    async def begin(self, frame: bytes) -> None:
        """Send the request and wait for the supervisor to show itself."""
        with contextlib.suppress(trio.BrokenResourceError):  # the reason is in what can be read
            await self._stream.send_all(frame)
        self._sent = True
        message, _ = await self._receive()
        if message.get("lost"):
            raise SpawnerLost(message["failed"], started=False)
        if "supervisor" not in message:
            raise SpawnFailed(message["failed"])
        self.pid = message["supervisor"]
        self._calls[self.pid] = self.label

    async def end(self) -> Frame:
        """The last frame."""
        return await self._receive()

    async def stop(self) -> Frame | None:
        """Tell the supervisor to stop, and wait for its last frame; None if there won't be any. With half
        a request sent nothing has been started, and nothing will be."""
        if not self._sent:
            return None
        with contextlib.suppress(trio.BrokenResourceError, SpawnFailed):
            await self._stream.send_all(encode({"stop": True}))
            while True:
                frame = await self._receive()
                if "supervisor" not in frame[0]:
                    return frame
        return None

    def kill(self) -> None:
        """SIGKILL to a supervisor that doesn't answer; the spawner ends what it leaves and sends the last
        frame. No other process can have its pid: our socket is open, and it holds the other end."""
        if self.pid is not None:
            kernel.send([self.pid], signal.SIGKILL)

    def forget(self) -> None:
        if self.pid is not None:
            self._calls.pop(self.pid, None)

    async def _receive(self) -> Frame:
        while not self._frames:
            try:
                data = await self._stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise SpawnerLost(
                    "the process that watches over tools died; the command was ended",
                    started=self.pid is not None,
                )
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)


def attrs_free(request: Request) -> dict[str, Any]:
    """The request as a plain dict (its values are plain already)."""
    return {name: getattr(request, name) for name in request.__slots__}


def completed(reply: Frame, spill: Path | None) -> Completed:
    """The last frame as a result. Raises SpawnFailed."""
    message, blobs = reply
    if "done" not in message:
        raise SpawnFailed(message.get("failed", "the command was not started"), survivors_of(reply))
    done = message["done"]
    if done["cause"] == "orphaned":
        raise SpawnerLost("the process that watches over tools died; the command was ended", started=True)
    status = done["status"]
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    return Completed(
        returncode=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        timed_out=done["cause"] == "timeout",
        head=blobs[0],
        tail=blobs[1],
        total=done["total"],
        spill=spill if done["kept"] else None,
        spill_error=done["spill_error"],
        spilled=done["spilled"],
        stderr=blobs[2],
        duration_s=done["duration"],
        left=done["left"],
        survivors=done["survivors"],
    )


def survivors_of(reply: Frame | None) -> list[int]:
    """The pids in a last frame that could not be ended."""
    if reply is None:
        return []
    message = reply[0]
    pids: list[int] = message.get("done", message).get("survivors", [])
    return pids


def is_gone(handle: SpawnerHandle) -> bool:
    """Has the spawner closed its end (that is: died)?"""
    try:
        data = handle.sock.recv(4096, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    if data:
        log.error("the spawner failed: %s", data.decode(errors="replace"))
    return True


async def _gone(handle: SpawnerHandle) -> None:
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
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [sys.executable, "-P", "-m", "dshd.spawn", str(theirs.fileno())]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd="/")
    process.returncode = 0  # we reap it ourselves, in _gone
    return SpawnerHandle(process.pid, ours, forked=False)


def mark(state_dir: Path, *, boot: str = BOOT) -> str:
    """What the environment of everything started for this state directory carries, by which daemon."""
    return f"{boot}:{os.fsdecode(state_dir)}"


def kill_orphans(state_dir: Path) -> list[int]:
    """End what an earlier daemon of this state directory left behind. Returns the pids.

    There is something only if that daemon was killed together with its spawner and supervisors. What
    this daemon has started is left alone. Blocks, for ms as a rule and END_LIMIT at most.
    """
    found: set[int] = set()
    limit = time.monotonic() + END_LIMIT
    while time.monotonic() < limit:
        now = left_behind(state_dir)
        for pid in now:
            found |= kernel.kill_below(pid).keys()
        kernel.send(now, signal.SIGKILL)
        found |= now
        if not any(map(is_alive, found)):
            break
        time.sleep(0.02)
    return sorted(found)


def left_behind(state_dir: Path) -> set[int]:
    """The pids whose mark names this state directory and another daemon."""
    marks = kernel.marked(MARK)
    ours, any_boot = mark(state_dir), mark(state_dir, boot="")
    return {pid for pid, value in marks.items() if value != ours and value[len(BOOT) :] == any_boot}


def is_alive(pid: int) -> bool:
    """There, and not just waiting to be reaped."""
    fields = kernel.stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"
