"""A server that speaks raw bytes, for what real ones get wrong. Each request gets the next play."""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from dshd.model.adapter import PreparedCall
from dshd.model.models import Models

Play = Callable[["Connection"], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@attrs.frozen
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@attrs.define
class Connection:
    stream: trio.SocketStream
    buffer: bytes = b""
    closed: bool = False

    async def read_request(self) -> Request | None:
        """None when the client has gone."""
        while b"\r\n\r\n" not in self.buffer:
            if not await self._more():
                return None
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            if not await self._more():
                return None
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        method, path, _ = first.split(" ")
        return Request(method, path, headers, body)

    async def _more(self) -> bool:
        try:
            data = await self.stream.receive_some()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self.buffer += data
        return bool(data)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def close(self) -> None:
        self.closed = True
        await self.stream.aclose()

    async def reset(self) -> None:
        """Close with a RST instead of a FIN."""
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.close()

    async def until_gone(self) -> None:
        """Say nothing until the client has hung up."""
        while await self._more():
            pass
        self.closed = True


class Server:
    """``url`` is the base URL; ``plays`` are done in order, then every request is a 500."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.plays: deque[Play] = deque()
        self.connections = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
            nursery.start_soon(trio.serve_listeners, self._serve, listeners)
            task_status.started()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        connection = Connection(stream)
        async with stream:
            while not connection.closed and (request := await connection.read_request()) is not None:
                self.requests.append(request)
                play = self.plays.popleft() if self.plays else answer(500, b"no play")
                try:
                    await play(connection)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return

    def models(self, **route: Any) -> Models:
        table = {"adapter": "openai", "base_url": self.url, "model": "mock", **route}
        env = {"MOCK_KEY": "sk-secret-0123456789"}
        return Models({"mock": table}, env=env, idle_timeout=route.pop("idle_timeout", 30.0))

    def call(self, models: Models) -> PreparedCall:
        return models.prepare_call("mock")


def answer(status: int, body: bytes, **headers: str) -> Play:
    """A whole answer; header names with "-" for "_"."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def play(connection: Connection) -> None:
        await connection.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return play


def streamed(*pieces: bytes, end: bytes | None = END) -> Play:
    """A streamed answer, a chunk a piece; without ``end`` the connection is closed in the middle."""

    async def play(connection: Connection) -> None:
        await connection.send(HEAD)
        for piece in pieces:
            await connection.chunk(piece)
        if end is None:
            await connection.close()
        else:
            await connection.send(end)

    return play


def event(*deltas: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """Events of one choice, the last with the finish reason and the further members."""
    rows = deltas or ({},)
    out = b""
    for at, delta in enumerate(rows):
        last = at == len(rows) - 1
        choice = {"index": 0, "delta": delta, "finish_reason": finish if last else None}
        out += data({"id": "c1", "choices": [choice], **(more if last else {})})
    return out


def data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def tool_delta(index: int | None = None, **members: Any) -> dict[str, Any]:
    """A delta with one fragment of a tool call; ``name`` and ``arguments`` go into ``function``."""
    function = {key: members.pop(key) for key in ("name", "arguments") if key in members}
    entry = {**members, "function": function}
    return {"tool_calls": [entry if index is None else {"index": index, **entry}]}
