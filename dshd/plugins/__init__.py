"""Plugins: what they may do, as values, and the small examples that ship.

`loader` finds them by their entry points, `config` helps them to read their section; in the box are
`rate_limit` and `content_filter`.

A plugin is a class with ``name``, ``__init__(config: dict)`` and

    async def pre_step(self, proposal: PreStep) -> PreStep | Reject | Defer

and, if it wants a word before a turn ends,

    async def turn_stopping(self, stopping: TurnStopping) -> Sequence[str]

What that returns, if anything, is said to the model in one more step, and then it is asked again: it
must come to an end by itself.

Passing on is returning the proposal (changed or not), so a plugin that forgets to answer is seen. What
it returns decides; raising ends the turn with an error, never as a pass. It is found by the entry-point
group ``dshd.plugins`` under the name its ``[plugins.NAME]`` table has, and made once; again when a reload of
the config finds its table changed.

Sans-IO: this module is imported by the driver and by plugin authors alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

Message = Mapping[str, Any]  # {"id", "content": [blocks], "source": {"kind", ...}, "verb", ...} (SPEC §5)


@attrs.frozen(slots=True)
class PreStep:
    """A step about to open. ``messages`` are those claimed for it, in order; it may be empty when only
    tool results wait. A rewritten message keeps its id; one that is left out counts as rejected."""

    session: str
    turn: int
    step: int
    messages: tuple[Message, ...] = ()


@attrs.frozen(slots=True)
class Reject:
    """Refuse messages by id; ``None``: the whole step. ``reason`` is shown to a person."""

    reason: str
    messages: tuple[str, ...] | None = None


@attrs.frozen(slots=True)
class Defer:
    """Hold the batch for ``seconds`` (the driver makes it at least 1 s), then ask again."""

    reason: str
    seconds: float


@attrs.frozen(slots=True)
class PreTool:
    """A call that is about to be made, with arguments that fit its schema. It can be refused (`Reject`,
    whose reason the model reads); it can't be changed. ``context``: what the model is to be told besides."""

    session: str
    turn: int
    step: int
    call: str
    tool: str
    arguments: Mapping[str, Any]
    context: tuple[str, ...] = ()


@attrs.frozen(slots=True)
class PostTool:
    """A call that was made, and the text that it gave."""

    session: str
    turn: int
    step: int
    call: str
    tool: str
    arguments: Mapping[str, Any]
    text: str
    is_error: bool


Answer = PreStep | Reject | Defer


@attrs.frozen(slots=True)
class TurnStopping:
    """A turn that owes nothing any more, after ``steps`` steps; ``answer`` is the text of its last one.
    ``again``: it has gone on for this already."""

    session: str
    turn: int
    steps: int
    answer: str
    again: bool = False


class Plugin(Protocol):
    """What the chain calls. Cancellation: an abort cancels ``pre_step`` where it waits."""

    @property
    def name(self) -> str: ...

    async def pre_step(self, proposal: PreStep) -> Answer: ...


def text_of(message: Message) -> str:
    """The text of a message's blocks, joined by newlines; of an attachment, its head and its tail,
    which is what the model sees of it."""
    blocks = message.get("content") or ()
    parts = {"text": ("text",), "file": ("head", "tail")}
    return "\n".join(str(b.get(part, "")) for b in blocks for part in parts.get(b.get("type"), ()))
