"""A server without the package, so that it is there at once. ``mistaken``: it breaks the protocol."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = {"name": "add", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
PUT = {"name": "put", "inputSchema": {"type": "object", "required": ["path"]}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The members of an answer beside its id."""
    if method == "initialize":
        known = {"capabilities": {"tools": {}}, "serverInfo": {"name": "light", "version": "1"}}
        return {"result": {"protocolVersion": params["protocolVersion"], **known}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": "no-schema"}] if "mistaken" in sys.argv else [ADD, PUT]}}
    if method == "tools/call":
        return {"result": called(params["name"], params["arguments"])}
    return {"error": {"code": -32601, "message": "unknown"}}


def called(name: str, given: dict[str, Any]) -> dict[str, Any]:
    if name == "add":
        return {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}
    try:
        Path(given["path"]).write_text("x")
    except OSError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return {"content": []}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            told = answer(asked["method"], asked.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
