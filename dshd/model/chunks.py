"""What an adapter pushes while a model answers, and how that stands in the log.

A stream is: for each block an optional `BlockStart`, deltas, an optional `BlockEnd`; then at most one
`Usage`; then `Finish`, and nothing after it. Indexes name blocks within one answer. Tool arguments are
raw text all the way; nobody parses them here.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

Kind = Literal["text", "reasoning", "tool-call"]
Reason = Literal["stop", "tool-calls", "max-tokens", "content-filter"]


@attrs.frozen
class BlockStart:
    index: int
    kind: Kind
    id: str | None = None
    name: str | None = None


@attrs.frozen
class TextDelta:
    index: int
    text: str


@attrs.frozen
class ReasoningDelta:
    index: int
    text: str


@attrs.frozen
class ToolCallDelta:
    """``arguments`` is a fragment to append; ``id`` and ``name`` are whole, empty or None = not said."""

    index: int
    arguments: str
    id: str | None = None
    name: str | None = None


@attrs.frozen
class BlockEnd:
    """``extra``: opaque members the provider wants back with this block (a signature, ...)."""

    index: int
    extra: dict[str, Any] | None = None


@attrs.frozen
class Usage:
    """``usage`` in tokens: ``input`` (uncached), ``cached``, ``output`` (with reasoning), ``reasoning``."""

    usage: dict[str, int]


@attrs.frozen
class Finish:
    reason: Reason


Chunk = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | Usage | Finish

NAMES: dict[type[Any], str] = {
    BlockStart: "block-start",
    TextDelta: "text-delta",
    ReasoningDelta: "reasoning-delta",
    ToolCallDelta: "tool-call-delta",
    BlockEnd: "block-end",
    Usage: "usage",
    Finish: "finish",
}
CLASSES = {name: cls for cls, name in NAMES.items()}
# {chunk class: its field names}; looked up for every streamed delta, so kept flat
FIELDS = {cls: tuple(field.name for field in attrs.fields(cls)) for cls in NAMES}


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    """``{"type": "text-delta", "index": 0, "text": "..."}``; fields that are None are left out."""
    out: dict[str, Any] = {"type": NAMES[type(chunk)]}
    for field in FIELDS[type(chunk)]:
        value = getattr(chunk, field)
        if value is not None:
            out[field] = value
    return out


def chunk_from_json(data: dict[str, Any]) -> Chunk:
    """The inverse. KeyError or TypeError for what this version doesn't know."""
    fields = {key: value for key, value in data.items() if key != "type"}
    chunk: Chunk = CLASSES[data["type"]](**fields)
    return chunk
