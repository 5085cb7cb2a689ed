"""Conversations that outgrow their model's window: for all tests of compaction."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from dshd.log.codec import Event
from dshd.model.adapter import PreparedCall
from dshd.model.errors import ModelError
from dshd.session.owner.session import Session
from dshd.session.registry import requests
from dshd.tools.tool import ToolContext, ToolOutput, text_output
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, Look, ScriptedModels, World, followup, say, settled

WINDOW = 4_000  # tokens
LONG = "all work and no play " * 120  # about 600 tokens
SUMMARY = say("## Task: what was asked")
FULL = ModelError("CONTEXT_WINDOW_EXCEEDED", "too long")


class Narrow(ScriptedModels):
    """A model with a small window, or with one that nobody knows."""

    window: int | None = WINDOW

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        return attrs.evolve(super().prepare_call(route, patience=patience), window=self.window)


@attrs.define(eq=False)
class Prints(Look):
    """A tool that prints so many bytes."""

    name: str = "prints"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        return text_output("y" * int(args["name"]))


def narrow(world: World | None = None) -> World:
    """A world whose model has a small window, and a tool that prints much."""
    made = world or World()
    made.route = Narrow(made)
    made.tools.add(Prints())
    return made


def of(world: World, session: Session, *types: str) -> list[Event]:
    return [e for e in world.events(session) if e.type in types]


def ends(world: World, session: Session) -> list[dict[str, Any]]:
    return [e.data for e in of(world, session, "compaction/end")]


def reasons(world: World, session: Session) -> list[str]:
    return [end["reason"] for end in ends(world, session)]


def check_requests(world: World, session: Session) -> None:
    found = requests.check(world.disk, world.store.log_path(session.id), world.route.rebuild)
    assert found.problem is None
    assert found.compared == world.types(session).count("request/sent")


async def rests(world: World, session: Session) -> None:
    """Until it rests; then all that must hold of its log does, and its requests can be made again."""
    with trio.fail_after(20):
        await session.wait_idle()
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)
    check_requests(world, session)


async def talk(world: World, session: Session, n: int = 4) -> None:
    """A conversation of ``n`` long turns."""
    for i in range(n):
        world.script = [say(f"answer {i}")]
        await settled(session, (await followup(session, f"part {i}: {LONG}"))["message"])


class Held:
    """An answer that waits until the test lets it go: ``began`` is set when it was asked for."""

    def __init__(self, item: Any) -> None:
        self.item, self.began, self.go = item, trio.Event(), trio.Event()

    async def __call__(self) -> Any:
        self.began.set()
        await self.go.wait()
        return self.item


async def asked(nursery: trio.Nursery, session: Session, *, settle: bool = True) -> list[Any]:
    """Ask for a compaction, and let it go as far as it will; the list will hold what is answered."""
    answers: list[Any] = []

    async def compact() -> None:
        answers.append(await session.compact(ME))

    nursery.start_soon(compact)
    if settle:
        await trio.testing.wait_all_tasks_blocked()
    return answers
