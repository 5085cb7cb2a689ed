"""The front of the room: run a command from Trio, and know afterwards that nothing of it is left."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd.spawn import SpawnerHandle, kernel, lifecycle
from dshd.spawn.call import Call, SpawnerLost, SpawnFailed, survivors_of
from dshd.spawn.orphans import MARK, is_alive, kill_orphans, mark
from dshd.spawn.pool import START_LIMIT, Pool, launch
from dshd.spawn.protocol import Frame, Request, encode, plain

__all__ = ["Completed", "SpawnFailed", "Spawner", "SpawnerLost", "is_alive", "kill_orphans", "launch"]

log = logging.getLogger(__name__)

GRACE = 0.5  # s from SIGTERM to SIGKILL
END_LIMIT = lifecycle.KILL_LIMIT + lifecycle.DRAIN_LIMIT + 2.0  # s, after the grace, for everything else
QUICK = 0.05  # s; a call that takes longer has the next supervisor made while it runs


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
        self._pool = Pool(handle)
        self._pool.want()
        self._mark = {MARK: mark(state_dir)} if state_dir is not None else {}
        self._calls: dict[int, str] = {}  # supervisor's pid -> label
        self.survivors: dict[int, str] = {}  # pid -> label of what could not be ended

    @property
    def handle(self) -> SpawnerHandle:
        """The spawner that takes calls now."""
        return self._pool.handle

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._pool.handle.pid

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
            env={**env, **self._mark},
            timeout=timeout,
            grace=grace,
            head=head,
            tail=tail,
            spill=str(spill) if spill is not None else None,
            merge=merge,
            wrapper=wrapper,
            landlock=landlock,
        )
        frame = encode(plain(request), [stdin] if stdin is not None else [])
        try:
            reply = await self._call(frame, request, label)
        except SpawnerLost as lost:
            if lost.started:
                raise
            reply = await self._call(frame, request, label)
        return completed(reply, spill)

    async def aclose(self) -> None:
        """End the spawner; running calls end with it. Returns when it is gone, at most 10 s later."""
        await self._pool.aclose()

    def owner(self, pid: int) -> str | None:
        """The label of the call that ``pid`` is below; "" if it is below a tool of an unknown call, or
        already gone (then nobody can say); None if it is not below a tool. (The kernel says 0 for a peer
        in another pid namespace; what a tool starts is never outside of ours.)"""
        if pid <= 0:
            return None
        line = [pid, *kernel.ancestors(pid)]
        for ancestor in line:
            if ancestor in self._calls:
                return self._calls[ancestor]
        if self._pool.pids & set(line) or (pid != os.getpid() and kernel.stat_fields(pid) is None):
            return ""
        return None

    def is_below_tool(self, pid: int) -> bool:
        """Is this process (or was it, if it is gone) started by one of our tools?"""
        return self.owner(pid) is not None

    # -- one call

    async def _call(self, frame: bytes, request: Request, label: str) -> Frame:
        call = await self._pool.take()
        self._calls[call.pid] = label
        try:
            reply = await self._drive(call, frame, request)
        except trio.Cancelled:
            with trio.move_on_after(request.grace + 2 * END_LIMIT + 1, shield=True):
                self._note(await self._stop(call, request.grace), label)
            call.close()
            raise
        except BaseException:
            call.close()
            raise
        finally:
            del self._calls[call.pid]
        if reply[0].get("again"):
            self._pool.give_back(call)
        else:
            call.close()
        return reply

    async def _drive(self, call: Call, frame: bytes, request: Request) -> Frame:
        """To the last frame. The supervisor keeps the time limit; ours is for one that doesn't answer."""
        with trio.move_on_after(START_LIMIT):
            await call.begin(frame)
        if not call.started:
            call.kill()
            raise SpawnerLost("the call's supervisor did not begin", started=False)
        with trio.move_on_after(QUICK):
            return await call.end()
        self._pool.want()
        limit = math.inf if request.timeout is None else request.timeout + request.grace + END_LIMIT
        with trio.move_on_after(limit):
            return await call.end()
        last = await self._stop(call, 0)
        raise SpawnFailed("the process that watched the command did not answer", survivors_of(last))

    async def _stop(self, call: Call, grace: float) -> Frame | None:
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
