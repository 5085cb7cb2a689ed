"""What readers of all dialects have in common: events in, chunks out, and whether an answer is whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dshd.model import sse
from dshd.model.chunks import Chunk, Finish, Kind, Reason, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from dshd.model.errors import ModelError
from dshd.model.pieces import MAX_NOISE, loads

DELTA: Final[dict[Kind, Any]] = {"text": TextDelta, "reasoning": ReasoningDelta, "tool-call": ToolCallDelta}


class AnswerReader(ABC):
    """Bytes of a streamed answer in, chunks out. ``done``: the answer is whole.

    ``max_tokens``: the limit that was sent; an answer that is that long and ends in half a tool call was
    cut, whatever reason the server gives. What a dialect's methods find goes to ``_out``.
    """

    def __init__(self, where: str, max_tokens: int | None) -> None:
        self.done = False
        self._where = where
        self._max_tokens = max_tokens
        self._out: list[Chunk] = []
        self._events = sse.Decoder()
        self._noise = 0
        self._bytes = 0

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """Chunks that ``data`` completes. Raises `ModelError`; nothing follows after `done`."""
        self._bytes += len(data)
        try:
            events = self._events.feed(data)
        except sse.TooLong as error:
            raise self._malformed(str(error)) from error
        for event in events:
            if self.done:
                return
            self._event(event)
            yield from self._taken()

    def close(self) -> Iterator[Chunk]:
        """The stream has ended. Raises `ModelError` if the answer is not whole."""
        if self.done:
            return
        left = self._events.close()
        if not self._bytes:
            raise ModelError("EMPTY_RESPONSE", f"{self._where} sent an empty stream")
        if not self._is_whole(left):
            why = f"{self._where} closed the stream before the answer was complete"
            raise ModelError("STREAM_CLOSED", why)
        self._end()
        yield from self._taken()

    def whole(self, answer: dict[str, Any]) -> Iterator[Chunk]:
        """An answer that came in one piece, from a server that doesn't stream."""
        self._take_whole(answer)
        self._end()
        yield from self._taken()

    def _event(self, event: sse.Event) -> None:
        if is_end_mark(event):
            return self._marked()
        try:
            parsed = loads(event.data)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            return self._object(event.name, parsed)
        self._noise += 1
        if self._noise > MAX_NOISE:
            raise self._malformed("too many lines that aren't JSON")

    def _taken(self) -> list[Chunk]:
        out, self._out = self._out, []
        return out

    def _finished(self, usage: dict[str, int] | None, reason: Reason) -> None:
        if usage is not None:
            self._out.append(Usage(usage))
        self._out.append(Finish(reason))
        self.done = True

    def _malformed(self, why: str) -> ModelError:
        return ModelError("MALFORMED_RESPONSE", f"{self._where} sent what is no answer: {why}")

    # -- what a dialect knows

    @abstractmethod
    def _object(self, name: str, data: dict[str, Any]) -> None:
        """One event that is a JSON object."""

    @abstractmethod
    def _marked(self) -> None:
        """The end mark came."""

    @abstractmethod
    def _is_whole(self, left: Sequence[sse.Event]) -> bool:
        """Whether the answer is whole though the stream just ended. ``left``: events without their end."""

    @abstractmethod
    def _take_whole(self, answer: dict[str, Any]) -> None: ...

    @abstractmethod
    def _end(self) -> None:
        """Close what is open; at last `_finished`. Raises `ModelError` where there is no answer."""


def is_end_mark(event: sse.Event) -> bool:
    return event.data.strip() == "[DONE]"


def as_text(value: object) -> str:
    """What is a text; of all else nothing."""
    return value if isinstance(value, str) else ""
