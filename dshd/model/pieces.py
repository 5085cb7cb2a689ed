"""What all dialects do with the text of an event: parse it, and join what was cut between two."""

from __future__ import annotations

from typing import Any

import attrs
import orjson

from dshd import nesting
from dshd.model.checker import clean_text

MAX_NOISE = 100  # lines that aren't JSON, before the stream is given up


def loads(text: str) -> Any:
    """JSON as the wire has it. ValueError if it isn't, or is too deep; lone surrogates are left in for the
    joiner."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return nesting.loads(text)  # takes what orjson refuses: lone surrogates, NaN
    brackets = text.count("[") + text.count("{")
    return value if brackets <= nesting.MAX_DEPTH else nesting.shallow(value)


@attrs.define
class Joiner:
    """Joins a surrogate pair that a server cut between two deltas; what stays alone becomes U+FFFD."""

    pending: str = ""

    def feed(self, text: str) -> str:
        if text.isascii() and not self.pending:
            return text
        text = self.pending + text
        self.pending = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return clean_text(text[: len(text) - len(self.pending)])

    def end(self) -> str:
        """What is still owed."""
        owed, self.pending = "\ufffd" if self.pending else "", ""
        return owed
