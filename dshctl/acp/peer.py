"""JSON-RPC with an editor, as lines: what came, what goes, and which answer is to which request of ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

Json = dict[str, Any]
Then = Callable[[Json | None], None]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601


class Peer:
    """``write`` takes whole lines. What comes is given out as ``(id, method, params)``, id None being a
    notification; answers go to whoever asked."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._rest = b""
        self._number = 0
        self._asked: dict[int, Then] = {}

    def feed(self, data: bytes) -> Iterator[tuple[Any, str, Json]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[tuple[Any, str, Json]]:
        try:
            got = json.loads(line)
        except (ValueError, RecursionError):
            return self.fail(None, PARSE_ERROR, "not JSON")
        if not isinstance(got, dict):
            return self.fail(None, INVALID_REQUEST, "not an object")
        params = got.get("params")
        if isinstance(got.get("method"), str):
            yield got.get("id"), got["method"], params if isinstance(params, dict) else {}
        elif got.get("id") in self._asked:
            result = got.get("result")
            self._asked.pop(got["id"])(result if isinstance(result, dict) else None)

    def ask(self, method: str, params: Json, then: Then) -> None:
        """A request of ours; ``then`` gets its result, None if it was refused."""
        self._number += 1
        self._asked[self._number] = then
        self._send({"id": self._number, "method": method, "params": params})

    def tell(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    def answer(self, id: Any, result: Json) -> None:
        self._send({"id": id, "result": result})

    def fail(self, id: Any, code: int, message: str, data: Json | None = None) -> None:
        error: Json = {"code": code, "message": message}
        self._send({"id": id, "error": {**error, "data": data} if data else error})

    def _send(self, message: Json) -> None:
        self._write(
            json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")) + "\n"
        )
