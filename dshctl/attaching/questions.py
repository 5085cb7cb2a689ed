"""Approvals, asked in place of the line.

A question takes the place of the line only while that is empty and nobody has just pressed a key: who types
``yes`` for something else, as it comes, answers nothing. While it stands there, what is typed is an answer,
or nothing; an empty line, or Ctrl-C, puts it aside, and it waits on.
"""

from __future__ import annotations

import time
from typing import Any, Final

from dshctl import approvals, times
from dshctl.approvals import CHOICES, SCOPES
from dshctl.attaching.editor import Editor
from dshd import wire
from dshd.errors import Invalid

Json = dict[str, Any]
QUIET_S: Final = 0.7  # since the last key


class Questions:
    """Those of one session and its subagents. ``in_place``: somebody sits here who may answer."""

    def __init__(self, session: str, in_place: bool) -> None:
        self._session = session
        self.in_place = in_place
        self.open: dict[str, Json] = {}
        self._aside: set[str] = set()
        self._pressed = float("-inf")
        self.asked: str | None = None  # that stands in place of the line
        self.editor = Editor()

    def know(self, waiting: list[Json]) -> list[str]:
        """All that wait now; the lines that tell of the new ones."""
        now = {str(one["id"]): one for one in waiting}
        for id in [id for id in self.open if id not in now]:
            self.gone(id)
        return [line for one in waiting for line in self.add(one)]

    def add(self, approval: Json) -> list[str]:
        id = str(approval["id"])
        if id in self.open or not approvals.concerns(approval, self._session):
            return []
        self.open[id] = approval
        return [] if self.in_place else approvals.lines(approval, times.now_ms())

    def gone(self, id: str) -> None:
        """It is answered, or not asked any more."""
        self.open.pop(id, None)
        self._aside.discard(id)
        if self.asked == id:
            self.asked = None

    def pressed(self) -> None:
        """A key was pressed."""
        self._pressed = time.monotonic()

    def due(self, line_is_empty: bool) -> tuple[list[str], float | None]:
        """Put the next question, if it is time: the lines that ask it; and in how many seconds it may be."""
        waiting = [id for id in self.open if id not in self._aside]
        if not self.in_place or self.asked or not waiting or not line_is_empty:
            return [], None
        left = self._pressed + QUIET_S - time.monotonic()
        if left > 0:
            return [], left
        self.asked = waiting[0]
        approval = self.open[self.asked]
        head = f"{self.asked}  {approvals.whose(approval)} wants to run"
        return [head, *approvals.what(approval), CHOICES], None

    def put_aside(self) -> list[str]:
        """Not answered; the lines that say how to."""
        assert self.asked is not None
        id, self.asked = self.asked, None
        self._aside.add(id)
        return [f"dshctl: not answered; it waits on. To answer it: /allow {id}      or: /deny {id} WHY"]

    def answer(self, typed: str) -> wire.ApprovalAnswerParams | None:
        """What a typed line answers to the one that is asked; None if it means nothing."""
        assert self.asked is not None
        word, _, rest = typed.strip().partition(" ")
        if word.lower() in ("n", "no"):
            return wire.ApprovalAnswerParams(id=self.asked, answer="deny", reason=rest.strip() or None)
        if word.lower() in SCOPES and not rest:
            scope: Any = SCOPES[word.lower()]
            return wire.ApprovalAnswerParams(id=self.asked, answer="allow", scope=scope)
        return None

    def named(self, word: str, text: str) -> wire.ApprovalAnswerParams:
        """``/allow a1 session``, ``/deny a1 not here``; the id may be left out where one waits. `Invalid`."""
        first, _, rest = text.partition(" ")
        if first not in self.open:
            first, rest = self._only(), text
        if word == "deny":
            return wire.ApprovalAnswerParams(id=first, answer="deny", reason=rest.strip() or None)
        scope: Any = rest.strip() or "once"
        if scope not in ("once", "session", "always"):
            raise Invalid(f'"{scope}" is not asked here', hint="/allow ID [session|always]")
        return wire.ApprovalAnswerParams(id=first, answer="allow", scope=scope)

    def _only(self) -> str:
        if len(self.open) != 1:
            which = f"say which: {', '.join(self.open)}" if self.open else "nothing waits for an answer here"
            raise Invalid(which)
        return next(iter(self.open))
