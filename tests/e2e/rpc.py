"""A client of the daemon's socket in forty lines, for what must happen faster than a program starts."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class RpcError(Exception):
    """The daemon's answer was an error; ``code`` is its word."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.error = error
        self.code = error.get("data", {}).get("code")


class Rpc:
    """One connection. Notifications that arrive while it waits for an answer are kept for `events`."""

    def __init__(self, path: Path, timeout: float = 30, **hello: Any) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._kept: deque[Json] = deque()
        self._id = 0
        self.hello = self.call("daemon.hello", protocol=1, client="test", **hello)

    def __enter__(self) -> Rpc:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def post(self, method: str, **params: Any) -> int:
        """Send without waiting; returns the id to `take` the answer of."""
        self._id += 1
        request = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return self._id

    def take(self, id: int) -> Any:
        while True:
            message = self._read()
            if message.get("id") != id:
                self._kept.append(message)
            elif "error" in message:
                raise RpcError(message["error"])
            else:
                return message["result"]

    def call(self, method: str, **params: Any) -> Any:
        return self.take(self.post(method, **params))

    def events(self) -> Iterator[Json]:
        """Notifications as they come: ``{method, params}``. Ends when the daemon hangs up."""
        while True:
            try:
                yield self._kept.popleft() if self._kept else self._read()
            except EOFError:
                return

    def _read(self) -> Json:
        line = self._lines.readline()
        if not line:
            raise EOFError("the daemon closed the connection")
        message: Json = json.loads(line)
        return message
