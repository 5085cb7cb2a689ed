"""Answers from a script, and how each answer ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from dshd.model.adapter import Emit
from dshd.model.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from dshd.model.errors import CODES, ModelError
from dshd.model.request import Message
from dshd.small import read_file

MOST = 64 * 1024 * 1024  # bytes of a script


async def load(path: str) -> list[dict[str, Any]]:
    import trio

    try:
        raw = await trio.to_thread.run_sync(read_file, path, MOST)
        return parse_script(raw)
    except (OSError, ValueError) as error:
        raise ModelError(
            "INVALID_REQUEST", f"the rehearsal script {path} can't be played: {error}"
        ) from error


def parse_script(raw: bytes) -> list[dict[str, Any]]:
    """The answers in a script. ValueError if it is neither a JSON list nor JSON lines of objects."""
    text = raw.strip()
    items = orjson.loads(text) if text.startswith(b"[") else [orjson.loads(x) for x in text.split(b"\n") if x]
    if not all(isinstance(item, dict) for item in items):
        raise ValueError("every answer must be an object")
    return list(items)


async def play(script: list[dict[str, Any]], messages: list[Message], body: bytes, emit: Emit) -> None:
    import trio

    number = _answers(messages)
    item: dict[str, Any] = script[number] if number < len(script) else {"text": "end of script"}
    await trio.sleep(float(item.get("wait", 0)))
    for chunk in scripted(item, messages):
        await emit(chunk)
    if "error" in item:
        raise _scripted_error(item["error"])
    tools = item.get("tools", [])
    reason = item.get("finish", "tool-calls" if tools else "stop")
    await end(body, len(item.get("text", "")), reason, item.get("usage"), emit)


def scripted(item: dict[str, Any], messages: list[Message]) -> Iterator[Chunk]:
    """The chunks of an answer's blocks, in the order reasoning, text, tools."""
    if item.get("reasoning"):
        yield from (BlockStart(0, "reasoning"), ReasoningDelta(0, item["reasoning"]), BlockEnd(0))
    if item.get("text"):
        yield BlockStart(1, "text")
        yield from (TextDelta(1, piece) for piece in _pieces(item["text"], int(item.get("chunks", 1))))
        yield BlockEnd(1)
    for at, tool in enumerate(item.get("tools", [])):
        raw = tool.get("arguments", {})
        yield BlockStart(2 + at, "tool-call", tool.get("id") or call_id(messages, at), tool["name"])
        yield ToolCallDelta(2 + at, raw if isinstance(raw, str) else orjson.dumps(raw).decode())
        yield BlockEnd(2 + at)


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _scripted_error(error: dict[str, Any]) -> ModelError:
    code = error.get("code", "INVALID_REQUEST")
    return ModelError(
        code if code in CODES else "UNKNOWN",
        str(error.get("message", "the script says so")),
        retry_after=error.get("retry_after"),
    )


async def end(body: bytes, said: int, reason: Any, usage: dict[str, int] | None, emit: Emit) -> None:
    """Usage is estimated (4 bytes a token), so that budgets can be rehearsed too."""
    guess = {"input": len(body) // 4, "cached": 0, "output": said // 4 + 1, "reasoning": 0}
    await emit(Usage({**guess, **(usage or {})}))
    await emit(Finish(reason))


def call_id(messages: list[Message], at: int) -> str:
    return f"r{_answers(messages)}-{at}"


def _answers(messages: list[Message]) -> int:
    return sum(message["role"] == "assistant" for message in messages)
