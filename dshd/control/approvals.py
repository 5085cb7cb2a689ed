"""Who follows approvals is told what comes to wait for an answer, and what does no longer.

What is told is the difference between what the client knows and what is so now, whenever there is one and
the client has room. So a client that doesn't read costs one set of ids, and finds what is still true.
"""

from __future__ import annotations

from typing import Any

import trio

from dshd.control import jsonrpc
from dshd.control.feed import Sink
from dshd.session.registry.registry import Registry

Json = dict[str, Any]


class ApprovalFollower:
    """One client's. ``scope``, ``session``, ``end``: as of a `feed.Follower`."""

    session: str | None = None

    def __init__(self, registry: Registry, sink: Sink) -> None:
        self.scope = trio.CancelScope()
        self._registry = registry
        self._sink = sink
        self._known: dict[str, Json] = {}

    def begin(self) -> list[Json]:
        """What waits now; from here on the client knows it."""
        now = self._registry.approvals.open()
        self._known = {one["id"]: one for one in now}
        return now

    async def run(self) -> None:
        """Until its scope is cancelled."""
        with self.scope:
            while True:
                if not self._tell():
                    await self._registry.approvals.changed.wait()
                await self._sink.room()

    def _tell(self) -> bool:
        """Whether there was anything to tell."""
        now = {one["id"]: one for one in self._registry.approvals.open()}
        gone = [self._registry.approvals.ended(one) for id, one in self._known.items() if id not in now]
        come = [one for id, one in now.items() if id not in self._known]
        self._known = now
        for method, told in (("approval.answered", gone), ("approval.asked", come)):
            for one in told:
                self._sink.write(jsonrpc.notification_line(method, one))
        return bool(gone or come)

    def end(self, reason: str) -> None:
        self.scope.cancel()
