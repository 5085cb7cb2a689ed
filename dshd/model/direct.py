"""The way to a near provider: plain HTTP/1.1, without a proxy, over connections that are kept.

A model server on this machine or in this network answers so fast that a general client's work is what one
waits for. Here a request is one write of head and body together, and its response is fed to h11 piece by
piece; whoever has all it wanted leaves without another read if the end has come already.

A connection is in one of two places: with a request, which closes it unless the response was read to its
end, or waiting for the next one. One that waits and has become readable is dead: servers say nothing
unasked.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import attrs
import h11
import trio

from dshd.model.errors import ModelError
from dshd.model.transport import (
    CONNECT_TIMEOUT,
    KEEP,
    KEPT,
    LINGER,
    Head,
    Outgoing,
    Receiver,
    acknowledger,
    dropped,
    impossible,
    silent,
    undecodable,
    unreachable,
)

PIECE = 65536  # bytes of one read
MOST_HEAD = 1 << 20  # bytes of a response's head
COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})  # by servers that don't ask what may be sent


@attrs.frozen(slots=True)
class Where:
    """``authority`` and ``path`` as they are sent."""

    host: str
    port: int
    authority: str
    path: str


@lru_cache(64)
def where(url: str) -> Where | None:
    """Where a URL leads, if it can be reached from here: plain HTTP, and no password in it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if parts.scheme != "http" or not host or "@" in parts.netloc:
            return None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        parts.netloc.encode("ascii")
        path.encode("ascii")
    except ValueError:
        return None
    return Where(host, port or 80, parts.netloc, path)


class Direct:
    """See `transport.Transport`. Takes what `where` knows."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], list[_Connection]] = {}  # the last used at the end

    async def exchange(self, request: Outgoing, receiver: Receiver) -> None:
        to = where(request.url)
        if to is None:
            raise impossible(request.url, "not an address of plain HTTP")
        connection = self._take(to) or await _connect(to, request)
        try:
            await _Exchange(connection, request, receiver).run(to)
        except BaseException:
            connection.close()
            raise
        self._keep(to, connection)

    async def aclose(self) -> None:
        for connections in self._waiting.values():
            for connection in connections:
                connection.close()
        self._waiting.clear()
        await trio.lowlevel.checkpoint()

    def _take(self, to: Where) -> _Connection | None:
        waiting = self._waiting.get((to.host, to.port), [])
        while waiting:
            connection = waiting.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    def _keep(self, to: Where, connection: _Connection) -> None:
        if not connection.reset():
            return connection.close()
        waiting = self._waiting.setdefault((to.host, to.port), [])
        waiting.append(connection)
        for old in [one for one in waiting[:-1] if not one.usable] + waiting[:-KEPT]:
            old.close()
        self._waiting[to.host, to.port] = [one for one in waiting if one.open]
        return None


class _Connection:
    """A socket, which does not block, and what h11 knows of what came over it."""

    def __init__(self, sock: socket.socket) -> None:
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
        self.acknowledge = acknowledger(sock)
        self.open = True
        self._sock = sock
        self._until = 0.0

    def close(self) -> None:
        self.open = False
        self._sock.close()

    def send_now(self, data: memoryview) -> memoryview:
        """Send what fits; the rest. Raises OSError."""
        try:
            return data[self._sock.send(data) :]
        except BlockingIOError:
            return data

    async def send(self, data: memoryview) -> None:
        while data:
            await trio.lowlevel.wait_writable(self._sock)
            data = self.send_now(data)

    async def receive(self) -> bytes:
        """The next piece; b"" at the end. Raises OSError."""
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            with suppress(BlockingIOError):
                return self._sock.recv(PIECE)

    def reset(self) -> bool:
        """Get ready for the next request; False if there can't be one."""
        if {self.http.our_state, self.http.their_state} != {h11.DONE} or self.http.trailing_data[0]:
            return False
        self.http.start_next_cycle()
        self._until = trio.current_time() + KEEP
        return True

    @property
    def usable(self) -> bool:
        """Of one that waits: whether the server still holds it."""
        return self.open and trio.current_time() <= self._until and not self._speaks()

    def _speaks(self) -> bool:
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


