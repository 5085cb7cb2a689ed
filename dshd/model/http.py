"""The one HTTP client of the daemon, and the only module that knows httpx.

httpx is imported with the first call, not with the daemon: it costs a tenth of a second and megabytes.

A response is taken as raw bytes, as httpcore gives them; what they mean is the adapter's. Silence is
limited (``idle_timeout`` between any two reads, so comments count), total time is not. Every failure
comes out as a `ModelError`.

Leaving a response early is the delicate part. httpx and httpcore read through nested async generators;
one dropped while suspended is finalised by the garbage collector, after its connection's scope is gone.
So a response that isn't read to its end is left by one more read in a cancelled scope: the `Cancelled`
unwinds the generators from the inside out, and the connection leaves the pool with them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import attrs
import orjson
import trio

from dshd import __version__
from dshd.model.errors import ModelError

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT = 30.0
LINGER = 0.1  # s given to a server to end a response of which everything is known, to keep the connection
CLOSING = 5.0  # s given to calls in flight to notice that they are over
MAX_BODY = 16 * 1024 * 1024
USER_AGENT = f"dshd/{__version__}"


@attrs.frozen
class Head:
    """``headers`` with lower-case names; of repeated ones the values are joined by ", "."""

    status: int
    headers: Mapping[str, str]


class Receiver(Protocol):
    """What takes a response. Exceptions pass through."""

    def head(self, head: Head) -> None:
        """Called once, first."""
        ...

    async def data(self, data: bytes) -> bool:
        """Called for each piece; True = nothing more is needed."""
        ...


class Http:
    """Use `post` and `get_json`, then `aclose`. One per daemon."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._scopes: set[trio.CancelScope] = set()  # of calls in flight
        self._left = trio.Event()  # set while there are none
        self._left.set()
        self._closed = False

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        receiver: Receiver,
        *,
        idle_timeout: float,
    ) -> None:
        """Send ``body`` and push the response into ``receiver``; returns at its end.

        *Cancellation*: at any point. The connection is closed and nothing of it stays in the pool.
        """
        await self._in_scope(lambda: self._exchange("POST", url, headers, body, receiver, idle_timeout))

    async def get_json(self, url: str, *, headers: Mapping[str, str], timeout: float) -> Any:  # noqa: ASYNC109
        """A small JSON document, in ``timeout`` s altogether."""
        return await self._json("GET", url, headers, b"", timeout)

    async def post_json(self, url: str, data: Any, *, timeout: float) -> Any:  # noqa: ASYNC109
        """The answer to a small JSON document, in ``timeout`` s altogether."""
        return await self._json(
            "POST", url, {"content-type": "application/json"}, orjson.dumps(data), timeout
        )

    async def aclose(self) -> None:
        """Close all connections. Calls in flight end with `ModelError` ``ABORTED``; none may follow.

        *Cancellation*: shielded, for at most `CLOSING` s.
        """
        self._closed = True
        with trio.CancelScope(shield=True):
            for scope in self._scopes:
                scope.cancel()
            with trio.move_on_after(CLOSING):
                await self._left.wait()
            if self._client is not None:
                await self._client.aclose()
                self._client = None

    async def _json(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limit: float
    ) -> Any:
        whole = _Whole()
        with trio.move_on_after(limit) as scope:
            await self._in_scope(lambda: self._exchange(method, url, headers, body, whole, limit))
        if scope.cancelled_caught:
            raise ModelError("TIMEOUT", f"{place(url)} did not answer within {limit:g} s")
        return whole.parsed(url)

    async def _in_scope(self, exchange: Callable[[], Awaitable[None]]) -> None:
        """Runs under a scope that `aclose` can cancel."""
        with trio.CancelScope() as scope:
            self._enter(scope)
            try:
                if not self._closed:
                    return await exchange()
            finally:
                self._leave(scope)
        raise ModelError("ABORTED", "the daemon has closed its connections")

    def _enter(self, scope: trio.CancelScope) -> None:
        if not self._scopes:
            self._left = trio.Event()
        self._scopes.add(scope)

    def _leave(self, scope: trio.CancelScope) -> None:
        self._scopes.discard(scope)
        if not self._scopes:
            self._left.set()

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, receiver: Receiver, idle: float
    ) -> None:
        import httpx

        started = False
        timeout = httpx.Timeout(idle, connect=min(idle, CONNECT_TIMEOUT))
        try:
            client = self._open()
            request = client.build_request(
                method, url, headers=_with_ours(headers), content=body, timeout=timeout
            )
            response = await client.send(request, stream=True)
            try:
                started = True
                receiver.head(Head(response.status_code, dict(response.headers)))
                await _pump(_bytes_of(response), receiver, _acknowledger(response))
            finally:
                with trio.CancelScope(shield=True):
                    await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise transport_error(error, url, idle, started=started) from error

    def _open(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            for name in (
                "httpx",
                "httpcore",
            ):  # at lower levels they log addresses and headers, keys included
                logging.getLogger(name).setLevel(logging.WARNING)
            # No limit on connections: how many calls run at once is the driver's to say, and a pool that
            # blocks would look like a slow provider.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=60)
            self._client = httpx.AsyncClient(limits=limits, follow_redirects=False)
        return self._client


def _with_ours(headers: Mapping[str, str]) -> dict[str, str]:
    # identity: a compressed stream would be held back by the compressor's buffers
    return {"user-agent": USER_AGENT, "accept-encoding": "identity", **headers}


def _bytes_of(response: httpx.Response) -> AsyncIterator[bytes]:
    encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
    return (response.aiter_bytes() if encoded else response.aiter_raw()).__aiter__()


def _acknowledger(response: httpx.Response) -> Callable[[], None]:
    """What sends the TCP acknowledgement that the kernel would hold back for 40 ms.

    Many small servers write each event by itself with Nagle's algorithm on, so each waits for the
    acknowledgement of the one before. The kernel forgets the wish, so it is made anew for each read.
    """
    stream = response.extensions.get("network_stream")
    sock = stream.get_extra_info("socket") if stream is not None else None
    option = getattr(socket, "TCP_QUICKACK", None)  # Linux
    if sock is None or option is None or sock.family == socket.AF_UNIX:
        return lambda: None
    return lambda: sock.setsockopt(socket.IPPROTO_TCP, option, 1)


async def _pump(source: AsyncIterator[bytes], receiver: Receiver, acknowledge: Callable[[], None]) -> None:
    ended = False
    try:
        while True:
            try:
                with suppress(OSError, ValueError):  # the connection may be gone; the read says how
                    acknowledge()
                data = await source.__anext__()
            except StopAsyncIteration:
                ended = True
                return
            except BaseException:
                ended = True
                raise
            if await receiver.data(data):
                ended = await _linger(source)
                return
    finally:
        if not ended:
            with trio.move_on_after(0, shield=True):
                await _read_out(source)


async def _linger(source: AsyncIterator[bytes]) -> bool:
    """Read what little is left, so that the connection can be used again. True: at the end."""
    with trio.move_on_after(LINGER):
        await _read_out(source)
    return True  # a cancelled read has unwound it


async def _read_out(source: AsyncIterator[bytes]) -> None:
    """Read on to the end, or until the scope's cancellation arrives; see the module's docstring."""
    with suppress(Exception):  # the end, or an error: nobody wants what is left
        while True:
            await source.__anext__()


def place(url: str) -> str:
    """Host and port of ``url``, for messages: never its user, password, or query."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that is none"
    return f"{parts.hostname or parts.path}{port}"


def transport_error(error: Exception, url: str, idle: float, *, started: bool) -> ModelError:
    """What a failure below HTTP is to the retry policy. ``started``: a response had begun."""
    import httpx

    where = place(url)
    why = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return ModelError("TRANSPORT", f"can't connect to {where}: {why}")
    if isinstance(error, httpx.TimeoutException):
        return ModelError("TIMEOUT", f"{where} has said nothing for {idle:g} s")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return ModelError("INVALID_REQUEST", f"the request to {where} can't be sent: {why}")
    if isinstance(error, httpx.DecodingError):
        return ModelError("MALFORMED_RESPONSE", f"{where} sent a response that can't be decoded: {why}")
    if started:
        return ModelError(
            "STREAM_CLOSED", f"{where} dropped the connection in the middle of its answer: {why}"
        )
    return ModelError("TRANSPORT", f"{where} dropped the connection: {why}")


class _Whole:
    """Takes a small document."""

    def __init__(self) -> None:
        self._status = 0
        self._body = bytearray()

    def head(self, head: Head) -> None:
        self._status = head.status

    async def data(self, data: bytes) -> bool:
        self._body += data
        return len(self._body) > MAX_BODY

    def parsed(self, url: str) -> Any:
        if self._status != 200:
            raise ModelError("UNKNOWN", f"{place(url)} answered {self._status}", http_status=self._status)
        try:
            return orjson.loads(bytes(self._body))
        except orjson.JSONDecodeError:
            raise ModelError("MALFORMED_RESPONSE", f"{place(url)} did not answer in JSON") from None
