"""One request over HTTP and its response, by httpx's transports, without its client.

A client merges settings, follows redirects, keeps cookies and wraps the stream anew; a model call needs
none of that, and without it a request on this machine costs a third less. What of a client is needed is
here: which proxy the environment names, and the user in an address. This module is imported with the
first call, not with the daemon: httpx costs a tenth of a second and megabytes.

Leaving a response early is the delicate part. httpx and httpcore read through nested async generators;
one dropped while suspended is finalised by the garbage collector, after its connection's scope is gone.
So a response that isn't read to its end is left by one more read in a cancelled scope: the `Cancelled`
unwinds the generators from the inside out, and the connection leaves the pool with them.
"""

from __future__ import annotations

import logging
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import httpx
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


class Exchange:
    """The ways out, by scheme and proxy (None: straight). One per daemon."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, str | None], httpx.AsyncHTTPTransport] = {}
        self._proxies = getproxies()  # {scheme or "all": address}

    async def do(self, request: Outgoing, receiver: Receiver) -> None:
        """Send the request and push the response into ``receiver``; returns at its end.

        *Cancellation*: at any point. The connection is closed and nothing of it stays in the pool.
        """
        built, way = self._prepared(request)
        started = False
        try:
            response = await way.handle_async_request(built)
            try:
                started = True
                receiver.head(Head(response.status_code, dict(response.headers)))
                decode = _decoder(response.headers.get("content-encoding", ""))
                await _pump(response, decode, receiver)
            finally:
                if not response.is_closed:  # it is, if it was read to its end
                    with trio.CancelScope(shield=True):
                        await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _failure(error, request, started=started) from error
        except zlib.error as error:
            raise undecodable(request.url, error) from error

    async def aclose(self) -> None:
        """Close the connections that wait. No request is under way."""
        for way in self._ways.values():
            await way.aclose()
        self._ways.clear()

    def _prepared(self, request: Outgoing) -> tuple[httpx.Request, httpx.AsyncHTTPTransport]:
        try:
            built = _built(request)
            return built, self._way(built.url)
        except (httpx.HTTPError, httpx.InvalidURL, ImportError, OSError, ValueError) as error:
            raise impossible(request.url, error) from error  # an address, a header, a proxy, certificates

    def _proxy(self, url: httpx.URL) -> str | None:
        """The proxy that the environment names for this address, None for straight."""
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if proxy is None or proxy_bypass(url.host):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"

    def _way(self, url: httpx.URL) -> httpx.AsyncHTTPTransport:
        proxy = self._proxy(url)
        known = self._ways.get((url.scheme, proxy))
        if known is None:
            known = self._ways[url.scheme, proxy] = _transport(url.scheme == "https", proxy)
        return known


def _transport(tls: bool, proxy: str | None) -> httpx.AsyncHTTPTransport:
    """``tls``: servers are to prove who they are. Without it no certificates are read: it takes 20 ms, and
    a model server on this machine needs none."""
    for name in ("httpx", "httpcore"):  # at lower levels they log addresses and headers, keys included
        logging.getLogger(name).setLevel(logging.WARNING)
    # No limit on connections: how many calls run at once is the driver's to say, and a pool that
    # blocks would look like a slow provider.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT, keepalive_expiry=KEEP)
    return httpx.AsyncHTTPTransport(verify=tls, limits=limits, proxy=proxy)


_url = lru_cache(64)(httpx.URL)  # it never changes, and to read it costs more than a request's headers


def _built(request: Outgoing) -> httpx.Request:
    url = _url(request.url)
    if url.scheme not in {"http", "https"} or not url.host:
        raise httpx.UnsupportedProtocol("it is neither an http:// nor an https:// address")
    timeout = httpx.Timeout(request.idle, connect=min(request.idle, CONNECT_TIMEOUT))
    own = {"host": url.netloc.decode("ascii"), "content-length": str(len(request.body)), **_user(url)}
    return httpx.Request(
        request.method, url, headers={**own, **request.all_headers}, stream=_Body(request.body),
        extensions={"timeout": timeout.as_dict()},
    )  # fmt: skip


class _Body(httpx.AsyncByteStream):
    """A request's body. httpx's own is an async generator, which one that is left half way leaves behind."""

    def __init__(self, data: bytes) -> None:
        self._data = [data]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._data:
            raise StopAsyncIteration
        return self._data.pop()


def _user(url: httpx.URL) -> Mapping[str, str]:
    """The header that a user in the address stands for; an API key wins over it."""
    if not url.userinfo:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password)}"
    return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _decoder(encoding: str) -> Callable[[bytes], bytes]:
    """For those who compress though they were asked not to. httpx would decode in one more generator."""
    kind = encoding.strip().lower()
    if kind in {"gzip", "x-gzip", "deflate"}:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
    return bytes


def _socket_of(response: httpx.Response) -> object:
    stream = response.extensions.get("network_stream")
    return stream.get_extra_info("socket") if stream is not None else None


async def _pump(response: httpx.Response, decode: Callable[[bytes], bytes], receiver: Receiver) -> None:
    source, ended = response.aiter_raw(), False
    acknowledge = acknowledger(_socket_of(response))
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
            if await receiver.data(decode(data)):
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
    url = request.url
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return unreachable(url, error)
    if isinstance(error, httpx.TimeoutException):
        return silent(url, request.idle)
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return impossible(url, error)
    return dropped(url, error, started=started)
