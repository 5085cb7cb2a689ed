"""Plugins: what they may do, as values, and the small examples that ship.

`loader` finds them by their entry points, `config` helps them to read their section; in the box are
`rate_limit` and `content_filter`.

A plugin is a class with ``name``, ``__init__(config: dict)`` and

at least one of these, each of which puts it into the chain of that name:

    async def session_start(self, source: str) -> Sequence[str]
    async def pre_step(self, proposal: PreStep) -> PreStep | Reject | Defer
    async def request(self, request: Request) -> Request
    def stream(self, about: Streaming, emit: Emit) -> Emit
    async def request_error(self, failed: RequestFailed) -> Request | None
    async def pre_tool(self, call: PreTool) -> PreTool | Reject
    async def post_tool(self, made: PostTool) -> Sequence[str]
    async def turn_stopping(self, stopping: TurnStopping) -> Sequence[str]

Texts that are returned are said to the model: at the beginning of the session's first step, after the step's
batch of calls, or in one more step, after which `turn_stopping` is asked again (8 times in a turn at most).
What `stream` returns takes the chunks and passes on to ``emit`` what it likes of them. A request that
`request_error` returns is tried at once, in the same step (3 times at most).

Passing on is returning the proposal (changed or not), so a plugin that forgets to answer is seen. What
it returns decides; raising ends the turn with an error, never as a pass. It is found by the entry-point
group ``dshd.plugins`` under the name its ``[plugins.NAME]`` table has, and made once; again when a reload of
the config finds its table changed.

Sans-IO: this module is imported by the driver and by plugin authors alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

Emit = Callable[[Any], Awaitable[None]]  # takes a chunk of `dshd.model.chunks`
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
    """Hold the batch for ``seconds`` (the driver makes it at least 1 s), then ask again; None: 30 s.
    What one plugin defers again and again is held for longer, up to 5 min (see dshd-hooks(7))."""

    reason: str
    seconds: float | None = None


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


@attrs.frozen(slots=True)
class Request:
    """What a step is about to send, but for what was said, which is `pre_step`'s. A plugin may change the
    route, the system prompt, the limit of tokens (None: the provider's), and leave tools out."""

    session: str
    turn: int
    step: int
    route: str
    system: str
    tools: tuple[str, ...]
    max_tokens: int | None


@attrs.frozen(slots=True)
class RequestFailed:
    """An attempt that failed: with which ``code`` (dshctl(1) lists them), and what was sent."""

    request: Request
    attempt: int
    code: str
    message: str


@attrs.frozen(slots=True)
class Streaming:
    """An attempt whose answer is about to stream."""

    session: str
    turn: int
    step: int
    attempt: int
    route: str


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
    """What all have in common. Each chain's own is below. Cancellation: an abort cancels whatever waits."""

    @property
    def name(self) -> str: ...


class StartsSession(Plugin, Protocol):
    async def session_start(self, source: str) -> Sequence[str]: ...


class BeforeStep(Plugin, Protocol):
    async def pre_step(self, proposal: PreStep) -> Answer: ...


class BeforeRequest(Plugin, Protocol):
    async def request(self, request: Request) -> Request: ...


class AroundStream(Plugin, Protocol):
    def stream(self, about: Streaming, emit: Emit) -> Emit: ...


class BehindError(Plugin, Protocol):
    async def request_error(self, failed: RequestFailed) -> Request | None: ...


class BeforeTool(Plugin, Protocol):
    async def pre_tool(self, call: PreTool) -> PreTool | Reject: ...


class AfterTool(Plugin, Protocol):
    async def post_tool(self, made: PostTool) -> Sequence[str]: ...


class BeforeEnd(Plugin, Protocol):
    async def turn_stopping(self, stopping: TurnStopping) -> Sequence[str]: ...


CHAINS: Final = (
    "session_start", "pre_step", "request", "stream", "request_error", "pre_tool", "post_tool",
    "turn_stopping",
)  # fmt: skip


def text_of(message: Message) -> str:
    """The text of a message's blocks, joined by newlines; of an attachment, its head and its tail,
    which is what the model sees of it."""
    blocks = message.get("content") or ()
    parts = {"text": ("text",), "file": ("head", "tail")}
    return "\n".join(str(b.get(part, "")) for b in blocks for part in parts.get(b.get("type"), ()))
