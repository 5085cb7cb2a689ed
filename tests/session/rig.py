"""A whole daemon's core in one process: real registry, sessions and drivers on a memory disk.

The model is a script, the tools are gates that a test opens. `World.crash` is a power cut: it
gives a new world on what the disk kept.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd import wire
from dshd.config import Config
from dshd.driver.port import Notes, Services
from dshd.hooks.attention import Attention
from dshd.hooks.commands import NoHooks
from dshd.log.codec import Event, decode
from dshd.log.disk import Disk
from dshd.log.memory import MemoryDisk
from dshd.log.store import Store
from dshd.log.threads import Threads
from dshd.model.adapter import PreparedCall
from dshd.model.chunks import BlockStart, Chunk, Finish, Reason, TextDelta, ToolCallDelta, Usage
from dshd.model.request import ModelRequest
from dshd.model.retry import RetryPolicy
from dshd.model.routes import Choice
from dshd.session.fold.state import NONE
from dshd.session.fold.who import Peer
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from dshd.session.registry.host import Host
from dshd.session.registry.registry import Registry
from dshd.tools import arguments
from dshd.tools.policy import decide
from dshd.tools.registry import Question, subject_of
from dshd.tools.registry import Registry as Tools
from dshd.tools.tool import Call, Rule, ToolContext, ToolOutput, failure, text_output

ME = Peer(uid=1000, pid=4711, tty="pts/3", client="dshctl")
STATE = Path("/state")


def say(text: str, finish: Reason = "stop") -> list[Chunk]:
    return [BlockStart(0, "text"), TextDelta(0, text), Usage({"input": 10, "output": 2}), Finish(finish)]


def call(*names: str) -> list[Chunk]:
    """An answer that asks for these tools; ``name:argument`` gives one."""
    chunks: list[Chunk] = []
    for i, spec in enumerate(names):
        name, _, argument = spec.partition(":")
        chunks += [
            BlockStart(i, "tool-call", id=f"p{i}", name=name),
            ToolCallDelta(i, '{"name": "' + argument + '"}'),
        ]
    return [*chunks, Usage({"input": 10, "output": 2}), Finish("tool-calls")]


class ScriptedAdapter:
    """Plays ``world.script``: each item is a list of chunks, an exception, or an async function that
    gives one. In a list, an exception is raised and an async function awaited where it stands."""

    name = "scripted"
    encoder = "scripted/1"

    def __init__(self, world: World) -> None:
        self._world = world

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        return repr((request.system, request.messages, [t.name for t in request.tools])).encode()

    async def stream(self, call: PreparedCall, body: bytes, emit: Any) -> None:
        world = self._world
        world.requests.append(body)
        await trio.lowlevel.checkpoint()
        item = world.script.pop(0) if world.script else say("done")
        if callable(item):
            item = await item()
        if isinstance(item, Exception):
            raise item
        for chunk in item:
            if isinstance(chunk, Exception):
                raise chunk
            await (chunk() if callable(chunk) else emit(chunk))


class ScriptedModels:
    def __init__(self, world: World) -> None:
        self.adapter = ScriptedAdapter(world)

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        retry = RetryPolicy(quick=2, first=0.001)
        call = PreparedCall(route=route, adapter=self.adapter, model="m", retry=retry, window=100_000)
        return call if patience is None else attrs.evolve(call, patience=patience)

    async def choose(self, explicit: str | None, *, client_is_terminal: bool) -> Choice:
        return Choice("scripted", "a test")

    def adapter_name(self, ref: str) -> str:
        return "scripted"

    def meant(self, ref: str, model: str) -> str:
        return ref

    def rebuild(self, context: Mapping[str, Any], encoder: str, request: ModelRequest) -> bytes | None:
        call = self.prepare_call(context["route"])
        return self.adapter.encode(call, request) if encoder == self.adapter.encoder else None


@attrs.define(eq=False)
class Gate:
    """A tool that waits until the test lets it go. ``began`` is set when it runs."""

    name: str = "gate"
    description: str = "waits"
    read_only: bool = False
    schema: dict[str, Any] = attrs.field(
        factory=lambda: {"type": "object", "properties": {"name": {"type": "string"}}}
    )
    began: trio.Event = attrs.field(factory=trio.Event)
    opened: trio.Event = attrs.field(factory=trio.Event)
    runs: list[str] = attrs.field(factory=list)

    def describe(self, args: dict[str, Any]) -> str:
        return f"{self.name}: {args.get('name', '')}"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        self.runs.append(str(args.get("name", "")))
        self.began.set()
        await self.opened.wait()
        return text_output(f"{self.name} is open")


@attrs.define(eq=False)
class Quick(Gate):
    name: str = "quick"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        self.runs.append(str(args.get("name", "")))
        await trio.lowlevel.checkpoint()
        return text_output(f"quick {args.get('name', '')}")


@attrs.define(eq=False)
class Look(Quick):
    name: str = "look"
    read_only: bool = True


class InlineTools(Tools):
    """Runs bodies without threads, so that a mock clock never jumps past them."""

    async def asks(self, call: Call, ctx: ToolContext) -> Question | None:
        if ctx.rules:
            arguments.prepare()
        return await super().asks(call, ctx)

    async def execute(self, call: Call, ctx: ToolContext) -> ToolOutput:
        tool = self.get(call.name)
        assert tool is not None
        if ctx.rules and not isinstance(args := self.parse(call.name, call.arguments), ToolOutput):
            verdict = decide(subject_of(call.name, args, ctx), ctx)
            if verdict.action != "allow":
                return failure(verdict.sentence, "DENIED")
        return await tool.run(json.loads(call.arguments), ctx)


class Nowhere:
    async def instructions(self, directory: Path) -> list[tuple[str, str]]:
        await trio.lowlevel.checkpoint()
        return []

    async def notes(self, directory: Path) -> Notes:
        await trio.lowlevel.checkpoint()
        return Notes()

    async def git(self, directory: Path) -> None:
        await trio.lowlevel.checkpoint()


class World:
    """``script`` is consumed by the model; ``told`` is every line that followers got, by session."""

    def __init__(
        self, disk: Disk | None = None, *, config: Any = None, plugins: tuple[Any, ...] = (),
        upkeep: Upkeep | None = None, hooks: Any = None,
    ) -> None:  # fmt: skip
        self.upkeep = upkeep
        self.hooks: Any = hooks or NoHooks()
        self.disk = disk if disk is not None else MemoryDisk()
        self.config = config or Config()
        self.script: list[Any] = []
        self.requests: list[bytes] = []
        self.told: dict[str, list[bytes]] = {}
        self.resets: list[tuple[str, int]] = []
        self.models = ScriptedModels(self)
        self.route: Any = None  # other models than the scripted ones
        self.clock_offset = 0
        self.gate, self.quick, self.look = Gate(), Quick(), Look()
        self.tools = InlineTools([self.gate, self.quick, self.look])
        self.plugins = plugins
        self.attention = Attention()
        self.rules: list[Rule] = []
        self.store = Store(self.disk, STATE)
        self.registry: Registry

    def now(self) -> int:
        return 1_796_040_000_000 + self.clock_offset + round(trio.current_time() * 1000) % 10**9

    def services(self) -> Services:
        return Services(
            models=self.route or self.models,
            tools=self.tools,
            spawner=None,
            plugins=self.plugins,
            now=self.now,
            config=lambda: self.config,
            hidden=tuple,
            protected=(),
            readable=(STATE / "sessions",),
            reserve=self.give_reserve,
            rng=random.Random(1),
            home=Path("/home/me"),
            outside=Nowhere(),
            hooks=self.hooks,
            attention=self.attention,
            tool_rules=self.rules,
        )

    def give_reserve(self) -> bool:
        held = self.store.reserve.held
        self.store.reserve.release()
        return held

    def on_lines(self, id: str, first: int, lines: list[bytes]) -> None:
        self.told.setdefault(id, []).extend(lines)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[World]:
        """The daemon's life; left by a hard stop (nothing is closed, as after ``kill -9``)."""
        self.store.prepare()
        async with trio.open_nursery() as nursery:
            self.registry = Registry(
                self.store,
                self.services(),
                Host(
                    start=nursery.start_soon, threads=Threads(4), on_lines=self.on_lines,
                    on_reset=lambda id, to: self.resets.append((id, to)),
                    boot="boot", version="test", upkeep=self.upkeep,
                ),
            )  # fmt: skip
            await self.registry.start()
            yield self
            nursery.cancel_scope.cancel()
        assert not NONE, "somebody wrote into what all states share"

    async def session(self, **params: Any) -> Session:
        p = wire.CreateParams(dir="/", mode=params.pop("mode", "full"), **params)
        session, _ = await self.registry.create(p, ME)
        return session

    async def again(self, session: Session) -> Session:
        """The same session in this world."""
        return await self.registry.get(session.id)

    def events(self, session: Session | str) -> list[Event]:
        """The log on disk."""
        id = session if isinstance(session, str) else session.id
        data = self.disk.read_bytes(self.store.log_path(id))
        return [decode(line) for line in data.splitlines(keepends=True)]

    def types(self, session: Session | str) -> list[str]:
        return [e.type for e in self.events(session)]

    def crash(self, survivor: Any = None) -> World:
        assert isinstance(self.disk, MemoryDisk)
        world = World(
            self.disk.crash(survivor), config=self.config, plugins=self.plugins, upkeep=self.upkeep,
            hooks=self.hooks,
        )  # fmt: skip
        world.clock_offset = self.clock_offset + 1000
        world.rules = self.rules
        return world


def memory(world: World) -> MemoryDisk:
    """Its disk, to be made to fail."""
    assert isinstance(world.disk, MemoryDisk)
    return world.disk


def of_type(world: World, session: Session, type: str) -> list[dict[str, Any]]:
    """What the events of a type say, in the log on disk."""
    return [e.data for e in world.events(session) if e.type == type]


async def followup(session: Session, text: str, **more: Any) -> dict[str, Any]:
    return await session.send(wire.SendParams(verb="followup", text=text, **more), ME)


async def steer(session: Session, text: str, **more: Any) -> dict[str, Any]:
    return await session.send(wire.SendParams(verb="steer", text=text, **more), ME)


async def inject(session: Session, text: str, **more: Any) -> dict[str, Any]:
    return await session.send(wire.SendParams(verb="inject", text=text, **more), ME)


async def until(session: Session, holds: Callable[[], Any]) -> None:
    """Wait until something holds; it is looked at after every change of the session."""
    with trio.fail_after(10):
        while not holds():
            assert session.ledger is not None
            await session.ledger.changed.wait()


async def settled(session: Session, id: str) -> dict[str, Any]:
    with trio.fail_after(10):
        return await session.wait_message(id)
