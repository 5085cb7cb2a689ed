"""One session as the editor knows it: where its log was read to, and which prompts are open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from dshctl.acp.updates import Updates
from dshctl.follow import Place
from dshd import wire

Json = dict[str, Any]


@dataclass
class Prompt:
    """``request`` is the editor's; ``message`` its id once it is acknowledged, ``result`` how it ended.
    ``cancelled``: the editor wants it no more."""

    request: Any
    content: list[Json]
    key: str = field(default_factory=lambda: f"acp:{uuid4().hex}")
    message: str | None = None
    result: Json | None = None
    cancelled: bool = False

    def send(self, session: str) -> wire.SendParams:
        return wire.SendParams(session=session, verb="say", content=self.content, key=self.key)

    def wait(self, session: str) -> wire.WaitParams:
        assert self.message is not None
        return wire.WaitParams(session=session, messages=(self.message,), stay=True)


class Thread:
    """``session`` is a view of it."""

    def __init__(self, session: Json) -> None:
        self.id = str(session["id"])
        self.mode = str(session.get("mode") or "workspace")
        self.updates = Updates(str(session.get("dir") or "/"))
        self.place = Place()
        self.prompts: list[Prompt] = []
        self.asked: set[str] = set()  # approvals that the editor was asked

    def ended(self) -> list[Prompt]:
        """Prompts whose turn has ended and was told to its end; they are open no more."""
        done = [one for one in self.prompts if one.result is not None and self._told(one.result)]
        self.prompts = [one for one in self.prompts if one not in done]
        return done

    def _told(self, result: Json) -> bool:
        turn = result.get("turn")
        return turn is None or turn <= self.updates.ended
