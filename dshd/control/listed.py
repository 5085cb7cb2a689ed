"""Who follows the list of sessions is told which rows are others than the client knows.

What is told is the difference between what the client knows and what is so now, looked for when a session
rings (`registry.bell`), and told when the client has room. So a client that doesn't read costs a number for
each session, and finds what is still true. Bursts are told together: of one session at most one row in
`BETWEEN_S`.

What a session at work does between two batches is in its memory only, and rings no bell: those are looked
at every `LOOK_S`, too. Nothing here looks at the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import trio

from dshd.control import jsonrpc
from dshd.control.feed import Sink
from dshd.session.registry.bell import Ear
from dshd.session.registry.registry import Registry

Json = dict[str, Any]

BETWEEN_S: Final = 0.2  # from one telling to the next
LOOK_S: Final = 1.0  # between looks at those that work
AT_ONCE: Final = 64  # rows that are looked at in one step
NO_NEWS: Final = ("bytes", "active_at")  # they grow with every line; alone they are no change of a row


def is_listed(state: str, agent: bool, all: bool) -> bool:
    """Whether a list has it: without ``all``, no closed ones, and no subagents."""
    return all or not (state == "closed" or agent)


class ListFollower:
    """One client's. ``scope``, ``session``, ``end``: as of a `feed.Follower`."""

    session: str | None = None

    def __init__(self, registry: Registry, sink: Sink, *, all: bool) -> None:
        """The client has got the rows as they are in this step."""
        self.scope = trio.CancelScope()
        self._registry = registry
        self._sink = sink
        self._all = all
        self._known = {view["id"]: _number(view) for view in registry.known() if self._lists(view)}
        self._working: set[str] = set()

    async def run(self) -> None:
        """Until its scope is cancelled."""
        with self.scope, self._registry.bell.heard() as ear:
            looked_at = {view["id"] for view in self._registry.known()} | self._known.keys()
            while True:  # first at all: what has changed since the client got them rang for nobody
                await self._tell_all(looked_at)
                await trio.sleep(BETWEEN_S)
                looked_at = await self._next(ear)

    def _lists(self, view: Json) -> bool:
        return is_listed(view["state"], bool(view.get("agent")), self._all)

    async def _next(self, ear: Ear) -> set[str]:
        with trio.move_on_after(LOOK_S if self._working else float("inf")):
            await ear.rung()
        return ear.take() | self._working

    async def _tell_all(self, ids: Iterable[str]) -> None:
        for n, id in enumerate(ids, 1):
            await self._sink.room()
            self._tell(id)
            if n % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def _tell(self, id: str) -> None:
        view = self._registry.view(id)
        if view is None or not self._lists(view):
            self._working.discard(id)
            if self._known.pop(id, None) is not None:
                reason = "removed" if view is None else "closed"
                self._write("session.gone", {"session": id, "reason": reason})
            return
        (self._working.add if view.get("phase", "idle") != "idle" else self._working.discard)(id)
        number = _number(view)
        if self._known.get(id) != number:
            self._known[id] = number
            self._write("session.listed", view)

    def _write(self, method: str, params: Json) -> None:
        self._sink.write(jsonrpc.notification_line(method, params))

    def end(self, reason: str) -> None:
        self.scope.cancel()


def _number(view: Json) -> int:
    """What a row is compared by."""
    news = {name: value for name, value in view.items() if name not in NO_NEWS}
    return hash(jsonrpc.notification_line("session.listed", news))
