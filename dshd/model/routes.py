"""Routes: a provider and a model under a name, and which one a new session gets.

Built in are ``deepseek``, ``anthropic``, ``openai``, ``ollama`` and ``rehearsal``; a table of the same name
in the config changes single fields of a built-in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class Route:
    """Fields as in the config. ``max_tokens`` and ``context_window`` in tokens."""

    name: str
    adapter: str
    base_url: str = ""
    model: str = ""
    api_key_env: str | None = None
    api_key_file: str | None = None
    api_key_command: str | tuple[str, ...] | None = None
    key_required: bool = False
    context_window: int | None = None
    max_tokens: int | None = None
    fallback: tuple[str, ...] = ()
    price: Mapping[str, Any] | None = None
    script: str | None = None
    profile: Mapping[str, Any] | None = None


BUILT_IN: dict[str, Route] = {
    route.name: route
    for route in (
        Route(
            "deepseek", "openai", "https://api.deepseek.com", "deepseek-chat",
            api_key_env="DEEPSEEK_API_KEY", key_required=True, context_window=128_000, max_tokens=8192,
        ),
        Route(
            "anthropic", "anthropic", "https://api.anthropic.com", "claude-sonnet-4-5",
            api_key_env="ANTHROPIC_API_KEY", key_required=True, context_window=200_000, max_tokens=16_384,
        ),
        Route(
            "openai", "openai", "https://api.openai.com/v1", "gpt-5.1",
            api_key_env="OPENAI_API_KEY", key_required=True, context_window=400_000,
        ),
        Route("ollama", "openai", "http://127.0.0.1:11434/v1"),
        Route("rehearsal", "rehearsal", model="rehearsal", context_window=1_000_000),
    )
}  # fmt: skip
