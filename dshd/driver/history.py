"""The conversation as the model gets it, derived from the surface and kept up step by step.

The history is never stored. Deriving it anew for each step would make the thousandth step dearer
than the first, so what was derived is kept as long as the surface only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dshd.model.grown import Grown, shared
from dshd.model.request import Memo
from dshd.prompt.tokens import estimate_message
from dshd.session.fold.events import excerpt, text_block
from dshd.session.fold.layer import Rows
from dshd.session.fold.surface import Entry

Neutral = dict[str, Any]


class History:
    """What it has: the messages of the durable surface, and behind them those of one that was being decided,
    which are used again if these very entries become durable: what encoding has done goes by identity."""

    def __init__(self) -> None:
        self.memo = Memo()  # what encoding has done already, by the identity of these very messages
        self._messages: Grown[Neutral] = Grown()
        self._sums = [0]  # tokens of the first n messages, about
        self._durable = 0  # messages
        self._ahead: list[Entry] = []  # of the others
        self._first: int | None = None
        self._last: int | None = None
        self._replacements = 0
        self._names: dict[str, str] = {}  # {tool call id: tool name}, for results that must name theirs
        self._place: str | None = None

    @property
    def tokens(self) -> int:
        """Of the messages of the durable surface, about."""
        return self._sums[self._durable]

    def of(self, surface: Rows[Entry], place: str | None = None) -> Grown[Neutral]:
        """The neutral messages of ``surface``, oldest first (see `model.request`). ``place``: the directory
        where the model finds attachments."""
        self._follow(surface, surface, place)
        return self._messages

    def ahead(
        self, durable: Rows[Entry], surface: Rows[Entry], place: str | None = None
    ) -> tuple[Grown[Neutral], int]:
        """The messages of a ``surface`` that is being decided over the ``durable`` one, and their tokens."""
        if surface.replacements != durable.replacements:
            other = History()
            return other.of(surface, place), other.tokens
        self._follow(durable, surface, place)
        return self._messages, self._sums[-1]

    def _follow(self, durable: Rows[Entry], surface: Rows[Entry], place: str | None) -> None:
        """Have the messages of ``surface``, which begins with the ``durable`` one."""
        if place != self._place or not self._begins(durable):
            self._messages, self._sums, self._durable, self._ahead, self._names = Grown(), [0], 0, [], {}
        self._place, self._replacements = place, durable.replacements
        entries = [surface[i] for i in range(self._durable, len(surface))]
        same = shared(self._ahead, entries)
        new = [self._neutral(entry) for entry in entries[same:]]
        known = self._durable + same
        self._messages = self._messages[:known].plus(new)
        del self._sums[known + 1 :]
        for message in new:
            self._sums.append(self._sums[-1] + estimate_message(message))
        self._ahead = entries[len(durable) - self._durable :]
        self._durable = len(durable)
        if self._durable:
            self._first, self._last = durable[0].seq, durable[-1].seq

    def _begins(self, surface: Rows[Entry]) -> bool:
        """Whether the durable surface has only grown since."""
        if self._durable > len(surface) or surface.replacements != self._replacements:
            return False
        if self._durable == 0:
            return True
        return surface[0].seq == self._first and surface[self._durable - 1].seq == self._last

    def _neutral(self, entry: Entry) -> Neutral:
        for block in entry.data["content"] if entry.type == "assistant/message" else ():
            if block["type"] == "tool-call":
                self._names[block["id"]] = block["name"]
        message = _NEUTRAL[entry.type](entry.data)
        if entry.type == "user/message":
            message["content"] = shown(message["content"], self._place)
        if entry.type == "tool/result":
            message["name"] = self._names.get(entry.data["call"], "tool")
        return message


def shown(content: Sequence[Mapping[str, Any]], place: str | None) -> list[dict[str, Any]]:
    """Blocks as the model gets them: of an attachment its head, its tail, and where the whole is."""
    return [text_block(excerpt(b, place)) if b.get("type") == "file" else dict(b) for b in content]


def user(data: Mapping[str, Any]) -> Neutral:
    return {
        "role": "user",
        "content": list(data["content"]),
        "verb": data.get("verb"),
        "source": dict(data.get("source") or {}),
        "turn": data.get("turn"),
        "step": data.get("step"),
    }


def _assistant(data: Mapping[str, Any]) -> Neutral:
    return {
        "role": "assistant",
        "content": list(data["content"]),
        "model": data.get("model"),
        "interrupted": bool(data.get("interrupted")),
    }


def _tool(data: Mapping[str, Any]) -> Neutral:
    return {
        "role": "tool",
        "call": data["call"],
        "content": list(data["content"]),
        "is_error": bool(data.get("is_error")),
    }


_NEUTRAL: Final[dict[str, Callable[[Mapping[str, Any]], Neutral]]] = {
    "user/message": user,
    "assistant/message": _assistant,
    "tool/result": _tool,
}
