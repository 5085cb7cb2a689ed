"""One connected socket: whole lines in, whole lines out, and what an answer in them means."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dshd import errors, wire

if TYPE_CHECKING:
    import socket

_PIECE: Final = 1 << 16
READY_S: Final = 0.01  # for bytes that are said to be there


class Lost(Exception):
    """The connection ended, or never was."""


class Garbage(Lost):
    """What came is not our protocol."""


class Connection:
    """A socket that has been connected. Requests are numbered from 1."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._searched = 0
        self._next = 0

    def close(self) -> None:
        self.sock.close()

    def send(self, method: str, params: dict[str, Any], timeout: float | None = None) -> int:
        """Write a request; its id. Raises Lost."""
        self._next += 1
        request = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        line = _encode(request)
        if len(line) > wire.MAX_LINE:
            raise errors.Full("not sent: with its attachments it is over 16 MiB", outcome="not-written")
        self.sock.settimeout(timeout)
        try:
            self.sock.sendall(line)
        except TimeoutError:
            raise
        except OSError as error:
            # The daemon may have said why before it hung up; then that is what counts.
            if not self._has_more():
                raise Lost(str(error)) from None
        return self._next

    def _has_more(self) -> bool:
        try:
            self.sock.settimeout(0.2)
            piece = self.sock.recv(_PIECE)
        except OSError:
            return False
        self._buffer += piece
        return bool(piece)

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """The next object. Raises Lost at the end, TimeoutError, and Lost for what isn't JSON-RPC."""
        return self._object(self._line(timeout))

    def come(self) -> Iterator[dict[str, Any]]:
        """What has come by now; waits for nothing. Raises Lost behind the last of it."""
        lost: Lost | None = None
        try:
            self._fill(time.monotonic() + READY_S)
        except TimeoutError:
            return
        except Lost as why:
            lost = why
        while b"\n" in self._buffer:
            yield self._object(self._line(0))
        if lost is not None:
            raise lost

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise Garbage("what answers there does not speak dshd's protocol") from None
        if not isinstance(value, dict):
            raise Garbage("what answers there does not speak dshd's protocol")
        if value.get("method") == "log.event":
            value["params"]["event"] = LogLine(value["params"]["event"], _raw_event(line))
        return value

    def _line(self, timeout: float | None) -> bytes:
        end = None if timeout is None else time.monotonic() + timeout
        while (at := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            self._fill(end)
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        self._searched = 0
        return line

    def _fill(self, end: float | None) -> None:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self.sock.settimeout(left)
        try:
            piece = self.sock.recv(_PIECE)
        except TimeoutError:
            raise
        except OSError as error:
            raise Lost(str(error)) from None
        if not piece:
            raise Lost("the daemon closed the connection")
        self._buffer += piece


class LogLine(dict[str, Any]):
    """An event, and the very text of its line: its checksum covers that, not what we would make of it."""

    def __init__(self, event: dict[str, Any], raw: str) -> None:
        super().__init__(event)
        self.raw = raw


def _raw_event(line: bytes) -> str:
    """The event in a `log.event` line, in which it comes last."""
    return line[line.index(b'"event":') + 8 : line.rindex(b"}}")].decode("utf-8", "replace")


def _encode(request: dict[str, Any]) -> bytes:
    text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


_BY_CODE: Final = {
    kind.code: kind
    for kind in (
        errors.Invalid, errors.NotFound, errors.Conflict, errors.Full, errors.Damaged, errors.Faulted,
        errors.Unsupported, errors.Denied, errors.NotConfigured, errors.NoSpace, errors.Stalled,
        errors.Unavailable, errors.Internal,
    )
}  # fmt: skip
_MEMBERS: Final = ("code", "hint", "retryable", "retry_at", "outcome")


def error_of(error: dict[str, Any]) -> errors.DshError:
    """The exception that an RPC error stands for; its further members are in `data`."""
    data = error.get("data") or {}
    code = str(data.get("code") or "INTERNAL")
    # A newer daemon may have codes that this dshctl does not know; they are told as they are.
    kind: type[errors.DshError] = _BY_CODE.get(code) or type("Remote", (errors.DshError,), {"code": code})
    more = {name: value for name, value in data.items() if name not in _MEMBERS}
    return kind(
        str(error.get("message", "the daemon refused")),
        hint=data.get("hint") or "",
        outcome=data.get("outcome"),
        retry_at=data.get("retry_at"),
        data=more,
    )


def result_of(answer: dict[str, Any]) -> Any:
    """The result in an answer; raises the error in it."""
    if "error" in answer:
        raise error_of(answer["error"] or {})
    return answer.get("result")
