"""A WebSocket as a connection needs its socket: a message in is a line, a line out a message.

What is said is taken in pieces of at most `TAKEN`, and the next one once that is with the kernel: so what a
slow client does not take waits where that of others does, in the connection's outbox, and its patience is
the same.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

log = logging.getLogger(__name__)

TAKEN: Final = 64 * 1024  # bytes
PING_S: Final = 20.0  # between pings, and for each to be answered
CLOSE_S: Final = 2.0  # for a client to take what is left, and to say goodbye


class Channel:
    """``run`` and ``ping`` are its tasks."""

    def __init__(self, ws: WebSocketConnection) -> None:
        self._ws = ws
        self._taken = b""
        self._line = bytearray()  # the beginning of a line whose end was not said yet
        self._said = trio.Event()  # there is something to send
        self._sent = trio.Event()  # there is not
        self._sent.set()
        self._gone = False

    # As a socket.

    async def receive(self) -> bytes:
        """The next message as a line; empty at the end. A newline in it, which JSON has only between its
        parts, is a space: one message is one object."""
        from trio_websocket import ConnectionClosed

        try:
            message = await self._ws.get_message()
        except ConnectionClosed:
            self._gone = True
            return b""
        text = message.encode() if isinstance(message, str) else message
        return text.replace(b"\n", b" ") + b"\n"

    def send_now(self, data: bytes | memoryview) -> int:
        if self._gone:
            raise BrokenPipeError
        if self._taken:
            return 0
        self._taken = bytes(data[:TAKEN])
        self._sent = trio.Event()
        self._said.set()
        return len(self._taken)

    async def writable(self) -> None:
        await self._sent.wait()

    def finish(self) -> None:
        """There is no half of a WebSocket to close."""

    def is_gone(self) -> bool:
        return self._gone or self._ws.closed is not None

    def close(self) -> None:
        self._gone = True

    # Its tasks.

    async def run(self) -> None:
        """Send what is said, line by line, until the client is gone."""
        from trio_websocket import ConnectionClosed

        try:
            while True:
                await self._said.wait()
                self._said = trio.Event()
                *lines, rest = (bytes(self._line) + self._taken).split(b"\n")
                self._line = bytearray(rest)
                for line in lines:
                    await self._ws.send_message(line.decode("utf-8", "replace"))
                self._taken = b""
                self._sent.set()
        except (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError):
            self._gone = True
            self._sent.set()

    async def ping(self) -> None:
        """Return when the client does not answer any more."""
        from trio_websocket import ConnectionClosed

        try:
            while True:
                await trio.sleep(PING_S)
                with trio.fail_after(PING_S):
                    await self._ws.ping()
        except trio.TooSlowError:
            log.info("a websocket client has not answered a ping for %g s", PING_S)
        except (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self._gone = True

    async def leave(self) -> None:
        """Send what is left, and say goodbye; not for long."""
        with trio.move_on_after(CLOSE_S):
            await self._sent.wait()
            await self._ws.aclose()
