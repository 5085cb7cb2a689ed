"""Nothing but the seed decides, and nothing waits for the machine.

Trio's scheduler is made deterministic, its clock virtual, and its wait for the outside world, in which
nothing ever happens, left out: that alone is a tenth of a history's time. One run of Trio plays a history
and all its branches; `start_again` puts clock and dice back between them, so that each can be played alone.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import trio
from trio._core import _run as trio_run
from trio.testing import MockClock

from dshd import wire
from dshd.driver import step
from dshd.log import codec, repair, survey
from dshd.prompt import compaction
from dshd.session.disk import opening
from dshd.session.fold import attachments

MOST_INLINE = 300  # bytes of a text that is not attached
LOOK_OUTSIDE = 256  # rounds of the scheduler between two looks, for a Ctrl-C


# Lines are read many times: by each branch, and by who checks. An event says the same each time.
decode = functools.lru_cache(maxsize=None)(codec.decode)


class Still(trio_run.TheIOManager):  # type: ignore[misc,name-defined]
    """Sees events of the outside world only now and then."""

    _rounds = 0

    def get_events(self, timeout: float) -> Any:
        self._rounds += 1
        return super().get_events(0) if self._rounds % LOOK_OUTSIDE == 0 else []


def _time(clock: MockClock) -> float:
    return clock._virtual_base


def _jump(clock: MockClock) -> None:
    """To the next deadline, if there is one."""
    deadline = trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
    if clock._virtual_base < deadline < float("inf"):
        clock._virtual_base = deadline


@contextlib.contextmanager
def deterministic(now_ms: int) -> Iterator[MockClock]:
    """The clock to give to `trio.run`; the wall clock of a repair stands at ``now_ms``."""
    dice = trio_run._r.getstate()
    decode.cache_clear()
    patches = (
        mock.patch.object(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        mock.patch.object(trio_run, "TheIOManager", Still),
        mock.patch.object(MockClock, "current_time", _time),
        mock.patch.object(MockClock, "_autojump", _jump),
        mock.patch.object(survey, "decode", decode),
        mock.patch.object(wire, "session_id", _next_id),
        mock.patch.multiple(attachments, MOST_INLINE=MOST_INLINE, HEAD=40, TAIL=20),
        mock.patch.multiple(compaction, LEAST=40, LONG_RESULT=400, HEAD=100, TAIL=40,
                            INSTRUCTION="Sum up.", PREAMBLE="Summed up."),
        mock.patch.object(opening, "no_cycles", contextlib.nullcontext()),
        mock.patch.object(step, "time", types.SimpleNamespace(monotonic=trio.current_time)),
        mock.patch.object(repair, "time", types.SimpleNamespace(time_ns=lambda: now_ms * 10**6)),
    )
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        try:
            yield MockClock(autojump_threshold=0)
        finally:
            trio_run._r.setstate(dice)


def _ids_from(number: int) -> Iterator[str]:
    """saaaaaab, saaaaaac, ..."""
    letters = "abcdefghjkmnpqrstvwxyz"
    while True:
        number += 1
        yield "s" + "".join(letters[number // len(letters) ** n % len(letters)] for n in range(6, -1, -1))


_ids = _ids_from(0)


def _next_id(random: bytes) -> str:
    return next(_ids)


def start_again(clock: MockClock, seed: object, ids: int) -> None:
    """As at the first instant; new sessions are counted from ``ids``. Nothing may wait for a time."""
    global _ids
    clock._virtual_base, _ids = 0.0, _ids_from(ids)
    runner: Any = getattr(trio_run.GLOBAL_RUN_CONTEXT, "runner", None)
    if runner is not None:
        runner.instruments = {}  # nobody watches, and each step asks four times
    trio_run._r.seed(str(seed))
