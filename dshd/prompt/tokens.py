"""How many tokens a text is, about, and whether a request still fits its window. Sans-IO.

No tokenizer is shipped: models differ, and a table of megabytes would only be wrong more exactly. Four
bytes of UTF-8 are one token; that is within a fifth for English and code and errs upwards for most other
scripts. A `Correction` brings reported usage in (`session.compactions`): providers say what the last request
really was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dshd.model.errors import ModelError
from dshd.session.fold.compactions import Correction

BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 4  # what the wire adds around each block and message
IMAGE_TOKENS = 1600


def estimate(text: str) -> int:
    """Tokens of a text, about; 0 for an empty one."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def estimate_message(message: Mapping[str, Any]) -> int:
    """Tokens of one neutral message (model/request), with what the wire adds."""
    return BLOCK_TOKENS + sum(map(_block, message.get("content") or ()))


def _block(block: Mapping[str, Any]) -> int:
    kind = block.get("type")
    if kind in ("text", "reasoning"):
        return BLOCK_TOKENS + estimate(str(block.get("text", "")))
    if kind == "tool-call":
        return BLOCK_TOKENS + estimate(str(block.get("name", ""))) + estimate(str(block.get("arguments", "")))
    if kind == "image":
        return IMAGE_TOKENS
    return BLOCK_TOKENS + estimate(json.dumps(block, ensure_ascii=False, default=str))


def estimate_tools(tools: Iterable[Any]) -> int:
    """Tokens of the tools (`ToolSpec`: name, description, schema)."""
    texts = (f"{tool.name}{tool.description}{json.dumps(tool.schema, ensure_ascii=False)}" for tool in tools)
    return sum(BLOCK_TOKENS + estimate(text) for text in texts)


def estimate_request(system: str, messages: Sequence[Mapping[str, Any]], tools: Iterable[Any] = ()) -> int:
    """Tokens of a whole request, uncorrected."""
    return estimate(system) + estimate_tools(tools) + sum(map(estimate_message, messages))


def fits(
    system: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Iterable[Any],
    window: int | None,
    max_tokens: int | None,
    correction: Correction | None = None,
    counted: int | None = None,
) -> int:
    """The request's tokens; raises `ModelError` CONTEXT_WINDOW_EXCEEDED when no answer fits beside them.

    ``counted``: what `estimate_request` says, where that is known already. ``window`` and ``max_tokens`` in
    tokens; an unknown window always fits. The room kept for the answer is ``max_tokens``, but never more
    than a quarter of the window: a small window with a large default would be full from the start.
    """
    counted = estimate_request(system, messages, tools) if counted is None else counted
    used = (correction or Correction()).apply(counted)
    if window is None or window <= 0:
        return used
    answer = min(max_tokens or 0, window // 4)
    if used + answer > window:
        raise ModelError(
            "CONTEXT_WINDOW_EXCEEDED",
            f"the conversation is full: it needs about {used:,} tokens, and the model takes {window:,},"
            f" {answer:,} of them for the answer. Start a new session, or use a model with a larger window",
        )
    return used
