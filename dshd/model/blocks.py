"""From chunks to the blocks of one assistant message.

Two small machines. The *stream* is open until `Finish` (or an abort) and takes nothing after it. Each
*block* is named by its index, opens with its first chunk (a start, or a delta of a provider that sends
none), takes deltas of its own kind, and is closed by the first `BlockEnd`; what comes for it later is
dropped, so a provider that closes twice changes nothing.

Blocks stand in the order in which their indexes were first seen, not in numeric order. A block that was
never closed counts with what it has when the stream finishes. On ``max-tokens`` every tool call goes, the
closed ones too: the last one may be cut, and running the others alone is not what the model asked for. A
call without an id gets one and the message says so in ``problems``; a call without a name is refused.

Illegal chunks raise `ModelError` ``MALFORMED_RESPONSE`` and change nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from dshd.model.believed import Bounds, believed
from dshd.model.chunks import (
    NAMES,
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    Reason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from dshd.model.errors import ModelError
from dshd.model.request import Block

MOST: Final = 2**53  # tokens, of one answer: what JSON keeps exact


class State(enum.Enum):
    """Of a block."""

    ABSENT = "absent"
    TEXT = "text"
    REASONING = "reasoning"
    CALL = "tool-call"
    CLOSED = "closed"


class Event(enum.Enum):
    """What a chunk is to its block."""

    START_TEXT = "start of text"
    START_REASONING = "start of reasoning"
    START_CALL = "start of a tool call"
    TEXT = "text"
    REASONING = "reasoning"
    CALL = "part of a tool call"
    END = "end"


BLOCKS: dict[State, dict[Event, State]] = {
    State.ABSENT: {
        Event.START_TEXT: State.TEXT,
        Event.START_REASONING: State.REASONING,
        Event.START_CALL: State.CALL,
        Event.TEXT: State.TEXT,
        Event.REASONING: State.REASONING,
        Event.CALL: State.CALL,
    },
    State.TEXT: {Event.START_TEXT: State.TEXT, Event.TEXT: State.TEXT, Event.END: State.CLOSED},
    State.REASONING: {
        Event.START_REASONING: State.REASONING,
        Event.REASONING: State.REASONING,
        Event.END: State.CLOSED,
    },
    State.CALL: {Event.START_CALL: State.CALL, Event.CALL: State.CALL, Event.END: State.CLOSED},
    State.CLOSED: dict.fromkeys(Event, State.CLOSED),
}


class Stream(enum.Enum):
    """Of the answer as a whole."""

    OPEN = "open"
    COUNTED = "counted"
    FINISHED = "finished"
    ABORTED = "aborted"


class StreamEvent(enum.Enum):
    BLOCK = "block"
    USAGE = "usage"
    FINISH = "finish"
    ABORT = "abort"


STREAM: dict[Stream, dict[StreamEvent, Stream]] = {
    Stream.OPEN: {
        StreamEvent.BLOCK: Stream.OPEN,
        StreamEvent.USAGE: Stream.COUNTED,
        StreamEvent.FINISH: Stream.FINISHED,
        StreamEvent.ABORT: Stream.ABORTED,
    },
    Stream.COUNTED: {
        StreamEvent.FINISH: Stream.FINISHED,
        StreamEvent.ABORT: Stream.ABORTED,
    },
    Stream.FINISHED: {},
    Stream.ABORTED: {},
}

STARTS = {"text": Event.START_TEXT, "reasoning": Event.START_REASONING, "tool-call": Event.START_CALL}
DELTAS: dict[type[Any], Event] = {
    TextDelta: Event.TEXT,
    ReasoningDelta: Event.REASONING,
    ToolCallDelta: Event.CALL,
    BlockEnd: Event.END,
}
WHOLE: dict[type[Any], StreamEvent] = {Usage: StreamEvent.USAGE, Finish: StreamEvent.FINISH}


@attrs.define
class _Open:
    """A block being put together; ``kind`` is set by the first chunk."""

    index: int
    state: State = State.ABSENT
    kind: str = ""
    parts: list[str] = attrs.field(factory=list)
    id: str = ""
    name: str = ""
    extra: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Assembled:
    """A finished answer. ``content`` may be empty. ``problems``: sentences for the daemon's log.

    ``dropped``: names of tools whose calls fell to ``max-tokens``.
    """

    content: list[Block]
    usage: dict[str, int] | None
    finish: Reason
    problems: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


class Assembler:
    """Feed it every chunk of one attempt; then `result`, or `interrupted` if it was cut.

    ``bounds``: what can be believed of its usage; ``unbelieved``: what was reported, if that could not.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.stream = Stream.OPEN
        self.unbelieved: dict[str, int] | None = None
        self._bounds = bounds or Bounds()
        self.usage: dict[str, int] | None = None
        self._finish: Reason | None = None
        self._blocks: dict[int, _Open] = {}  # {index: block}, in order of first appearance

    def feed(self, chunk: Chunk) -> None:
        """Take one chunk. Raises `ModelError` and changes nothing if it is illegal here."""
        event = WHOLE.get(type(chunk), StreamEvent.BLOCK)
        after = STREAM[self.stream].get(event)
        if after is None:
            raise _illegal(f"{NAMES[type(chunk)]} after the answer was {self.stream.value}")
        if isinstance(chunk, Usage):
            self._count(chunk.usage)
        elif isinstance(chunk, Finish):
            self._finish = chunk.reason
        else:
            self._feed_block(chunk)
        self.stream = after

    def _count(self, usage: Mapping[str, Any]) -> None:
        reported = _numbers(usage)
        characters = sum(len(part) for block in self._blocks.values() for part in block.parts)
        self.usage = believed(reported, self._bounds, characters // 4 + 1)
        self.unbelieved = reported if self.usage != reported else None

    def abort(self) -> None:
        """The attempt was cancelled or failed; nothing more will be fed."""
        self.stream = STREAM[self.stream].get(StreamEvent.ABORT, self.stream)

    def result(self) -> Assembled:
        """The whole answer. `ModelError` ``STREAM_CLOSED`` before `Finish`."""
        if self._finish is None:
            raise ModelError("STREAM_CLOSED", "the model's answer ended before it was finished")
        problems: list[str] = []
        blocks = list(self._blocks.values())
        dropped = tuple(block.name for block in blocks if block.kind == "tool-call")
        if self._finish == "max-tokens":
            blocks = [block for block in blocks if block.kind != "tool-call"]
        content = [_finished(block, problems) for block in blocks]
        return Assembled(
            [block for block in content if not _is_empty(block)],
            self.usage,
            self._finish,
            tuple(problems),
            dropped if self._finish == "max-tokens" else (),
        )

    def interrupted(self) -> list[Block]:
        """What is worth keeping of a cut answer: text and reasoning that aren't blank, no tool call."""
        kept = [block for block in self._blocks.values() if block.kind != "tool-call"]
        return [
            {**_finished(block, []), **({} if block.state is State.CLOSED else _half(block))}
            for block in kept
            if "".join(block.parts).strip()
        ]

    def _feed_block(self, chunk: Chunk) -> None:
        assert not isinstance(chunk, Usage | Finish)
        event = STARTS[chunk.kind] if isinstance(chunk, BlockStart) else DELTAS[type(chunk)]
        block = self._blocks.get(chunk.index) or _Open(chunk.index)
        after = BLOCKS[block.state].get(event)
        if after is None:
            raise _illegal(f"{event.value} for block {chunk.index}, which is {block.state.value}")
        if block.state is State.CLOSED:
            return
        TAKE[type(chunk)](block, chunk)
        if block.state is State.ABSENT:
            block.kind = after.value
            self._blocks[chunk.index] = block
        block.state = after


def _take_start(block: _Open, chunk: BlockStart) -> None:
    block.id = chunk.id or block.id
    block.name = chunk.name or block.name


def _take_text(block: _Open, chunk: TextDelta | ReasoningDelta) -> None:
    block.parts.append(chunk.text)


def _take_call(block: _Open, chunk: ToolCallDelta) -> None:
    block.id = chunk.id or block.id
    block.name = chunk.name or block.name
    block.parts.append(chunk.arguments)


def _take_end(block: _Open, chunk: BlockEnd) -> None:
    block.extra.update(chunk.extra or {})


TAKE: dict[type[Any], Callable[[_Open, Any], None]] = {
    BlockStart: _take_start,
    TextDelta: _take_text,
    ReasoningDelta: _take_text,
    ToolCallDelta: _take_call,
    BlockEnd: _take_end,
}


def _finished(block: _Open, problems: list[str]) -> Block:
    text = "".join(block.parts)
    if block.kind != "tool-call":
        return {"type": block.kind, "text": text, **block.extra}
    if not block.name:
        raise _illegal(f"tool call {block.index} has no name")
    if not block.id:
        problems.append(f"the model's call of {block.name} had no id and was given one")
    return {
        "type": "tool-call",
        "id": block.id or f"call-{block.index}",
        "name": block.name,
        "arguments": text,
        **block.extra,
    }


def _numbers(usage: Mapping[str, Any]) -> dict[str, int]:
    """What is a count at all, whichever adapter lets it through."""
    return {name: int(n) for name, n in usage.items() if type(n) in (int, float) and 0 <= n < MOST}


def _half(block: _Open) -> dict[str, Any]:
    # A reasoning block cut before its end has no signature; a provider that signs refuses it when it
    # comes back, so adapters must be able to tell.
    return {"incomplete": True} if block.kind == "reasoning" else {}


def _is_empty(block: Block) -> bool:
    # a signed or redacted reasoning block has no text but must come back
    return block["type"] != "tool-call" and not block["text"] and len(block) == 2


def _illegal(what: str) -> ModelError:
    return ModelError("MALFORMED_RESPONSE", f"the model's answer makes no sense: {what}")
