"""What the tests of this room share: a context, a spawner that is a plain subprocess, tools to order."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import trio

from dshd.tools.files import Edit, Read, Write
from dshd.tools.registry import Registry
from dshd.tools.search import Glob, Grep
from dshd.tools.todo import Todo
from dshd.tools.tool import Call, ToolContext, ToolOutput, text_output


class LocalSpawner:
    """`Spawner.run`, but one process and no supervision."""

    async def run(
        self,
        argv: list[str],
        *,
        cwd: str,
        env: dict[str, str],
        stdin: bytes,
        timeout: float,  # noqa: ASYNC109 - the spawner's own word
        head: int,
        tail: int,
        label: str,
    ) -> Any:
        with trio.move_on_after(timeout) as scope:
            done = await trio.run_process(
                argv, cwd=cwd, env=env, stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
            )
            return SimpleNamespace(head=done.stdout + done.stderr, tail=b"", timed_out=False)
        return SimpleNamespace(head=b"", tail=b"", timed_out=scope.cancelled_caught)


def context(directory: Path, **changes: Any) -> ToolContext:
    base = ToolContext(
        session="s0000001",
        name="test",
        dir=directory,
        spill_dir=directory.parent / "state" / "sessions" / "s0000001" / "spill",
        spawner=LocalSpawner(),
        hidden=(directory.parent / "state",),
        protected=(directory.parent / "state", directory.parent / "config"),
        home=directory.parent / "home",
    )
    return attrs.evolve(base, **changes)


def files() -> Registry:
    return Registry([Read(), Write(), Edit(), Glob(), Grep(), Todo()])


def call(name: str, **args: Any) -> Call:
    return Call(f"c-{name}", name, json.dumps(args))


async def execute(ctx: ToolContext, name: str, **args: Any) -> ToolOutput:
    return await files().execute(call(name, **args), ctx)


@attrs.define
class Made:
    """A tool made for a test."""

    name: str
    body: Any = None
    read_only: bool = False
    schema: dict[str, Any] = attrs.field(factory=lambda: {"type": "object"})
    description: str = "a tool"

    def describe(self, args: dict[str, Any]) -> str:
        return f"{self.name}: {args}"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        if self.body is None:
            return text_output("ok")
        result: ToolOutput = await self.body(args, ctx)
        return result
