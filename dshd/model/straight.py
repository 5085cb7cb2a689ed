"""One request over HTTP/1.1 straight to its server, and the response: h11 on a Trio stream.

httpx does the same in nested generators and five layers; a request to a server on this machine takes 0.3 ms
of the processor here and 0.7 there. What needs a proxy, or has an address that must be read with care, goes
by `exchange` all the same: here is what is said of a plain address.

A connection is used again if both sides have said all they had to, and nothing has come since. Whatever else
happens to an exchange, its connection is closed.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import ssl
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import attrs
import h11
import trio

from dshd.model.transport import (
    CONNECT_TIMEOUT,
    KEEP,
    KEPT,
    LINGER,
    Head,
    Outgoing,
    Receiver,
    acknowledger,
    decoder,
    dropped,
    impossible,
    silent,
    undecodable,
    unreachable,
)

PIECE: Final = 1 << 20  # bytes; a server that takes one of them is not silent
READ: Final = 1 << 16
LONGEST_HEAD: Final = 100 * 1024
PORTS: Final = {"http": 80, "https": 443}
PLAIN: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:/[\w.~!$&'()*+,;=:@/%-]*)?(?:\?[\w.~!$&'()*+,;=:@/?%-]*)?)",
    re.ASCII | re.IGNORECASE,
)
NO_ANSWER: Final = "it closed the connection without an answer"


@attrs.frozen(slots=True)
class Address:
    """A plain address. ``target``: what is asked for there."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def named(self) -> str:
        """The ``host`` header."""
        return self.host if self.port == PORTS[self.scheme] else f"{self.host}:{self.port}"


@lru_cache(64)
def plain(url: str) -> Address | None:
    """The parts of an address that can't be read in two ways; None for any other."""
    found = PLAIN.fullmatch(url)
    if found is None:
        return None
    scheme = found["scheme"].lower()
    port, target = int(found["port"] or PORTS[scheme]), found["target"]
    return Address(scheme, found["host"].lower(), port, target if target[:1] == "/" else f"/{target}")


class Straight:
    """The connections that wait, by where they lead to. One per daemon."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str, int], list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def do(self, address: Address, request: Outgoing, receiver: Receiver) -> None:
        """Send the request and push the response into ``receiver``; returns at its end.

        *Cancellation*: at any point; the connection is closed.
        """
        where = (address.scheme, address.host, address.port)
        connection = self._take(where) or await self._connect(address, request)
        try:
            await connection.exchange(address, request, receiver)
            if connection.goes_on():
                self._keep(where, connection)
        finally:
            connection.close_unless_waiting()

    def close(self) -> None:
        """Close the connections that wait. No request is under way."""
        for waiting in self._waiting.values():
            for connection in waiting:
                connection.close()
        self._waiting.clear()

    def _take(self, where: tuple[str, str, int]) -> _Connection | None:
        """One that has waited and is still good; those that aren't are closed."""
        waiting = self._waiting.get(where, [])
        while waiting:
            connection = waiting.pop()
            if connection.is_good():
                connection.waits = False
                return connection
            connection.close()
        return None

    def _keep(self, where: tuple[str, str, int], connection: _Connection) -> None:
        for waiting in list(self._waiting.values()):
            for old in [one for one in waiting if not one.is_good()]:
                waiting.remove(old)
                old.close()
        if sum(map(len, self._waiting.values())) < KEPT:
            connection.waits, connection.until = True, trio.current_time() + KEEP
            self._waiting.setdefault(where, []).append(connection)

    async def _connect(self, address: Address, request: Outgoing) -> _Connection:
        tcp: trio.SocketStream | None = None
        with trio.move_on_after(min(request.idle, CONNECT_TIMEOUT)):
            try:
                tcp = await trio.open_tcp_stream(address.host.strip("[]"), address.port)
                return _Connection(tcp, await self._secured(tcp, address))
            except OSError as error:
                raise unreachable(request.url, error) from error
            except trio.BrokenResourceError as error:  # the certificate, say
                _close(tcp)
                raise unreachable(request.url, error.__cause__ or error) from error
            except BaseException:
                _close(tcp)
                raise
        raise unreachable(request.url, "it does not answer")

    async def _secured(self, tcp: trio.SocketStream, address: Address) -> trio.abc.Stream:
        if address.scheme == "http":
            return tcp
        if self._tls is None:
            self._tls = trusting()
        name = address.host.strip("[]")
        stream = trio.SSLStream(tcp, self._tls, server_hostname=name, https_compatible=True)
        await stream.do_handshake()
        return stream


def _close(tcp: trio.SocketStream | None) -> None:
    if tcp is not None:
        tcp.socket.close()


