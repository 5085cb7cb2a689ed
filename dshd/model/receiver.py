"""A response on its way from the transport to a dialect's reader, and the attempt around it.

Streamed events go on as they come. Anything else is taken whole: a refusal, an answer of a server that
doesn't stream, events under a wrong content type, a web page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from dshd.model.adapter import Emit, PreparedCall
from dshd.model.chunks import Chunk
from dshd.model.errors import ModelError
from dshd.model.failures import refused
from dshd.model.http import MAX_BODY, Http
from dshd.model.pieces import loads
from dshd.model.transport import Head, place


class Reader(Protocol):
    """Bytes of a dialect's stream in, chunks out. Raises `ModelError`. ``done``: the answer is whole."""

    done: bool

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Chunks that ``data`` completes."""
        ...

    def close(self) -> Iterable[Chunk]:
        """The stream has ended."""
        ...

    def whole(self, answer: dict[str, Any]) -> Iterator[Chunk]:
        """An answer that came in one piece."""
        ...


async def attempt(
    http: Http,
    call: PreparedCall,
    url: str,
    headers: Callable[[str | None], Mapping[str, str]],
    body: bytes,
    reader: Reader,
    emit: Emit,
) -> None:
    """One request, its response pushed through ``reader`` into ``emit``. See `Adapter.stream`.

    ``headers``: what it takes to send with a key, or without one.
    """
    key = await call.credentials.key()
    receiver = _Receiver(place(url), reader, emit)
    try:
        await http.post(url, headers(key), body, receiver, idle_timeout=call.idle_timeout)
        await receiver.end()
    except ModelError as error:
        raise _without(key, error) from error.__cause__


def _without(key: str | None, error: ModelError) -> ModelError:
    """Providers quote a key that they refuse; the error goes into logs and answers."""
    if key and key in error.message:
        error.message = error.message.replace(key, "[the key]")
        error.args = (error.message,)
    return error


class _Receiver:
    def __init__(self, where: str, reader: Reader, emit: Emit) -> None:
        self._where = where
        self._emit = emit
        self._head = Head(0, {})
        self._body = bytearray()
        self._reader = reader

    def head(self, head: Head) -> None:
        self._head = head

    async def data(self, data: bytes) -> bool:
        if not self._streams():
            self._body += data
            return len(self._body) > MAX_BODY
        for chunk in self._reader.feed(data):
            await self._emit(chunk)
        return self._reader.done

    async def end(self) -> None:
        """The response has ended."""
        for chunk in self._reader.close() if self._streams() else self._whole():
            await self._emit(chunk)

    def _streams(self) -> bool:
        kind = self._head.headers.get("content-type", "").lower()
        return self._head.status == 200 and "json" not in kind and "html" not in kind

    def _whole(self) -> Iterator[Chunk]:
        body = bytes(self._body)
        if self._head.status != 200:
            raise refused(self._head.status, self._head.headers, body, self._where)
        if body.lstrip()[:1] in {b"d", b":", b"e"}:  # events under a wrong content type
            yield from self._reader.feed(body)
            yield from self._reader.close()
            return
        try:
            parsed = loads(body.decode("utf-8", "replace"))
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise self._no_answer(body)
        yield from self._reader.whole(parsed)

    def _no_answer(self, body: bytes) -> ModelError:
        if not body.strip():
            return ModelError("EMPTY_RESPONSE", f"{self._where} sent an empty answer")
        page = "html" in self._head.headers.get("content-type", "") or body.lstrip()[:1] == b"<"
        what = "a web page; is base_url right?" if page else "what is no answer"
        return ModelError("MALFORMED_RESPONSE", f"{self._where} sent {what}")
