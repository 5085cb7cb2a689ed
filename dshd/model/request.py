"""One model call as a value, in dshd's own words; adapters turn it into a provider's.

Messages are plain JSON, because they come from the log and must give the same bytes when rebuilt::

    {"role": "user", "content": [block], "verb": str | None, "source": {"kind": ..., ...}}
    {"role": "assistant", "content": [text | reasoning | tool-call block], "model": route | None}
    {"role": "tool", "call": id, "name": str, "content": [block], "is_error": bool}

Blocks: ``{"type": "text", "text"}``, ``{"type": "reasoning", "text", ...opaque members of the provider}``,
``{"type": "tool-call", "id", "name", "arguments"}`` with ``arguments`` the model's raw text, and
``image`` and ``file`` (attachments). Unknown block types are passed over by adapters that don't know them.

A user message may carry ``turn`` and ``step``, and an assistant message ``interrupted``, as the log has
them; only the rehearsal model reads these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

Message = dict[str, Any]
Block = dict[str, Any]


@attrs.frozen
class ToolSpec:
    """A tool as the model sees it; ``schema`` is JSON Schema for the arguments object."""

    name: str
    description: str
    schema: dict[str, Any]


@attrs.frozen
class ModelRequest:
    """``messages`` is the surface, oldest first. ``max_tokens`` limits the answer, in tokens.

    ``settings`` are further members for the provider (``temperature``, ...), sent as they are.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    settings: dict[str, Any] = attrs.field(factory=dict)


def text_of(blocks: Iterable[Block]) -> str:
    """The text blocks of a message's content, joined."""
    return "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def tool_calls(message: Message) -> list[Block]:
    """The tool-call blocks of an assistant message, in the model's order."""
    return [block for block in message["content"] if block.get("type") == "tool-call"]
