"""A server at an address: streamable HTTP as far as one tool needs it, on a port that it keeps. No
connection outlives its answer."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self

TOOL = {"name": "twice", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        result = answer(asked)
        self.send_response(202 if "id" not in asked else 200)
        told = {"jsonrpc": "2.0", "id": asked.get("id")}
        told |= {"error": {"code": -32601, "message": "unknown"}} if result is None else {"result": result}
        body = json.dumps(told).encode() if "id" in asked else b""
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def answer(asked: dict[str, Any]) -> dict[str, Any] | None:
    params = asked.get("params") or {}
    match asked["method"]:
        case "initialize":
            version = params["protocolVersion"]
            info = {"name": "far", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            n = params["arguments"]["n"]
            return {"content": [{"type": "text", "text": f"{n} {n}"}]}
    return None


class Far:
    """``url``: where it is, while it is there."""

    def __init__(self) -> None:
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
