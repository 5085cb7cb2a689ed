"""The conversation as the model gets it, derived from the surface and kept up step by step.

The history is never stored. Deriving it anew for each step would make the thousandth step dearer
than the first, so what was derived is kept as long as the surface only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dshd.model.request import Memo
from dshd.prompt.tokens import estimate_message
from dshd.session.fold.events import excerpt, text_block
from dshd.session.fold.layer import Rows
from dshd.session.fold.surface import Entry

Neutral = dict[str, Any]


class History:
    """``names``: tool call id -> tool name, for results that the model's side must name. ``place``:
    the directory where the model finds attachments."""

    def __init__(self) -> None:
        self._messages: list[Neutral] = []
        self.tokens = 0  # of the messages, about
        self.memo = Memo()  # what encoding has done already, by the identity of these very messages
        self._first: int | None = None
        self._last: int | None = None
        self._replacements = 0
        self._names: dict[str, str] = {}
        self._place: str | None = None
        self._ahead: list[tuple[Entry, Neutral]] = []  # of a surface that was not durable

    def of(self, surface: Rows[Entry], place: str | None = None) -> list[Neutral]:
        """The neutral messages of ``surface``, oldest first (see `model.request`)."""
        if place != self._place or not self._begins(surface):
            self._messages, self._names, self.tokens, self._ahead = [], {}, 0, []
        self._place, self._replacements = place, surface.replacements
        for i in range(len(self._messages), len(surface)):
            message = self._derived(surface[i])
            self._messages.append(message)
            self.tokens += estimate_message(message)
        if len(surface):
            self._first, self._last = surface[0].seq, surface[-1].seq
        return self._messages

    def ahead(
        self, durable: Rows[Entry], surface: Rows[Entry], place: str | None = None
    ) -> tuple[list[Neutral], int]:
        """The messages of a ``surface`` that is being decided over the ``durable`` one, and their tokens.

        Of what may yet be dropped nothing is kept but the messages themselves, which are used again if
        these very entries become durable: what encoding has done for them goes by identity.
        """
        past = self.of(durable, place)
        if surface.replacements != durable.replacements:
            other = History()
            return other.of(surface, place), other.tokens
        new = [surface[i] for i in range(len(past), len(surface))]
        self._ahead = [(entry, self._derived(entry)) for entry in new]
        messages = [message for _, message in self._ahead]
        return [*past, *messages], self.tokens + sum(map(estimate_message, messages))

    def _derived(self, entry: Entry) -> Neutral:
        return next((message for known, message in self._ahead if known is entry), None) or self._neutral(
            entry
        )

    def _begins(self, surface: Rows[Entry]) -> bool:
        """Whether the surface has only grown since."""
        known = len(self._messages)
        if known > len(surface) or surface.replacements != self._replacements:
            return False
        return known == 0 or (surface[0].seq == self._first and surface[known - 1].seq == self._last)

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
