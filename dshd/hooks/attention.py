"""Something needs a person: one notice for one cause, and nobody waits for it.

Whoever finds that out calls `Attention` and goes on; what is configured for it (``[notify] command``, hooks
of the event ``attention``) runs in the daemon's own tasks, a few at a time. A notice is given at most once:
it is not repeated after a crash, for what it is about shows in ``dshctl status`` anyway.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import attrs
import trio

from dshd.config import Config, Hook
from dshd.hooks.commands import Hooks
from dshd.hooks.payload import About, of_notice, payload
from dshd.hooks.runner import Run, matches, name_of

log = logging.getLogger(__name__)

Kind = Literal["approval", "parked", "budget", "patience", "damaged", "disk", "credential"]
KINDS: Final = ("approval", "parked", "budget", "patience", "damaged", "disk", "credential")
MOST_WAITING: Final = 100
AT_ONCE: Final = 4
REMEMBERED: Final = 10_000
SHARED_S: Final = 3600.0  # for how long what is wrong with the machine, or with a key, is one cause


@attrs.frozen(slots=True, kw_only=True)
class Notice:
    """``cause`` names what is wrong, once in the daemon; ``text`` is the sentence for a person."""

    kind: Kind
    cause: str
    text: str
    about: About = attrs.field(factory=About)
    again_after: float = math.inf


Deliver = Callable[[Notice], Awaitable[None]]


class Attention:
    """``deliver`` gives one notice; it is run in tasks that ``start`` makes, once `begin` has been called."""

    def __init__(self, deliver: Deliver | None = None) -> None:
        self._deliver = deliver
        self._start: Callable[..., None] | None = None
        self._known: OrderedDict[str, float] = OrderedDict()  # {cause: when it may be told again}
        self._waiting: deque[Notice] = deque()
        self._working = 0

    def begin(self, start: Callable[..., None]) -> None:
        """From now on notices are given. ``start`` runs a coroutine function beside everything else."""
        self._start = start
        self._go()

    def __call__(self, notice: Notice) -> bool:
        """Have a notice given; whether it will be. Synchronous, and never fails."""
        if self._deliver is None or not self._is_new(notice):
            return False
        if len(self._waiting) >= MOST_WAITING:
            log.warning("too much needs attention at once; not told: %s", notice.text)
            return False
        log.info("needs attention (%s): %s", notice.kind, notice.about.session or notice.cause)
        self._waiting.append(notice)
        self._go()
        return True

    def _is_new(self, notice: Notice) -> bool:
        now, key = trio.current_time(), f"{notice.about.session} {notice.cause}"
        if notice.again_after != math.inf:
            key = notice.cause
        if self._known.get(key, 0.0) > now:
            return False
        self._known[key] = now + notice.again_after
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return True

    def _go(self) -> None:
        if self._start is None:
            return
        for _ in range(min(AT_ONCE - self._working, len(self._waiting))):
            self._working += 1
            self._start(self._work)

    async def _work(self) -> None:
        try:
            while self._waiting and self._deliver is not None:
                await self._deliver(self._waiting.popleft())
        finally:
            self._working -= 1


def hooks_of(config: Config, kind: str) -> Sequence[Hook]:
    """What is run for a notice: the notify command, then the hooks that are about its kind."""
    command = config.notify.command
    simple = [Hook(event="attention", command=command, name="notify")] if command is not None else []
    return [*simple, *(h for h in config.hooks if h.event == "attention" and matches(h, kind))]


class Notify:
    """Gives a notice to all that is configured when it is given."""

    def __init__(self, config: Callable[[], Config], hooks: Hooks) -> None:
        self._config, self._hooks = config, hooks

    async def __call__(self, notice: Notice) -> None:
        found = payload("attention", notice.about, **of_notice(notice.kind, notice.cause, notice.text))
        for hook in hooks_of(self._config(), notice.kind):
            _tell(hook, await self._hooks.run(hook, self._hooks.place("/"), found))


def _tell(hook: Hook, run: Run) -> None:
    if run.answer.outcome == "failed":
        log.warning("hook %s (attention) failed: %s", name_of(hook), run.answer.reason)
