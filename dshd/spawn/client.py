"""The front of the room: run a command from Trio, and know afterwards that nothing of it is left."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd.spawn import SpawnerHandle, lifecycle, tree
from dshd.spawn.call import Call, SpawnerLost, SpawnFailed, survivors_of
from dshd.spawn.orphans import MARK, brand, kill_orphans, mark
from dshd.spawn.passage import Kept, Passage
from dshd.spawn.pool import START_LIMIT, STRAY_LIMIT, Pool, launch
from dshd.spawn.protocol import Frame, Request, encode, fate, plain
from dshd.spawn.tree import is_alive

__all__ = [
    "Completed", "Kept", "Passage", "SpawnFailed", "Spawner", "SpawnerLost", "is_alive", "kill_orphans",
    "launch",
]  # fmt: skip

log = logging.getLogger(__name__)

GRACE = 0.5  # s from SIGTERM to SIGKILL
# Who ends a tree, and how long we wait for it (s) before the next one does: the supervisor (after the
# grace), the spawner, and then ourselves. Together less than a client waits for an abort.
END_LIMIT = lifecycle.KILL_LIMIT + lifecycle.DRAIN_LIMIT + 1.0
SPAWNER_LIMIT = STRAY_LIMIT + 0.5
LONGEST = 60.0  # s; the bounds inside add up to less
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
        self._pool = Pool(handle, brand(state_dir) if state_dir is not None else None)
        self._pool.want()
        self._mark = {MARK: mark(state_dir)} if state_dir is not None else {}
        self._calls: dict[int, str] = {}  # supervisor's pid -> label
        self._survivors: dict[tuple[int, int], str] = {}  # (pid, start time) -> label

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
        follow: bool = False,
        passage: Passage | None = None,
    ) -> Completed:
        """Run ``argv`` to its end, and the end of everything it started.

        ``timeout`` and ``grace`` in s, ``head`` and ``tail`` in bytes. ``merge``: stderr goes into the
        output, in order; else its head and tail are ``stderr``. ``wrapper``: the main process is a
        sandbox around the command. ``follow``: the spill file has all of the output at once. ``passage``:
        see there. Returns when the main process has ended, whoever else holds its pipes. Raises
        SpawnFailed, and Kept if it was told to keep the command.

        Cancellation: the tree is ended (SIGTERM, ``grace``, SIGKILL) before Cancelled goes on, 3 s later
        at most as a rule, 9 s if the helpers hang. Who could not be ended is in `survivors`.
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
            follow=follow,
        )
        frame = encode(plain(request), [stdin] if stdin is not None else [])
        try:
            reply = await self._call(frame, request, label, passage)
        except SpawnerLost as lost:
            if lost.started:
                raise
            reply = await self._call(frame, request, label, passage)
        return completed(reply, spill)

    async def go_on(self, left: Passage, passage: Passage | None = None) -> Completed:
        """The rest of a command that has ``left`` its call: it has no time limit any more, and its spill file
        has all of the output. Like `run` in everything else."""
        call, request, label = left.taken()
        request = dataclasses.replace(request, timeout=None)
        reply = await self._see(call, None, request, label, passage)
        return completed(reply, Path(request.spill) if request.spill is not None else None)

    def adopt(self, pid: int, label: str) -> None:
        """What is below this supervisor, of a daemon before us, counts as a tool's of ``label``."""
        self._calls[pid] = label

    def forget(self, pid: int) -> None:
        """A supervisor that was kept is gone."""
        self._calls.pop(pid, None)

    def survivors(self, label: str) -> list[int]:
        """The pids of what calls with this label ran, could not be ended, and is still there."""
        here = {key: whose for key, whose in self._survivors.items() if is_same(*key)}
        self._survivors = here
        return sorted(pid for (pid, _), whose in here.items() if whose == label)

    def reap(self) -> None:
        """To be called when a child of ours ends (SIGCHLD): those that we have inherited are waited for."""
        self._pool.reap()

    async def aclose(self) -> None:
        """End the spawner; running calls end with it. Returns when it is gone, at most 10 s later."""
        await self._pool.aclose()

    def owner(self, pid: int) -> str | None:
        """The label of the call that ``pid`` is below; "" if it is below a tool of an unknown call, or
        already gone (then nobody can say); None if it is not below a tool. (The kernel says 0 for a peer
        in another pid namespace; what a tool starts is never outside of ours.)"""
        if pid <= 0:
            return None
        line = [pid, *tree.ancestors(pid)]
        for ancestor in line:
            if ancestor in self._calls:
                return self._calls[ancestor]
        if self._pool.pids & set(line) or (pid != os.getpid() and tree.look(pid) is None):
            return ""
        carried = self._pool.carried  # what has lost its helpers has that still
        return "" if carried is not None and tree.brand_of(pid) == carried else None

    def is_below_tool(self, pid: int) -> bool:
        """Is this process (or was it, if it is gone) started by one of our tools?"""
        return self.owner(pid) is not None

    # -- one call

    async def _call(self, frame: bytes, request: Request, label: str, passage: Passage | None) -> Frame:
        call = await self._pool.take()
        self._calls[call.pid] = label
        return await self._see(call, frame, request, label, passage)

    async def _see(
        self, call: Call, frame: bytes | None, request: Request, label: str, passage: Passage | None
    ) -> Frame:
        """A call from its request (None: it has begun) to its end, or until it leaves us."""
        again = left = False
        try:
            reply = await self._drive(call, frame, request, passage)
            left = bool(reply[0].get("kept"))
            if left:
                call.close()
                raise Kept(call.pid)
            self._note(survivors_of(reply), label)
            again = bool(reply[0].get("again"))
            return reply
        except trio.Cancelled:
            if passage is not None and call.started and passage.open():
                passage.take(call, request, label)
                left = True
                raise
            with trio.move_on_after(LONGEST, shield=True):
                self._note(await self._end(call, request.grace), label)
            raise
        except SpawnFailed as failed:
            if isinstance(failed, SpawnerLost) and not failed.told:
                await self._clear_up_after(call, failed)  # noqa: ASYNC120 - shields itself
            self._note(failed.survivors, label)
            raise
        finally:
            if not left:
                del self._calls[call.pid]
                (self._pool.give_back if again else Call.close)(call)

    async def _drive(
        self, call: Call, frame: bytes | None, request: Request, passage: Passage | None
    ) -> Frame:
        """To the last frame. The supervisor keeps the time limit; ours is for one that doesn't answer."""
        if frame is not None:
            with trio.move_on_after(START_LIMIT):
                await call.begin(frame)
            if not call.started:
                call.kill()
                raise SpawnerLost("the call's supervisor did not begin", started=False)
        else:
            call.say({"free": True})
        if passage is not None:
            passage.goes(call)
        with trio.move_on_after(QUICK):
            return await call.end()
        self._pool.want()
        limit = math.inf if request.timeout is None else request.timeout + request.grace + END_LIMIT
        with trio.move_on_after(limit):
            return await call.end()
        raise SpawnFailed("the process that watched the command did not answer", await self._end(call, 0))

    async def _end(self, call: Call, grace: float) -> list[int]:
        """Have a call ended by its supervisor, else by the spawner, else do it ourselves. The survivors.

        Cancellation: shields itself; bounded.
        """
        call.rouse()
        for limit in (grace + END_LIMIT, SPAWNER_LIMIT):
            last = None
            with trio.move_on_after(limit, shield=True) as patience:
                last = await call.stop()
            if last is not None:
                return survivors_of(last)
            if not patience.cancelled_caught:
                break  # it is gone without a word
            call.kill()
        return await self._clear_up(call)

    async def _clear_up(self, call: Call) -> list[int]:
        left: list[int] = []
        with trio.CancelScope(shield=True):
            call.kill()
            left = await self._pool.clear_up(call.spawner, lambda: self._calls.keys() - {call.pid})
        return left

    async def _clear_up_after(self, call: Call, lost: SpawnerLost) -> None:
        """Nobody has said what became of the command: see to it ourselves, and say it."""
        lost.survivors = await self._clear_up(call)
        lost.args = (f"{lost}; {fate(lost.survivors)}",)

    def _note(self, pids: Sequence[int], label: str) -> None:
        for pid in pids:
            if (process := tree.look(pid)) is not None:
                log.warning("process %d of %s could not be ended", pid, label or "a call")
                self._survivors[pid, process.start] = label


def is_same(pid: int, start: int) -> bool:
    """Is this still the process that began then?"""
    process = tree.look(pid)
    return process is not None and process.start == start and process.state not in "ZX"


def completed(reply: Frame, spill: Path | None) -> Completed:
    """The last frame as a result. Raises SpawnFailed."""
    message, blobs = reply
    if "done" not in message:
        raise SpawnFailed(message.get("failed", "the command was not started"), survivors_of(reply))
    done = message["done"]
    if done["cause"] == "orphaned":
        left = survivors_of(reply)
        raise SpawnerLost(f"the process that watches over tools died; {fate(left)}", left, started=True)
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
