"""A model server that costs as little as one can: it reads a request and writes bytes it made before.

Run as ``python -m tests.bench.instant``: prints its port. ``GET /plan/N`` makes the next N answers ask for
``true`` and the one after that end the turn; ``GET /times`` tells when each request since then was complete
(monotonic ns) and forgets them.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from typing import Any


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "c", "object": "chat.completion.chunk", "model": "instant", "choices": [choice]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}\n\ndata: [DONE]\n\n'


def response(body: bytes, kind: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        kind.encode(),
        len(body),
        body,
    )


def call_true(n: int) -> bytes:
    function = {"name": "bash", "arguments": '{"command": "true"}'}
    call = {"index": 0, "id": f"call_{n}", "type": "function", "function": function}
    return chunk({"role": "assistant", "tool_calls": [call]}) + chunk({}, "tool_calls") + USAGE


def say_done() -> bytes:
    return chunk({"role": "assistant", "content": "done"}) + chunk({}, "stop") + USAGE


class Server:
    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.buffers: dict[socket.socket, bytearray] = {}
        self.times: list[int] = []
        self.left = 0
        self.served = 0

    def run(self) -> None:
        print(self.listener.getsockname()[1], flush=True)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.accept()
                elif isinstance(key.fileobj, socket.socket):
                    self.read(key.fileobj)

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffers[connection] = bytearray()
        self.selector.register(connection, selectors.EVENT_READ, None)

    def read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(connection)
            del self.buffers[connection]
            connection.close()
            return
        self.buffers[connection] += data
        while (reply := self.take(self.buffers[connection])) is not None:
            connection.sendall(reply)

    def take(self, buffer: bytearray) -> bytes | None:
        """The answer to the request at the head of the buffer, if it is complete."""
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(buffer[:end])
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        if len(buffer) < end + 4 + length:
            return None
        del buffer[: end + 4 + length]
        return self.answer(head.split(b" ")[1].decode())

    def answer(self, path: str) -> bytes:
        if path.startswith("/plan/"):
            self.left, self.times = int(path[6:]), []
            return response(b"{}", "application/json")
        if path == "/times":
            return response(json.dumps(self.times).encode(), "application/json")
        self.times.append(time.monotonic_ns())
        self.served += 1
        self.left -= 1
        body = call_true(self.served) if self.left >= 0 else say_done()
        return response(body, "text/event-stream")


if __name__ == "__main__":
    Server().run()
