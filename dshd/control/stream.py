"""A client's socket, as a connection needs it."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Final, Protocol

import trio

PIECE: Final = 64 * 1024  # bytes read at once


class Side(Protocol):
    """What a connection needs of the way to its client; `Socket` says what each is."""

    async def receive(self) -> bytes: ...
    def send_now(self, data: bytes | memoryview) -> int: ...
    async def writable(self) -> None: ...
    def finish(self) -> None: ...
    def is_gone(self) -> bool: ...
    def close(self) -> None: ...


class Socket:
    """A connected Unix stream socket, as a connection needs it. Errors mean: the peer is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    async def receive(self) -> bytes:
        """What came; empty at its end."""
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                return self._sock.recv(PIECE)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    def send_now(self, data: bytes | memoryview) -> int:
        """How many bytes the kernel took, without waiting. Raises OSError if nobody is there."""
        try:
            return self._sock.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    async def writable(self) -> None:
        await trio.lowlevel.wait_writable(self._sock)

    def finish(self) -> None:
        """Nothing more will be sent."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def is_gone(self) -> bool:
        """Whether the peer has closed, and not only finished sending."""
        poll = select.poll()
        poll.register(self._sock, 0)
        return any(flags & (select.POLLHUP | select.POLLERR) for _fd, flags in poll.poll(0))

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()
