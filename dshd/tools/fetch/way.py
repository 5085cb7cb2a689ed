"""One GET to one machine, by httpx's transports: no client, so no cookies, no proxy, no credentials.

The address that was checked is the one that is connected to: the request goes to the number, with the name in
``Host`` and for the certificate. A name that means another machine a moment later changes nothing.

The connections are fetch's own and none is kept; a model's calls never wait for them. A response that isn't
read to its end is left by one more read in a cancelled scope, which unwinds httpx's generators from within:
see `dshd.model.exchange`. httpx is imported with the first call.
"""

from __future__ import annotations

import logging
import socket
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from dshd import __version__
from dshd.errors import one_line
from dshd.tools.tool import ToolFailure
from dshd.tools.urls import Url, bracketed

if TYPE_CHECKING:
    import httpx

CONNECT = 10.0  # s, for each of a host's addresses
SILENCE = 30.0  # s between two pieces
MOST_LOOKUPS = 8  # at once; one that the resolver never answers holds a thread
MOST_ADDRESSES = 4  # of a host, tried one after the other

# Asked for as it is: what comes compressed is bounded all the same.
HEADERS = {
    "user-agent": f"dshd/{__version__}",
    "accept": "text/html, text/plain, application/json, */*;q=0.5",
    "accept-encoding": "identity",
    "connection": "close",
}


class Taking(Protocol):
    """What takes a response."""

    def head(self, status: int, reason: str, headers: Mapping[str, str]) -> bool:
        """``headers`` with lower-case names. True: the body isn't wanted."""
        ...

    async def data(self, data: bytes) -> bool:
        """A piece. True: no more is wanted."""
        ...


class Way:
    """One per daemon."""

    def __init__(self) -> None:
        self._transports: dict[str, httpx.AsyncHTTPTransport] = {}
        self._lookups: trio.CapacityLimiter | None = None

    async def addresses(self, url: Url) -> list[str]:
        """The machines that the host's name means now. Raises `ToolFailure`.

        Cancellation: at once; the thread is left to end by itself.
        """
        if self._lookups is None:
            self._lookups = trio.CapacityLimiter(MOST_LOOKUPS)
        look = partial(socket.getaddrinfo, url.host, url.port, type=socket.SOCK_STREAM)
        try:
            found = await trio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._lookups)
        except (OSError, UnicodeError) as error:
            raise _failed(f"{url.host} is not known: {_words(error)}") from None
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    async def get(self, url: Url, addresses: Sequence[str], taking: Taking) -> None:
        """GET from the first of these addresses that takes a connection. Raises `ToolFailure`.

        Cancellation: at any point; the connection is closed.
        """
        import httpx

        for address in (tried := addresses[:MOST_ADDRESSES]):
            try:
                return await self._get(url, address, taking)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if address == tried[-1]:
                    raise _failed(f"can't connect to {url.authority}: {_words(error)}") from None
            except httpx.TimeoutException:
                raise _failed(f"{url.authority} has said nothing for {SILENCE:g} s", "TIMEOUT") from None
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, zlib.error) as error:
                raise _failed(f"{url.authority} gave no whole answer: {_words(error)}") from None

    async def _get(self, url: Url, address: str, taking: Taking) -> None:
        response = await self._transport(url.scheme).handle_async_request(_request(url, address))
        try:
            reason = response.extensions.get("reason_phrase", b"").decode("latin-1")
            if taking.head(response.status_code, reason, dict(response.headers)):
                await _left(response.aiter_raw())
            else:
                await _read(response.aiter_raw(), taking)
        finally:
            if not response.is_closed:
                with trio.CancelScope(shield=True):
                    await response.aclose()

    def _transport(self, scheme: str) -> httpx.AsyncHTTPTransport:
        if scheme not in self._transports:
            import httpx

            for name in ("httpx", "httpcore"):  # at lower levels they log addresses
                logging.getLogger(name).setLevel(logging.WARNING)
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            self._transports[scheme] = httpx.AsyncHTTPTransport(verify=scheme == "https", limits=limits)
        return self._transports[scheme]


def _request(url: Url, address: str) -> httpx.Request:
    import httpx

    timeout = httpx.Timeout(SILENCE, connect=CONNECT)
    return httpx.Request(
        "GET", f"{url.scheme}://{bracketed(address)}:{url.port}{url.target}",
        headers={"host": url.authority, **HEADERS},
        extensions={"timeout": timeout.as_dict(), "sni_hostname": url.host},
    )  # fmt: skip


async def _read(source: AsyncIterator[bytes], taking: Taking) -> None:
    """What is not wanted any more is left by a cancellation in it, so that it closes what it reads from."""
    try:
        async for data in source:
            if await taking.data(data):
                return
    finally:
        with trio.move_on_after(0, shield=True):
            await _left(source)


async def _left(source: AsyncIterator[bytes]) -> None:
    with suppress(Exception):
        async for _ in source:
            pass


def is_own(address: str, port: int) -> bool:
    """Whether an address is one of this machine's: then it is also where it would be called from.
    Nothing is sent for that."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))
            return bool(probe.getsockname()[0] == address)
    except OSError:
        return False


def _failed(words: str, code: str = "NETWORK") -> ToolFailure:
    return ToolFailure(words, code=code)


def _words(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return said or one_line(error) or type(error).__name__
