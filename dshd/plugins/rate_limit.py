"""`[plugins.rate_limit] per_minute = N`: a session takes in new messages at most N times a minute.

What comes sooner is deferred to the moment when the oldest of the last N is a minute old; nothing is lost
and nothing is refused. A step that only hands tool results back takes in nothing and is never held: a turn
that has begun is not slowed down.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import trio

from dshd.plugins import Defer, PreStep
from dshd.plugins.config import only, wrong

MINUTE = 60.0
MOST_SESSIONS = 1000  # remembered before old ones are swept


class RateLimit:
    """The window is kept in memory: a restart begins a new one."""

    name = "rate_limit"

    def __init__(self, config: dict[str, Any]) -> None:
        only(self.name, config, ["per_minute"])
        limit = config.get("per_minute")
        if type(limit) is not int or limit < 1:
            raise wrong(self.name, "per_minute", "an integer of at least 1")
        self.limit = limit
        self._taken: dict[str, deque[float]] = {}  # {session: times of the last steps, oldest first}

    async def pre_step(self, proposal: PreStep) -> PreStep | Defer:
        if not proposal.messages:
            return proposal
        now = trio.current_time()
        taken = self._of(proposal.session, now)
        if len(taken) < self.limit:
            taken.append(now)
            return proposal
        return Defer(f"{self.limit} a minute are allowed", taken[0] + MINUTE - now)

    def _of(self, session: str, now: float) -> deque[float]:
        if len(self._taken) > MOST_SESSIONS:
            self._taken = {s: times for s, times in self._taken.items() if times and times[-1] > now - MINUTE}
        taken = self._taken.setdefault(session, deque())
        while taken and taken[0] <= now - MINUTE:
            taken.popleft()
        return taken