async def _connect(to: Where, request: Outgoing) -> _Connection:
    with trio.move_on_after(min(request.idle, CONNECT_TIMEOUT)):
        try:
            stream = await trio.open_tcp_stream(to.host, to.port)
            return _Connection(socket.socket(fileno=stream.socket.detach()))
        except (OSError, UnicodeError) as error:
            raise unreachable(request.url, _reason(error)) from error
    raise unreachable(request.url, "no answer")


def _reason(error: BaseException) -> str:
    """Trio says that all attempts failed; why the first one did says more."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return getattr(cause, "strerror", None) or str(cause or error)


class _Exchange:
    """One request and its response on a connection."""

    def __init__(self, connection: _Connection, request: Outgoing, receiver: Receiver) -> None:
        self._connection = connection
        self._http = connection.http
        self._request = request
        self._receiver = receiver
        self._started = False

    async def run(self, to: Where) -> None:
        await self._send(to)
        response = await self._next()
        while isinstance(response, h11.InformationalResponse):
            response = await self._next()
        self._started = True
        head = Head(response.status_code, _joined(response.headers))
        self._receiver.head(head)
        decode = _decoder(head.headers.get("content-encoding", ""))
        while isinstance(event := await self._next(), h11.Data):
            if await self._receiver.data(self._decoded(decode, event.data)):
                return await self._linger()

    async def _send(self, to: Where) -> None:
        with suppress(OSError):  # it may have answered before, and closed; reading tells
            rest = self._connection.send_now(memoryview(self._written(to)))
            if not rest:
                return
            with trio.move_on_after(self._request.idle) as scope:
                await self._connection.send(rest)
            if scope.cancelled_caught:
                raise silent(self._request.url, self._request.idle)

    def _written(self, to: Where) -> bytes:
        request = self._request
        headers = [("host", to.authority), *request.all_headers.items()]
        if request.method != "GET":
            headers.append(("content-length", str(len(request.body))))
        try:
            head = h11.Request(method=request.method, target=to.path, headers=headers)
            events = (head, h11.Data(data=request.body), h11.EndOfMessage())
            return b"".join(self._http.send(event) or b"" for event in events)
        except (h11.LocalProtocolError, UnicodeError) as error:
            raise impossible(request.url, error) from error

    async def _next(self) -> Any:
        """The next event of the response."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._read())
        except h11.RemoteProtocolError as error:
            raise dropped(self._request.url, error, started=self._started) from error
        return event

    async def _read(self) -> bytes:
        with suppress(OSError):  # the connection may be gone; the read says how
            self._connection.acknowledge()
        with trio.move_on_after(self._request.idle):
            try:
                return await self._connection.receive()
            except OSError as error:
                raise dropped(self._request.url, error, started=self._started) from error
        raise silent(self._request.url, self._request.idle)

    async def _linger(self) -> None:
        """Read what little is left, so that the connection can be used again; if it can't, it is closed."""
        with suppress(h11.RemoteProtocolError):
            if type(self._http.next_event()) is h11.EndOfMessage:
                return  # as a rule: it came with what was read last
        with trio.move_on_after(LINGER), suppress(ModelError):
            while isinstance(await self._next(), h11.Data):
                pass

    def _decoded(self, decode: Callable[[bytes], bytes], data: bytes) -> bytes:
        try:
            return decode(bytes(data))
        except (zlib.error, LookupError) as error:
            raise undecodable(self._request.url, error) from error


def _joined(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw, value in pairs:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _decoder(encoding: str) -> Callable[[bytes], bytes]:
    """For those who compress though they were asked not to."""
    kind = encoding.strip().lower()
    if kind in {"", "identity"}:
        return bytes
    if kind in COMPRESSED:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
    return partial(_unknown, kind)


def _unknown(kind: str, _: bytes) -> bytes:
    raise LookupError(f"its content encoding is {kind}")
