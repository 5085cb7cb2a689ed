"""A model server for the end-to-end tests: real HTTP, chat completions (or, at ``/messages``, the messages
dialect), answers as the test wrote them.

What it answers stands in the conversation. The newest user message with ``@script`` holds a JSON list; answer
number N, counted in assistant messages after it, is the list's item N. Without a script, and after its last
item, it answers ``echo: `` and the last text that somebody said. What asks for a summary of the
conversation gets one, behind the gate ``summary`` if there is one.

An item may have ``text``; ``tools``, a list of ``{name, arguments}``; ``delay``, seconds before the first
byte; ``gate``, a name: the answer waits until the test opens it (`Model.open`); ``status``, ``headers`` and
``body``: an HTTP error instead; ``raw``: the pieces of the stream as they are to come, where a number is a
silence of that many seconds, and ``end``: how the connection goes on after them (``whole``, ``cut`` or
``reset``); ``attempts``: a list of items, one for each time that the same request comes.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from tests.e2e import messages

Json = dict[str, Any]
GATE_S = 60.0  # a gate that nobody opens opens by itself, so that no thread outlives its test for long


def script(*items: Json, say: str = "") -> str:
    """A message that makes the model answer with ``items``."""
    return f"{say} @script {json.dumps(items)}".strip()


def bash(command: str, **more: Any) -> Json:
    """An item that asks for one command."""
    return {"tools": [{"name": "bash", "arguments": {"command": command}}], **more}


def text_of(message: Json) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def raw(*pieces: bytes | float, end: str = "whole") -> Json:
    """An item that streams just these bytes, which must be UTF-8 piece by piece."""
    return {"raw": [p.decode() if isinstance(p, bytes) else p for p in pieces], "end": end}


def next_item(messages: list[Json]) -> Json:
    """What the conversation says is next."""
    said = [text_of(m) for m in messages if m["role"] == "user"]
    said = [text for text in said if not text.startswith("Runtime context")]
    for at, message in reversed(list(enumerate(messages))):
        text = text_of(message)
        if message["role"] == "user" and "@script" in text:
            items: list[Json] = json.JSONDecoder().raw_decode(text.rpartition("@script")[2].lstrip())[0]
            step: int = sum(m["role"] == "assistant" for m in messages[at:])
            if step < len(items):
                return items[step]
            break
    return {"text": f"echo: {said[-1] if said else ''}"}


class Model:
    """Serves from a thread while it is entered. ``requests`` are the bodies, as they came."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.changed = threading.Condition()
        self._gates: dict[str, threading.Event] = {}
        self._seen: Counter[str] = Counter()  # {a request's messages: how often they came}
        self._ids = count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> Model:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        for gate in list(self._gates.values()):
            gate.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def gate(self, name: str) -> threading.Event:
        with self.changed:
            return self._gates.setdefault(name, threading.Event())

    def open(self, name: str) -> None:
        """Let the answer with this gate go on."""
        self.gate(name).set()

    def wait_requests(self, n: int, timeout: float = 20) -> None:
        """Until ``n`` requests have arrived."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= n, timeout), (
                f"{len(self.requests)} of {n} requests came in {timeout} s"
            )

    def note(self, body: Json) -> None:
        with self.changed:
            self.requests.append(body)
            self.changed.notify_all()

    def item(self, messages: list[Json]) -> Json:
        """What this request is answered with."""
        if messages and "the place of everything above this line" in text_of(messages[-1]):
            return {"text": "## Task: summed up", **({"gate": "summary"} if "summary" in self._gates else {})}
        with self.changed:
            key = json.dumps(messages)
            attempt, self._seen[key] = self._seen[key], self._seen[key] + 1
        item = next_item(messages)
        attempts: list[Json] = item.get("attempts", [item])
        return attempts[min(attempt, len(attempts) - 1)]

    def pieces(self, path: str, item: Json, model: str) -> Iterator[str]:
        """One answer as events, in the dialect that is spoken at ``path``."""
        if path.endswith("/messages"):
            yield from messages.answer(item, self._ids)
            return
        for chunk in self.stream(item, model):
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"

    def stream(self, item: Json, model: str) -> Iterator[Json]:
        """The chunks of one answer."""

        def chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [choice], **more}

        yield chunk({"role": "assistant", "content": ""})
        for piece in re.findall(r"\s*\S+\s*$|\s*\S+", item.get("text", "")):
            yield chunk({"content": piece})
        tools = item.get("tools", [])
        for at, tool in enumerate(tools):
            function = {"name": tool["name"], "arguments": json.dumps(tool["arguments"])}
            call = {"index": at, "id": f"call_{next(self._ids)}", "type": "function", "function": function}
            yield chunk({"tool_calls": [call]})
        yield chunk({}, "tool_calls" if tools else "stop")
        yield {"id": "c", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.whole(200, {"object": "list", "data": [{"id": "mock", "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.note(body)
            item = model.item(body["messages"])
            if "gate" in item:
                model.gate(item["gate"]).wait(GATE_S)
            time.sleep(item.get("delay", 0))
            if "status" in item:
                error = {"error": {"message": "made to fail"}}
                return self.whole(item["status"], item.get("body", error), item.get("headers", {}))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                self.stream(item, body.get("model", ""))
            except OSError:  # the daemon hung up: an abort
                self.close_connection = True

        def stream(self, item: Json, name: str) -> None:
            for piece in item.get("raw") or model.pieces(self.path, item, name):
                self.piece(piece) if isinstance(piece, str) else time.sleep(piece)
            end = item.get("end", "whole")
            if end == "whole":
                self.wfile.write(b"0\r\n\r\n")
                return
            self.close_connection = True
            if end == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        def piece(self, text: str) -> None:
            data = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def whole(self, status: int, body: Json, headers: Json | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"content-length": len(data), **(headers or {})}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

    return Handler
