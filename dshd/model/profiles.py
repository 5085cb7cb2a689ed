"""Quirks of a model on the wire, chosen by the model's name, never by the host that serves it.

The same model behind a relay needs the same treatment, and one host serves many. A route's ``profile``
table in the config overrides single flags. The flags in force are logged with each request, because the
bytes sent depend on them.

``reasoning_back``: which earlier reasoning goes back to the provider with an assistant message.

- ``never``: none (the default; most servers ignore it, strict ones refuse the field);
- ``tools``: on messages of the running turn that asked for tools, and on no other (DeepSeek R1 refuses
  it in plain chat and demands it inside the tool loop);
- ``always``: on every assistant message, as ``""`` where there was none (DeepSeek V4, which fails a few
  turns later if a single one lacks it).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

import attrs

ReasoningBack = Literal["never", "tools", "always"]
MaxTokensField = Literal["max_tokens", "max_completion_tokens"]


@attrs.frozen
class Profile:
    """Flags in force for a call.

    ``reasoning_field``: the member that carries reasoning back. ``null_content``: an assistant message
    with calls and no text has ``content: null``, else ``""``. ``strict_ids``: call ids must match
    ``[A-Za-z0-9]{9}`` (Mistral). ``images``: the model takes image parts. ``max_tokens_field``: newer
    OpenAI models refuse the old name. ``stream_usage``: ``stream_options`` is understood. ``alternate``:
    the model's template knows only user and assistant in turn. ``end_mark``: a stream without ``[DONE]``
    at its end was cut; turned off for servers that never send it. Of the messages dialect: ``cache_control``:
    the server takes the marks; ``bearer``: the key goes into ``Authorization`` instead of ``x-api-key``.
    """

    name: str = "default"
    reasoning_back: ReasoningBack = "never"
    reasoning_field: str = "reasoning_content"
    null_content: bool = False
    strict_ids: bool = False
    images: bool = False
    max_tokens_field: MaxTokensField = "max_tokens"
    stream_usage: bool = True
    alternate: bool = False
    end_mark: bool = True
    cache_control: bool = True
    bearer: bool = False

    def to_json(self) -> dict[str, Any]:
        """All flags, for the log; not to be changed."""
        return _json(self)


@functools.lru_cache(64)  # every step asks, of one and the same
def _json(profile: Profile) -> dict[str, Any]:
    return attrs.asdict(profile)


DEFAULT = Profile()

# first match wins; looked for in the lower-cased model name without its "vendor/"
BY_MODEL: tuple[tuple[str, Profile], ...] = (
    (r"deepseek.*v([4-9]|\d\d)", Profile("deepseek", reasoning_back="always")),
    (r"deepseek", Profile("deepseek-reasoner", reasoning_back="tools")),
    (r"^kimi-(k2.*thinking|k2\.[5-9]|k[3-9])", Profile("kimi", reasoning_back="always")),
    (r"^(glm-|qwen3|minimax-m|mimo-|step-)", Profile("thinking", reasoning_back="tools")),
    (
        r"^(mistral|mixtral|ministral|codestral|devstral|magistral|pixtral)",
        Profile("mistral", strict_ids=True, alternate=True),
    ),
    (r"^gemma", Profile("gemma", alternate=True)),
    (r"^claude", Profile("claude", images=True)),
    (
        r"^(gpt-[5-9]|o[1-9](-|$))",
        Profile("openai-reasoning", images=True, max_tokens_field="max_completion_tokens"),
    ),
    (r"^(gpt-4o|gpt-4\.1|chatgpt-4o)", Profile("openai", images=True)),
)


def profile_for(model: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """The profile of ``model``, with a route's overrides. TypeError for a flag that doesn't exist."""
    bare = model.lower().rsplit("/", 1)[-1]
    found = next((profile for pattern, profile in BY_MODEL if re.search(pattern, bare)), DEFAULT)
    return attrs.evolve(found, **overrides) if overrides else found
