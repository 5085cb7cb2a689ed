"""Listening, and one client from its handshake to its end.

`trio_websocket`'s own server is not used: each client is wrapped by itself, so that it can be looked at
before it is answered, its messages may have the size that lines have, and each wait has an end. The library
is imported when somebody comes.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from dshd.control.access import admits, peer_of
from dshd.control.calls import Room
from dshd.control.connection import Connection
from dshd.control.websocket import token
from dshd.control.websocket.channel import TAKEN, Channel
from dshd.control.websocket.door import knock
from dshd.control.websocket.loopback import End, other_end
from dshd.errors import DshError
from dshd.paths import Credentials
from dshd.session.fold.who import Peer
from dshd.wire import MAX_LINE

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

log = logging.getLogger(__name__)

HANDSHAKE_S: Final = 10.0
MOST: Final = 64  # clients at once; one more is hung up on


class WebSockets:
    """``tool_of`` as of a `Listener`. ``where`` is the address in the config; ``origins`` whose pages may."""

    def __init__(
        self, where: tuple[str, int], origins: tuple[str, ...], state: Path, room: Room, writes: trio.Nursery,
        tool_of: Callable[[int], str | None],
    ) -> None:  # fmt: skip
        self._where = where
        self._origins = origins
        self._state = state
        self._room = room
        self._writes = writes
        self._tool_of = tool_of
        self._token = ""
        self.clients = 0

    async def run(self) -> None:
        """Accept until cancelled. An address that can't be had is told, and no reason to end."""
        host, port = self._where
        try:
            self._token = await trio.to_thread.run_sync(token.kept, self._state)
            listener = self._listen(host, port)
        except OSError as error:
            return log.error("no websocket at %s port %d: %s", host, port, os.strerror(error.errno or 0))
        except DshError as error:
            return log.error("no websocket at %s port %d: %s", host, port, error.message)
        log.info("websocket at %s port %d; its token is in %s", host, port, self._state / token.NAME)
        async with trio.open_nursery() as nursery:
            await trio.serve_listeners(self._client, [listener], handler_nursery=nursery)

    def _listen(self, host: str, port: int) -> trio.SocketListener:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(MOST)
        except BaseException:
            sock.close()
            raise
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock))

    async def _client(self, stream: trio.SocketStream) -> None:
        """The boundary: what goes wrong with one client is its own matter."""
        self.clients += 1
        try:
            if self.clients <= MOST:
                await self._serve(stream)
        except Exception:
            log.exception("a websocket client failed")
        finally:
            self.clients -= 1
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        peer = await self._peer(stream)
        if peer is None:
            return
        async with trio.open_nursery() as nursery:
            ws = None
            with trio.move_on_after(HANDSHAKE_S):
                ws = await self._handshake(nursery, stream)
            if ws is not None:
                await self._talk(nursery, ws, peer)
            nursery.cancel_scope.cancel()

    async def _peer(self, stream: trio.SocketStream) -> Peer | None:
        """Who it is; None for who is turned away."""
        sock = stream.socket
        theirs, ours = sock.getpeername()[:2], sock.getsockname()[:2]
        end = await trio.to_thread.run_sync(partial(other_end, sock.family, theirs, ours))
        if end is None or not admits(Credentials(0, end.uid, 0), os.getuid()):
            log.warning("a websocket client was turned away: user %s", "unknown" if end is None else end.uid)
            return None
        return self._known(end)

    def _known(self, end: End) -> Peer:
        """Below a tool if any process is that may hold the connection."""
        pid = end.holders[0] if end.holders else 0
        tools = [tool for one in (*end.holders, *end.hidden) if (tool := self._tool_of(one)) is not None]
        return peer_of(Credentials(pid, end.uid, 0), tools[0] if tools else None)

    async def _handshake(
        self, nursery: trio.Nursery, stream: trio.SocketStream
    ) -> WebSocketConnection | None:
        from trio_websocket import wrap_server_stream

        request: Any = await wrap_server_stream(
            nursery, stream, max_message_size=MAX_LINE, receive_buffer_size=TAKEN
        )
        let = knock(request.headers, request.proposed_subprotocols, self._token, self._origins)
        if let.refused is not None:
            status, why = let.refused
            await request.reject(status, body=f"{why}\n".encode())
            return None
        ws: WebSocketConnection = await request.accept(subprotocol=let.protocol)
        return ws

    async def _talk(self, nursery: trio.Nursery, ws: WebSocketConnection, peer: Peer) -> None:
        channel = Channel(ws)
        connection = Connection(channel, self._room, peer, self._writes)

        async def until_it_is_silent() -> None:
            await channel.ping()
            nursery.cancel_scope.cancel()

        nursery.start_soon(channel.run)
        nursery.start_soon(until_it_is_silent)
        await connection.serve()
        await channel.leave()
