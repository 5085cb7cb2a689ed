"""Hooks whose programs are functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dshd.config import Hook
from dshd.hooks.answers import Ended, answer_of
from dshd.hooks.commands import Hooks
from dshd.hooks.payload import FOREIGN
from dshd.hooks.runner import Place, Run

Program = Callable[[Mapping[str, Any]], Any]


def says(**answer: Any) -> Ended:
    return Ended(exit=0, stdout=json.dumps(answer).encode())


def blocks(reason: str) -> Ended:
    return Ended(exit=2, stderr=reason.encode())


PASSES = Ended(exit=0)


class Scripted(Hooks):
    """``programs``: what each hook's name runs; it may wait. ``seen``: what they read."""

    def __init__(self, *hooks: Hook, **programs: Program) -> None:
        self.hooks, self.programs = list(hooks), programs
        self.seen: list[Mapping[str, Any]] = []
        super().__init__(
            None,  # type: ignore[arg-type]
            lambda: self.hooks,
            daemon=dict,
            keys=frozenset,
            log=lambda id: f"/state/sessions/{id}/log.jsonl",
        )

    async def run(self, hook: Hook, place: Place, found: Mapping[str, Any]) -> Run:
        found = json.loads(json.dumps(found))
        self.seen.append(found)
        ended = self.programs[hook.name or ""](found)
        if isinstance(ended, Awaitable):
            ended = await ended
        return Run(answer_of(ended, FOREIGN[hook.event]), ended.exit, 3)

    def asked(self, event: str) -> list[Mapping[str, Any]]:
        return [found for found in self.seen if found["event"] == event]


def hook(event: str, name: str = "check", **more: Any) -> Hook:
    return Hook(event=event, command=[name], name=name, **more)
