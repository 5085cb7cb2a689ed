"""What a request meets: the connection that asked, the daemon's room, and the call itself.

A handler (`handlers`) gets a `Call` and gives what is answered. What it may ask of the connection is
`Link`, of the process `Process`; everything else it reaches through the `Room`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import attrs
import trio

from dshd import wire
from dshd.control.access import Rights
from dshd.control.encoding import Data
from dshd.control.feed import Hub, Watcher
from dshd.control.takeup import Gate
from dshd.control.uploads import Uploads
from dshd.log.store import OWN
from dshd.order import InOrder
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry.registry import Registry
from dshd.spool import Spool
from dshd.tools.sandbox import Found

Json = dict[str, Any]
P = TypeVar("P", bound=wire.Params)


class Following(Protocol):
    """Who is told of something as long as a connection lives, or until its ``scope`` is cancelled;
    ``session``: whose log that is, None: no log."""

    @property
    def session(self) -> str | None: ...

    @property
    def scope(self) -> trio.CancelScope: ...

    async def run(self) -> None: ...

    def end(self, reason: str) -> None: ...


class Link(Protocol):
    """What a handler needs of the connection that asked."""

    in_order: InOrder
    reading: InOrder
    rights: Rights | None
    uploads: Uploads

    @property
    def backlog(self) -> int: ...

    def write(self, data: Data) -> None: ...

    async def room(self) -> None: ...

    def greet(self, params: wire.HelloParams) -> Rights: ...

    def follow(self, follower: Following) -> None:
        """Run it as long as the connection lives."""

    def watch(self, watcher: Watcher) -> None: ...

    def unfollow(self, session: str | None) -> None: ...

    def tie(self, session: str, message: str) -> None:
        """Abort this message's work when the connection ends."""

    async def gone(self) -> None:
        """Returns when nobody is there any more."""


class Process(Protocol):
    """What a handler needs of the daemon's process."""

    def hello(self) -> Json: ...

    def status(self) -> Json: ...

    async def reload(self) -> Json: ...

    def examined(self, sandbox: Found, sessions: Sequence[Json], spool: Json) -> list[Json]:
        """What is well and what isn't, a line each. Blocks."""

    def stop(self) -> None: ...


@attrs.frozen(slots=True)
class Room:
    """The daemon's, as handlers see it. ``creating``: one lookup that may make a session at a time;
    ``closing``: it is the end, and nothing more is begun; ``gate``: where sends wait for those that were
    spooled before them."""

    registry: Registry
    hub: Hub
    process: Process
    creating: InOrder = attrs.field(factory=InOrder)
    closing: trio.Event = attrs.field(factory=trio.Event)
    gate: Gate = attrs.field(factory=Gate)

    @property
    def spool(self) -> Spool:
        return Spool(self.registry.store.disk, self.registry.store.state)


@attrs.frozen(slots=True)
class Call:
    """One request: ``params`` is checked, ``rights`` are the connection's."""

    room: Room
    link: Link
    rights: Rights
    params: Any

    @property
    def registry(self) -> Registry:
        return self.room.registry

    @property
    def peer(self) -> Peer:
        return self.rights.peer

    async def session(self, *, exact: bool = False) -> Session:
        """The session that ``session`` and ``cwd`` mean."""
        return await self.registry.get(await self.id(exact=exact))

    async def id(self, *, exact: bool = False, log: bool = False) -> str:
        """``log``: also the one that belongs to no session."""
        if log and self.params.session == OWN and await self.registry.has_own_log():
            return OWN
        return await self.registry.resolve(self.params.session, self.params.cwd, exact=exact)

    async def session_of(self, message: str) -> Session:
        return await self.registry.of_message(message)

    async def session_meant(self) -> Session:
        """The session of ``message``, if there is one, else as `session` has it."""
        message: str | None = self.params.message
        return await self.session_of(message) if message else await self.session()

    async def with_uploads(self, params: P) -> P:
        """The same with the texts that were put before, by `attachment.put`."""
        content = getattr(params, "content", None)
        return params if content is None else params.replace(content=await self.link.uploads.taken(content))


@attrs.frozen(slots=True)
class Answer:
    """A result with something to do right behind it, in the same step."""

    result: Any
    then: Callable[[], None]


Handler = Callable[[Call], Awaitable[Any]]
Tell = Callable[[Callable[[], Any]], None]  # is given a function that returns the result, or raises
Offer = Callable[[Call, Tell], bool]
