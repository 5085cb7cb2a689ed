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
        self._lines = self._socket.makefile("rb")
        self._kept: deque[Json] = deque()  # notifications
        self._answers: dict[int, Json] = {}  # to requests that nobody has taken the answer of yet
        self._id = 0
        try:
            self._socket.connect(str(path))
            self.hello = self.call("daemon.hello", protocol=1, client="test", **hello)
        except BaseException:
            self.close()
            raise

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
        while id not in self._answers:
            message = self._read()
            if "method" in message:
                self._kept.append(message)
            else:
                self._answers[message["id"]] = message
        answer = self._answers.pop(id)
        if "error" in answer:
            raise RpcError(answer["error"])
        return answer["result"]

    def call(self, method: str, **params: Any) -> Any:
        return self.take(self.post(method, **params))

    def result(self, message: str) -> Json:
        """How that message ended, as soon as it has."""
        (one,) = self.call("session.wait", messages=[message])["results"]
        return dict(one)

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
