"""The messages dialect as the end-to-end tests' model server speaks it, with signed thinking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def event(kind: str, **members: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n"


def block(at: int, start: Json, *deltas: Json) -> str:
    """A whole content block."""
    said = (event("content_block_delta", index=at, delta=delta) for delta in deltas)
    return "".join(
        [
            event("content_block_start", index=at, content_block=start),
            *said,
            event("content_block_stop", index=at),
        ]
    )


def blocks(item: Json, ids: Iterator[int]) -> Iterator[tuple[Json, list[Json]]]:
    """Start and deltas of each block of ``item`` (``thinking``, ``text``, ``tools``)."""
    if thinking := item.get("thinking"):
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": thinking},
                {"type": "signature_delta", "signature": f"signed {thinking}"},
            ],
        )
    if text := item.get("text"):
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]
    for tool in item.get("tools", []):
        start = {"type": "tool_use", "id": f"toolu_{next(ids)}", "name": tool["name"], "input": {}}
        yield start, [{"type": "input_json_delta", "partial_json": json.dumps(tool["arguments"])}]


def answer(item: Json, ids: Iterator[int]) -> Iterator[str]:
    """The events of one answer."""
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 5}
    yield event("message_start", message={"usage": {**usage, "output_tokens": 1}})
    yield event("ping")
    for at, (start, deltas) in enumerate(blocks(item, ids)):
        yield block(at, start, *deltas)
    stop = item.get("stop", "tool_use" if item.get("tools") else "end_turn")
    yield event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 7})
    yield event("message_stop")
