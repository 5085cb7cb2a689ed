"""What lasts as long as a connection does: what it follows, and the work that is tied to it."""

from __future__ import annotations

import logging
from typing import Final

import trio

from dshd.control.calls import Following, Room
from dshd.control.feed import Watcher
from dshd.control.life import Life
from dshd.errors import Conflict, DshError, Full, NotFound
from dshd.session.fold.who import Peer
from dshd.session.registry.registry import Registry
from dshd.wire import GONE, AbortParams

log = logging.getLogger(__name__)

MOST_FOLLOWED: Final = 10_000
LOOK_AGAIN_S: Final = 0.02  # after a message has moved on while it was being stopped


class Lasting:
    """One connection's. ``nursery`` is the connection's, there while it is served."""

    nursery: trio.Nursery

    def __init__(self, room: Room, life: Life) -> None:
        self.followers: dict[Following, None] = {}
        self._room = room
        self._life = life
        self._watchers: dict[Watcher, None] = {}
        self._tied: list[tuple[str, str]] = []

    def follow(self, follower: Following) -> None:
        if len(self.followers) >= MOST_FOLLOWED:
            raise Full(f"this connection follows {MOST_FOLLOWED} logs already.")
        self.followers[follower] = None
        self.nursery.start_soon(self._follow, follower)

    async def _follow(self, follower: Following) -> None:
        try:
            await follower.run()
        except DshError as error:
            follower.end(error.message)
        finally:
            self.followers.pop(follower, None)
            self._life.note()

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None
        self._room.hub.watch(watcher)

    def unfollow(self, session: str | None) -> None:
        for follower in self.followers:
            if session in (None, follower.session):
                follower.scope.cancel()
        if session is None:
            for watcher in self._watchers:
                self._room.hub.unwatch(watcher)
            self._watchers.clear()

    def tie(self, session: str, message: str) -> None:
        self._tied.append((session, message))

    def leave(self, writes: trio.Nursery, peer: Peer) -> None:
        """The connection has ended. What is tied to it is aborted in ``writes``, unless all is ending."""
        for watcher in self._watchers:
            self._room.hub.unwatch(watcher)
        for session, message in () if self._room.closing.is_set() else self._tied:
            writes.start_soon(abort_tied, self._room.registry, session, message, peer)


async def abort_tied(registry: Registry, session: str, message: str, peer: Peer) -> None:
    """Its client is gone: stop the turn of its message, or take the message back.

    Between looking and asking the message may have been claimed, or its turn have ended and
    another begun with it; then it is looked at anew.
    """
    try:
        while not await _stop_once(registry, session, message, peer):  # noqa: ASYNC110 - no event tells of both
            await trio.sleep(LOOK_AGAIN_S)
    except NotFound:
        pass
    except DshError as error:
        log.warning("%s was tied to a client that is gone, and not aborted: %s", message, error)


async def _stop_once(registry: Registry, session: str, message: str, peer: Peer) -> bool:
    """Whether nothing is left to stop."""
    found = await registry.get(session)
    state = found.message(message)
    try:
        if state["state"] in ("pending", "held"):
            await found.queue_change("rm", [message], peer)
        elif state["state"] in ("claimed", "entered"):
            await found.abort(AbortParams(turn=state["turn"], reason=GONE), peer)
    except Conflict:
        return False
    return True
