"""The way to a far provider: TLS, proxies from the environment, and all that httpx knows of HTTP.

httpx is imported with the first call, not with the daemon: it costs a tenth of a second and megabytes.
Its cost for a request (over a millisecond) is nothing beside such a provider's; a near one is reached by
`direct`.

Leaving a response early is the delicate part. httpx and httpcore read through nested async generators;
one dropped while suspended is finalised by the garbage collector, after its connection's scope is gone.
So a response that isn't read to its end is left by one more read in a cancelled scope: the `Cancelled`
unwinds the generators from the inside out, and the connection leaves the pool with them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    import httpx


class Far:
    """See `transport.Transport`."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def exchange(self, request: Outgoing, receiver: Receiver) -> None:
        import httpx

        started = False
        timeout = httpx.Timeout(request.idle, connect=min(request.idle, CONNECT_TIMEOUT))
        try:
            client = self._open()
            built = client.build_request(
                request.method,
                request.url,
                headers=request.all_headers,
                content=request.body,
                timeout=timeout,
            )
            response = await client.send(built, stream=True)
            try:
                started = True
                receiver.head(Head(response.status_code, dict(response.headers)))
                await _pump(_bytes_of(response), receiver, acknowledger(_socket_of(response)))
            finally:
                with trio.CancelScope(shield=True):
                    await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _failure(error, request, started=started) from error

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

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
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT, keepalive_expiry=KEEP)
            self._client = httpx.AsyncClient(limits=limits, follow_redirects=False)
        return self._client


def _bytes_of(response: httpx.Response) -> AsyncIterator[bytes]:
    encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
    return (response.aiter_bytes() if encoded else response.aiter_raw()).__aiter__()


def _socket_of(response: httpx.Response) -> object:
    stream = response.extensions.get("network_stream")
    return stream.get_extra_info("socket") if stream is not None else None


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


def _failure(error: Exception, request: Outgoing, *, started: bool) -> ModelError:
    """What a failure below HTTP is to the retry policy. ``started``: a response had begun."""
    import httpx

    url = request.url
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return unreachable(url, error)
    if isinstance(error, httpx.TimeoutException):
        return silent(url, request.idle)
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return impossible(url, error)
    if isinstance(error, httpx.DecodingError):
        return undecodable(url, error)
    return dropped(url, error, started=started)
