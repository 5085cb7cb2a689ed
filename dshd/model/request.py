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

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import attrs

from dshd.model.grown import Grown, Hash, shared

Message = dict[str, Any]
Block = dict[str, Any]
T = TypeVar("T")


@attrs.frozen
class ToolSpec:
    """A tool as the model sees it; ``schema`` is JSON Schema for the arguments object."""

    name: str
    description: str
    schema: dict[str, Any]


class Memo:
    """What was worked out for a history, kept from one step's request to the next.

    A session's history grows by a few messages a step and is sent whole each time; without this the
    thousandth step would cost a hundred times the tenth. It goes by identity, so messages and tools must not
    be changed, and whoever derives them must keep the same objects; if they are `Grown`, not even those are
    compared. What it holds is as large as the history; drop it when the session is idle.
    """

    def __init__(self) -> None:
        self.kept: dict[Hashable, Any] = {}  # {purpose: what its owner put there}
        self._hash = Hash()

    def each(self, purpose: Hashable, messages: Sequence[Message], work: Callable[[Message], T]) -> Grown[T]:
        """``work`` of each message, done only for those beyond what the last ``messages`` began with."""
        before, answers = self.kept.get(purpose, ((), Grown()))
        same = shared(before, messages)
        answers = answers[:same].plus(map(work, messages[same:]))
        self.kept[purpose] = (messages, answers)
        return answers  # type: ignore[no-any-return]

    def text(
        self, purpose: Hashable, messages: Sequence[Message], write: Callable[[Message], bytes]
    ) -> bytes:
        """What ``write`` gives for each message, with commas between; done for as few as with `each`."""
        before, text, ends = self.kept.get(purpose, ((), b"", []))
        same = shared(before, messages)
        new = list(map(write, messages[same:]))
        ends = ends[:same] if same < len(ends) else ends
        text = b",".join([text[: ends[-1]], *new] if ends else new)
        for one in new:
            ends.append((ends[-1] if ends else -1) + 1 + len(one))
        self.kept[purpose] = (messages, text, ends)
        return text

    def once(self, purpose: Hashable, given: tuple[object, ...], work: Callable[[], T]) -> T:
        """What ``work`` gave for the same objects ``given`` the last time, else what it gives now."""
        kept = self.kept.get(purpose)
        if kept is None or len(kept[0]) != len(given) or not all(map(operator.is_, kept[0], given)):
            kept = self.kept[purpose] = (given, work())
        return kept[1]

    def sha256(self, body: bytes) -> str:
        """In hexadecimal."""
        return self._hash.of(body)


@attrs.frozen
class ModelRequest:
    """``messages`` is the surface, oldest first. ``max_tokens`` limits the answer, in tokens.

    ``settings`` are further members for the provider (``temperature``, ...), sent as they are. ``memo``
    makes it cheap to encode a history that has grown; it changes nothing of the bytes.
    """

    system: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    settings: dict[str, Any] = attrs.field(factory=dict)
    memo: Memo = attrs.field(factory=Memo, eq=False, repr=False)


def text_of(blocks: Iterable[Block]) -> str:
    """The text blocks of a message's content, joined."""
    return "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def tool_calls(message: Message) -> list[Block]:
    """The tool-call blocks of an assistant message, in the model's order."""
    return [block for block in message["content"] if block.get("type") == "tool-call"]
