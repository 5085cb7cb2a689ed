"""Tools that start jobs without processes: what they run is an event that the test sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import trio

from dshd.errors import DshError
from dshd.spawn.client import Completed, Passage
from dshd.tools.jobs import Done, Spec
from dshd.tools.tool import ToolContext, ToolOutput, failure, text_output
from tests.session.rig import Gate


def ended(code: int = 0, total: int = 0) -> Completed:
    return Completed(
        returncode=code, signal=None, timed_out=False, head=b"", tail=b"", total=total, spill=None,
        spill_error=None, spilled=0, stderr=b"", duration_s=1.0, left=0, survivors=[],
    )  # fmt: skip


@attrs.define(eq=False)
class Command:
    """One that runs until `end` is set; ``stopped``: it was cancelled."""

    end: trio.Event = attrs.field(factory=trio.Event)
    runs: trio.Event = attrs.field(factory=trio.Event)
    stopped: trio.Event = attrs.field(factory=trio.Event)
    code: int = 0
    total: int = 0

    async def work(self, passage: Passage) -> Done:
        try:
            await trio.lowlevel.checkpoint()
            self.runs.set()
            passage.begun.set()
            await self.end.wait()
            return ended(self.code, self.total), ()
        except trio.Cancelled:
            self.stopped.set()
            raise

    async def after(self) -> list[Path]:
        await trio.lowlevel.checkpoint()
        return []

    def spec(self, ctx: ToolContext, name: str) -> Spec:
        return Spec(
            call=ctx.call, command=name, dir=Path("/"), file=Path("/spill/x.out"), work=self.work,
            after=self.after,
        )  # fmt: skip


@attrs.define(eq=False)
class Background(Gate):
    """Starts a job, as bash does with ``background``. ``commands``: by the call's argument."""

    name: str = "bg"
    commands: dict[str, Command] = attrs.field(factory=dict)

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        command = self.commands.setdefault(args["name"], Command())
        try:
            id = await ctx.jobs.start(command.spec(ctx, args["name"]))
        except DshError as error:  # as the real registry does
            return failure(error.message, error.code)
        return text_output(f"{id} runs")


@attrs.define(eq=False)
class Foreground(Background):
    """Runs in the call, and may leave it, as bash does."""

    name: str = "fg"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        command = self.commands.setdefault(args["name"], Command())
        self.began.set()
        try:
            await self.opened.wait()
        except trio.Cancelled:
            if ctx.leaving.open():
                ctx.leaving.spec = command.spec(ctx, args["name"])
            raise
        return text_output("ended in the call")
