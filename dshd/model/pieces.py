"""What all dialects do with the text of an event: parse it, and join what was cut between two."""

from __future__ import annotations

import json
from typing import Any

import attrs
import orjson

from dshd.model.checker import clean_text

MAX_NOISE = 100  # lines that aren't JSON, before the stream is given up


def loads(text: str) -> Any:
    """JSON as the wire has it. ValueError if it isn't; lone surrogates are left in for the joiner."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)  # takes what orjson refuses: lone surrogates, NaN


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
