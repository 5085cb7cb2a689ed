"""One client: its requests in, answers and events out, and what happens when it is slow or gone.

Here is its life: it is read (`_read`), what it asks is begun in the order of the lines (`answering`), what is
said to it is written (`outbox`), and at the end what it follows and what is tied to it is left (`lasting`).
`life` is the table of its states.

A client that is gone (not one that has only finished sending: ``echo ... | nc -U``) cancels what it waits
for, never what it asked to be written.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from dshd.control import jsonrpc
from dshd.control.access import Rights
from dshd.control.answering import Answering
from dshd.control.calls import Following, Room
from dshd.control.feed import Watcher
from dshd.control.framing import Framer
from dshd.control.lasting import Lasting
from dshd.control.life import Life
from dshd.control.outbox import Outbox
from dshd.control.stream import Side
from dshd.control.uploads import Uploads
from dshd.errors import Conflict, DshError, Unavailable
from dshd.order import InOrder
from dshd.session.fold.who import Peer
from dshd.wire import MAX_LINE, PROTOCOL, HelloParams

HELLO_S: Final = 30.0
LOOK_S: Final = 1.0  # between looks at a client that has finished sending: is it still there?
LINGER_S: Final = 5.0  # for a refused client to finish its line and read why
LINGER_BYTES: Final = 8 * MAX_LINE


class Connection:
    """``writes`` is the daemon's nursery for what must be carried through. ``brief``: one client too
    many, to be served only what concerns the daemon itself, and not for long."""

    def __init__(self, sock: Side, room: Room, peer: Peer, writes: trio.Nursery, *, brief: bool = False):
        self.in_order = InOrder()
        self.reading = InOrder()
        self.rights: Rights | None = None
        self.uploads = Uploads()
        self._sock = sock
        self._peer = peer
        self._writes = writes
        self._brief = brief
        self._patience = trio.CancelScope()
        self._gone = trio.Event()
        self._life = Life()
        self.out = Outbox(sock, self._life, peer.pid)
        self._lasting = Lasting(room, self._life)
        self._answering = Answering(self, room, peer, self._life, self.out, writes, brief=brief)
        self.write = self.out.write  # called for each event and answer
        self.room = self.out.room

    # ---------------------------------------------------------------- life

    async def serve(self) -> None:
        """Until the client is done or gone, or the caller is cancelled. Never raises an error."""
        try:
            with self._life.scope:
                async with trio.open_nursery() as nursery:
                    self._answering.nursery = self._lasting.nursery = nursery
                    nursery.start_soon(self.out.run)
                    await self._read()
                    self._life.step("no more")
                    await self._finish()
                    self._life.lose("done")
        finally:
            self._life.close()
            self._gone.set()
            self._lasting.leave(self._writes, self._peer)
            self.uploads.close()
            self.out.unsent.clear()
            self._sock.close()

    async def _finish(self) -> None:
        """Answer what is under way; look now and then whether somebody still listens."""
        while self._answering.under_way or self._lasting.followers or self.out.backlog:
            if self._sock.is_gone():
                return self._life.lose()
            with trio.move_on_after(LOOK_S):
                await self._life.change()

    async def gone(self) -> None:
        await self._gone.wait()

    # ---------------------------------------------------------------- in

    async def _read(self) -> None:
        framer = Framer()
        self._patience.deadline = trio.current_time() + HELLO_S
        with self._patience:
            while not framer.oversized:
                await self.out.room()
                data = await self._sock.receive()
                if not data:
                    return self._life.lose() if self._sock.is_gone() else None
                for line in framer.feed(data):
                    await self._answering.take(line)
        if framer.oversized:
            self._refuse(jsonrpc.Malformed(f"a line has more than {MAX_LINE} bytes; hanging up"))
            await self._linger()
        elif self._life.state == "new":
            self._refuse(Unavailable(f"nothing was said for {HELLO_S:g} s; hanging up"))

    def _refuse(self, error: DshError) -> None:
        self.out.write(jsonrpc.error_line(None, error))

    async def _linger(self) -> None:
        """A socket closed with unread bytes resets the peer before it has read why: so say that this is
        the end, and read what it still sends."""
        rest = LINGER_BYTES
        with trio.move_on_after(LINGER_S):
            while self.out.backlog:
                await self._life.change()
            self._sock.finish()
            while rest > 0 and (data := await self._sock.receive()):
                rest -= len(data)

    def greet(self, params: HelloParams) -> Rights:
        """Take a hello. Raises `Conflict` for another protocol, or a second hello."""
        if self.rights is not None:
            raise Conflict("hello was said already")
        if params.protocol != PROTOCOL:
            what = f"this daemon speaks protocol {PROTOCOL}, not {params.protocol}"
            raise Conflict(what, data={"protocol": PROTOCOL})
        if not self._brief:
            self._patience.deadline = float("inf")
        peer = attrs.evolve(self._peer, tty=params.tty, client=params.client)
        self.rights = Rights(peer, writes=params.mode == "write")
        self._life.step("hello")
        return self.rights

    # ---------------------------------------------------------------- what handlers ask of it

    @property
    def backlog(self) -> int:
        return self.out.backlog

    def follow(self, follower: Following) -> None:
        self._lasting.follow(follower)

    def watch(self, watcher: Watcher) -> None:
        self._lasting.watch(watcher)

    def unfollow(self, session: str | None) -> None:
        self._lasting.unfollow(session)

    def tie(self, session: str, message: str) -> None:
        self._lasting.tie(session, message)