def trusting() -> ssl.SSLContext:
    """Servers are to prove who they are, to the authorities that the environment names, or the usual ones."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and not folder:
        import certifi

        file = certifi.where()
    context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Connection:
    """``waits``: for its next request, ``until`` then."""

    def __init__(self, tcp: trio.SocketStream, stream: trio.abc.Stream) -> None:
        self.waits = False
        self.until = 0.0
        self._tcp = tcp
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
        self._acknowledge = acknowledger(tcp.socket)
        self._sent = self._over = False  # of the exchange: the whole request, the whole response

    def is_good(self) -> bool:
        """Whether a request may still go out on it: nothing has come that nobody has asked for."""
        if trio.current_time() >= self.until:
            return False
        coming = select.poll()
        coming.register(self._tcp.socket.fileno(), select.POLLIN)
        return not coming.poll(0)

    def goes_on(self) -> bool:
        """Whether another exchange may follow; it is made ready for that."""
        if not self._sent or not self._over or self._http.trailing_data[0]:
            return False
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close_unless_waiting(self) -> None:
        if not self.waits:
            self.close()

    def close(self) -> None:
        """At once, without a word to the other side."""
        _close(self._tcp)

    async def exchange(self, address: Address, request: Outgoing, receiver: Receiver) -> None:
        """One request and its response. Raises `ModelError`."""
        self._sent = self._over = False
        data = self._written(address, request)
        started: list[Head] = []
        with trio.CancelScope() as silence:
            try:
                await self._send(data, request.idle, silence)
                await self._receive(request, receiver, silence, started)
            except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
                raise dropped(request.url, error.__cause__ or error, started=bool(started)) from error
            except zlib.error as error:
                raise undecodable(request.url, error) from error
        if silence.cancelled_caught:
            raise silent(request.url, request.idle)

    def _written(self, address: Address, request: Outgoing) -> bytes:
        own = {"host": address.named, "content-length": str(len(request.body))}
        headers = list({**own, **request.all_headers}.items())
        try:
            head = h11.Request(method=request.method, target=address.target, headers=headers)
            parts = [self._http.send(head), self._http.send(h11.Data(request.body)) if request.body else b""]
            return b"".join([*(part or b"" for part in parts), self._http.send(h11.EndOfMessage()) or b""])
        except (h11.LocalProtocolError, UnicodeEncodeError):  # whose words quote it, a key perhaps
            raise impossible(request.url, "a header holds what none may hold") from None

    async def _send(self, data: bytes, idle: float, silence: trio.CancelScope) -> None:
        """Who refuses a request may close without having read it: the reason is in what can be read."""
        with contextlib.suppress(trio.BrokenResourceError):
            for at in range(0, len(data), PIECE):
                silence.deadline = trio.current_time() + idle
                await self._stream.send_all(memoryview(data)[at : at + PIECE])
            self._sent = True

    async def _receive(
        self, request: Outgoing, receiver: Receiver, silence: trio.CancelScope, started: list[Head]
    ) -> None:
        decode: Callable[[bytes], bytes] = bytes
        while True:
            event = await self._event(silence, request.idle)
            if isinstance(event, h11.Data):
                if await receiver.data(decode(event.data)):
                    return await self._linger()
            elif isinstance(event, h11.EndOfMessage):
                self._over = True
                return
            elif isinstance(event, h11.Response):
                started.append(_head(event))
                decode = decoder(started[0].headers.get("content-encoding", ""))
                receiver.head(started[0])
            elif not isinstance(event, h11.InformationalResponse):
                raise dropped(request.url, NO_ANSWER, started=bool(started))

    async def _event(self, silence: trio.CancelScope, idle: float) -> Any:
        """The next thing that the server says. Time that we take for ourselves is not its silence."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            silence.deadline = trio.current_time() + idle
            data = await self._read()
            silence.deadline = float("inf")
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise h11.RemoteProtocolError(NO_ANSWER)
            self._http.receive_data(data)
        return event

    async def _read(self) -> bytes:
        with contextlib.suppress(OSError, ValueError):  # it may be gone; the read says how
            self._acknowledge()
        return bytes(await self._stream.receive_some(READ))

    async def _linger(self) -> None:
        """Read what little is left, so that the connection can be used again."""
        with (
            trio.move_on_after(LINGER),
            contextlib.suppress(h11.RemoteProtocolError, trio.BrokenResourceError),
        ):
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self._read())
                elif not isinstance(event, h11.Data):
                    self._over = isinstance(event, h11.EndOfMessage)
                    return


def _head(event: h11.Response) -> Head:
    headers: dict[str, str] = {}
    for name, value in event.headers:
        known, new = name.decode("ascii"), value.decode("latin-1")
        headers[known] = f"{headers[known]}, {new}" if known in headers else new
    return Head(event.status_code, headers)
