"""Blocking file work off the event loop, on threads of its own.

Trio's shared limiter is not used: tools stuck on a dead network mount must not keep the log's threads
from a sync, nor the other way round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio
from trio.lowlevel import RunVar

from dshd.tools.tool import ToolFailure

P = ParamSpec("P")
T = TypeVar("T")

MOST_THREADS = 16
READ_LIMIT = 60.0  # s
WRITE_LIMIT = 10.0  # s

_limiter: RunVar[trio.CapacityLimiter] = RunVar("dshd.tools.limiter")


def limiter() -> trio.CapacityLimiter:
    """The tools' limiter of this event loop."""
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(trio.CapacityLimiter(MOST_THREADS))
        return _limiter.get()


async def reading(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what only looks. Raises `ToolFailure` when the file system does not answer in READ_LIMIT.

    Cancellation: at once; the thread is left to end by itself.
    """
    with trio.move_on_after(READ_LIMIT):
        return await _thread(functools.partial(call, *args, **kwargs))
    raise ToolFailure(f"the file system has not answered for {READ_LIMIT:.0f} s", code="TIMEOUT")


async def writing(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what changes something. Raises `ToolFailure` when that takes longer than WRITE_LIMIT.

    Cancellation: not before it has ended, so that nothing is changed after an abort; but a file system
    that hangs holds an abort no longer than the limit.
    """
    with trio.move_on_after(WRITE_LIMIT, shield=True):
        return await _thread(functools.partial(call, *args, **kwargs))
    raise ToolFailure(
        f"the file system has not answered for {WRITE_LIMIT:.0f} s; whether the file was written is unknown",
        code="TIMEOUT",
    )


async def _thread(call: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter())
