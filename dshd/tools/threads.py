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

P = ParamSpec("P")
T = TypeVar("T")

MOST_THREADS = 16

_limiter: RunVar[trio.CapacityLimiter] = RunVar("dshd.tools.limiter")


def limiter() -> trio.CapacityLimiter:
    """The tools' limiter of this event loop."""
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(trio.CapacityLimiter(MOST_THREADS))
        return _limiter.get()


async def reading(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what only looks. Cancellation: at once; the thread is left to end by itself."""
    bound = functools.partial(call, *args, **kwargs)
    return await trio.to_thread.run_sync(bound, abandon_on_cancel=True, limiter=limiter())


async def writing(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what changes something. Cancellation: when it has ended, so nothing is changed after an abort."""
    bound = functools.partial(call, *args, **kwargs)
    return await trio.to_thread.run_sync(bound, abandon_on_cancel=False, limiter=limiter())
