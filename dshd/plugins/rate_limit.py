"""`[plugins.rate_limit] per_minute = N`: at most N steps a minute take in new messages, of all sessions.

What comes sooner is deferred to a time of its own: the first at which no minute would hold more than N. It
is promised to the message, so that whoever comes later stands behind it and nobody who waits is woken in
vain. Nothing is lost and nothing is refused. A step that only hands tool results back takes in nothing and
is never held: a turn that has begun is not slowed down. Messages that one step takes in together are one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any

import trio

from dshd.plugins import Defer, PreStep
from dshd.plugins.config import only, wrong

MINUTE = 60.0
LEEWAY = 1.0  # s that a message may come before or after its promised time


class RateLimit:
    """The window is kept in memory: a restart begins a new one, a reload of the config does not."""

    name = "rate_limit"

    def __init__(self, config: dict[str, Any]) -> None:
        only(self.name, config, ["per_minute"])
        limit = config.get("per_minute")
        if type(limit) is not int or limit < 1:
            raise wrong(self.name, "per_minute", "an integer of at least 1")
        self.limit = limit
        self._times: list[float] = []  # of the last minute's steps, and those promised; oldest first
        self._promised: dict[str, float] = {}  # {message id: time}

    async def pre_step(self, proposal: PreStep) -> PreStep | Defer:
        if not proposal.messages:
            return proposal
        now = trio.current_time()
        ids = [message["id"] for message in proposal.messages if message.get("id")]
        promised = self._take_back(ids, now)
        at = self._next(now) if promised is None else promised
        insort(self._times, at)
        if at <= now + (0 if promised is None else LEEWAY):
            return proposal
        self._promised |= dict.fromkeys(ids, at)
        return Defer(f"{self.limit} a minute are allowed", at - now)

    def _take_back(self, ids: Sequence[str], now: float) -> float | None:
        """The time that was promised to these messages, if it is not over. Their places are free then."""
        times = {self._promised.pop(id) for id in ids if id in self._promised}
        for time in times.intersection(self._times):
            self._times.remove(time)
        self._forget(now)
        return min((time for time in times if time >= now - LEEWAY), default=None)

    def _next(self, now: float) -> float:
        """The first time at which no minute would hold more than the limit."""
        behind = self._times[-self.limit] + MINUTE if len(self._times) >= self.limit else now
        return max(now, behind)

    def _forget(self, now: float) -> None:
        self._times = [time for time in self._times if time > now - MINUTE]
        self._promised = {id: time for id, time in self._promised.items() if time > now - MINUTE}
