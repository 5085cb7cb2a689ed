"""The one HTTP client of the daemon: what it is asked for, and how all of it ends. `exchange` does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
import trio

from dshd.model.errors import ModelError
from dshd.model.transport import Head, Outgoing, Receiver, place

if TYPE_CHECKING:
    from dshd.model.exchange import Exchange

CLOSING = 5.0  # s given to calls in flight to notice that they are over
MAX_BODY = 16 * 1024 * 1024


class Http:
    """Use `post` and `get_json`, then `aclose`. One per daemon."""

    def __init__(self) -> None:
        self._exchanges: Exchange | None = None  # imported with the first call
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
        await self._exchange(Outgoing("POST", url, headers, body, idle_timeout), receiver)

    async def get_json(self, url: str, *, headers: Mapping[str, str], timeout: float) -> Any:  # noqa: ASYNC109
        """A small JSON document, in ``timeout`` s altogether."""
        return await self._json(Outgoing("GET", url, headers, b"", timeout))

    async def post_json(self, url: str, data: Any, *, timeout: float) -> Any:  # noqa: ASYNC109
        """The answer to a small JSON document, in ``timeout`` s altogether."""
        headers = {"content-type": "application/json"}
        return await self._json(Outgoing("POST", url, headers, orjson.dumps(data), timeout))

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
            if self._exchanges is not None:
                await self._exchanges.aclose()

    async def _json(self, request: Outgoing) -> Any:
        whole, limit = _Whole(), request.idle
        with trio.move_on_after(limit) as scope:
            await self._exchange(request, whole)
        if scope.cancelled_caught:
            raise ModelError("TIMEOUT", f"{place(request.url)} did not answer within {limit:g} s")
        return whole.parsed(request.url)

    async def _exchange(self, request: Outgoing, receiver: Receiver) -> None:
        """Runs under a scope that `aclose` can cancel."""
        with trio.CancelScope() as scope:
            self._enter(scope)
            try:
                if not self._closed:
                    return await self._way().do(request, receiver)
            finally:
                self._leave(scope)
        raise ModelError("ABORTED", "the daemon has closed its connections")

    def _way(self) -> Exchange:
        if self._exchanges is None:
            from dshd.model.exchange import Exchange

            self._exchanges = Exchange()
        return self._exchanges

    def _enter(self, scope: trio.CancelScope) -> None:
        if not self._scopes:
            self._left = trio.Event()
        self._scopes.add(scope)

    def _leave(self, scope: trio.CancelScope) -> None:
        self._scopes.discard(scope)
        if not self._scopes:
            self._left.set()


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
