"""A Trio run that a synchronous test drives, one async function after the other.

Hypothesis steps its machines synchronously and the core is async. So Trio runs as a guest of the
test: `Host.do` hands it an async function and turns its loop until that has returned. All of them
run in one task, so contexts may be entered by one and left by another.
"""

from __future__ import annotations

import queue
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import attrs
import outcome
import trio
from trio.testing import MockClock

Act = Callable[[], Awaitable[Any]]


@attrs.define(eq=False)
class _Job:
    act: Act
    result: outcome.Outcome[Any] | None = None


class Host:
    """``clock`` stands still unless a test moves it; ``stack`` is closed at the end."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.stack = AsyncExitStack()
        self._ticks: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._ended: outcome.Outcome[None] | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._jobs, self._inbox = trio.open_memory_channel[_Job](1)
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._ticks.put,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
            clock=self.clock,
        )
        self._turn_until(lambda: self._token is not None)

    def do(self, act: Act) -> Any:
        """Run ``act`` to its end; its value, or its exception."""
        job = _Job(act)
        assert self._token is not None
        self._token.run_sync_soon(self._jobs.send_nowait, job)
        self._turn_until(lambda: job.result is not None or self._ended is not None)
        assert job.result is not None, self._ended
        return job.result.unwrap()

    def close(self) -> None:
        assert self._token is not None
        if self._ended is None:
            self._token.run_sync_soon(self._jobs.close)
            self._turn_until(lambda: self._ended is not None)
        assert self._ended is not None
        self._ended.unwrap()

    def _turn_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._ticks.get(timeout=30)()

    def _done(self, ended: outcome.Outcome[None]) -> None:
        self._ended = ended

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with self.stack:
            async for job in self._inbox:
                job.result = await outcome.acapture(job.act)
