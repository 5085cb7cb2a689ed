"""What was said and is not acknowledged yet, in order.

Each has a key of its own, so that it can be sent again after a lost connection without being said twice. One
is on its way at a time: they are acknowledged in the order in which they were typed.
"""

from __future__ import annotations

import shlex
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from dshctl.attaching.spoken import Spoken
from dshctl.output import dump
from dshd import wire
from dshd.errors import Full

Json = dict[str, Any]


@dataclass
class Letter:
    """``verb`` as typed (``say``, ``steer``, ...). ``replaced``: how many characters of what was typed could
    not be sent as they were. ``at``: when. ``tries``: how often it was sent."""

    verb: str
    text: str
    key: str
    replaced: int = 0
    at: float = field(default_factory=time.monotonic)
    tries: int = 0

    def params(self, session: str) -> wire.SendParams | wire.InterruptParams:
        if self.verb == "interrupt":
            return wire.InterruptParams(session=session, text=self.text, key=self.key)
        verb: Any = self.verb
        return wire.SendParams(session=session, verb=verb, text=self.text, key=self.key)

    def again(self, session: str) -> str:
        """The command that says it, if it was not said already, and else tells what became of it. What was
        said without a verb has none of its own."""
        if self.verb == "say":
            params = {"session": session, "verb": "say", "key": self.key, "text": self.text}
            return f"dshctl rpc session.send {shlex.quote(dump(params))}"
        return f"dshctl {self.verb} -s {session} --key {self.key} -- {shlex.quote(self.text)}"


class Outbox:
    """``first`` is on its way, or the next to be."""

    def __init__(self) -> None:
        self._letters: deque[Letter] = deque()

    def __bool__(self) -> bool:
        return bool(self._letters)

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def first(self) -> Letter | None:
        return self._letters[0] if self._letters else None

    @property
    def all(self) -> list[Letter]:
        return list(self._letters)

    def add(self, spoken: Spoken, replaced: int = 0) -> Letter:
        """Raises `Full` for what no line of the protocol holds."""
        if len(spoken.text.encode("utf-8", "replace")) > wire.MAX_INLINE:
            raise Full(
                "not sent: the text is over 1 MiB", hint="dshctl followup - < FILE", outcome="not-written"
            )
        letter = Letter(spoken.word, spoken.text, f"attach:{uuid4().hex}", replaced)
        self._letters.append(letter)
        return letter

    def settle(self, letter: Letter) -> None:
        """It is acknowledged, or refused."""
        self._letters.remove(letter)


def spoken_receipt(letter: Letter, receipt: Json) -> Json:
    """The receipt as its sentence needs it. What was sent a second time is a duplicate of itself."""
    asked: Json = {"wake": letter.verb != "inject"}
    if letter.verb == "interrupt":
        asked = {"verb": "interrupt", "keep": False}
    own = {"duplicate": False} if letter.tries > 1 else {}
    return {**receipt, **asked, **own}
