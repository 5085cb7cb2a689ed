"""Who acts in a history besides the clients: a scripted model, tools without threads, a plugin.

What they do next stands in the plan; `Life` counts and notes it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import orjson
import trio

from dshd.config import Hook
from dshd.driver.port import Notes
from dshd.hooks.answers import Ended, answer_of
from dshd.hooks.commands import Hooks
from dshd.hooks.runner import Place, Run
from dshd.model.adapter import PreparedCall
from dshd.model.chunks import BlockEnd, BlockStart, Chunk, Finish, TextDelta, ToolCallDelta, Usage
from dshd.model.errors import ModelError
from dshd.model.request import ModelRequest
from dshd.model.retry import RetryPolicy
from dshd.model.routes import Choice
from dshd.plugins import Defer, PreStep, Reject
from dshd.tools.grants import Grant
from dshd.tools.registry import Question
from dshd.tools.registry import Registry as Tools
from dshd.tools.tool import Call, ToolContext, ToolOutput, failure, text_output

if TYPE_CHECKING:
    from tests.sim.world import Life


class Simulated(Exception):
    """What a plan made the world raise; every other exception is a find."""


# --- the model -------------------------------------------------------------------------------------


class Model:
    name = "scripted"
    encoder = "scripted/1"

    def __init__(self, life: Life) -> None:
        self._life = life

    @property
    def window(self) -> int:
        return self._life.plan.window(self._life.number) or 100_000

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        return encode(request)

    async def stream(self, call: PreparedCall, body: bytes, emit: Any) -> None:
        life = self._life
        life.note_asked(body)
        await trio.lowlevel.checkpoint()
        await self._play(life.next_summary() if ASKS_A_SUMMARY in body else life.next_answer(), emit)

    async def _play(self, answer: Any, emit: Any) -> None:
        kind = answer[0]
        if kind == "slow":
            await emit(BlockStart(0, "text"))
            await emit(TextDelta(0, "slow"))
            await trio.sleep(answer[1])
            await self._play(answer[2], emit)
        elif kind == "error":
            if answer[2]:
                await emit(BlockStart(0, "text"))
                await emit(TextDelta(0, "half"))
            raise ModelError(answer[1], "simulated", retry_after=answer[3])
        elif kind == "raise":
            raise Simulated("simulated")
        else:
            for chunk in say(answer) if kind == "say" else call(answer if answer[1:] else CALL):
                await emit(chunk)


ASKS_A_SUMMARY = b'"text":"Sum up."'


def encode(request: ModelRequest) -> bytes:
    return orjson.dumps([request.system, list(request.messages), [t.name for t in request.tools]])


def say(answer: Any) -> list[Chunk]:
    text = answer[1] if isinstance(answer[1], str) else "s" * answer[1]
    half = len(text) // 2
    return [
        BlockStart(0, "text"),
        TextDelta(0, text[:half]),
        TextDelta(0, text[half:]),
        BlockEnd(0),
        Usage({"input": 10, "output": 2}),
        Finish(answer[2]),
    ]


CALL = ("call", (("work", 0, "instead"),), False)


def call(answer: Any) -> list[Chunk]:
    chunks: list[Chunk] = []
    if answer[2]:
        chunks = [BlockStart(0, "text"), TextDelta(0, "let me see")]
    for i, (name, seconds, what) in enumerate(answer[1], 1):
        raw = json.dumps({"s": seconds, "what": what})
        chunks += [BlockStart(i, "tool-call", id=f"p{i}", name=name), ToolCallDelta(i, raw)]
    return [*chunks, Usage({"input": 10, "output": 5}), Finish("tool-calls")]


class Models:
    def __init__(self, life: Life) -> None:
        self._adapter = Model(life)

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        policy, window = RetryPolicy(quick=2, first=0.1), self._adapter.window
        call = PreparedCall(route=route, adapter=self._adapter, model="m", retry=policy, window=window)
        return call if patience is None else attrs.evolve(call, patience=patience)

    async def choose(self, explicit: str | None, *, client_is_terminal: bool) -> Choice:
        return Choice("scripted", "a plan")

    def adapter_name(self, ref: str) -> str:
        return "scripted"


# --- tools and a plugin ----------------------------------------------------------------------------


@attrs.frozen
class Tool:
    name: str
    read_only: bool = False
    description: str = "simulated"
    schema: dict[str, Any] = attrs.field(factory=lambda: {"type": "object"})

    def describe(self, args: dict[str, Any]) -> str:
        return f"{self.name} {args.get('what', '')}"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.sleep(args["s"]) if args["s"] else await trio.lowlevel.checkpoint()
        return OUTPUTS.get(self.name, _done)(args)


def _done(args: dict[str, Any]) -> ToolOutput:
    return text_output(f"done {args['what']}")


def _fail(args: dict[str, Any]) -> ToolOutput:
    raise Simulated("simulated")


OUTPUTS: dict[str, Callable[[dict[str, Any]], ToolOutput]] = {
    "fail": _fail,
    "tell": lambda args: ToolOutput([{"type": "text", "text": "told"}], inject=(f"note {args['what']}",)),
    "todo": lambda args: ToolOutput(
        [{"type": "text", "text": "noted"}],
        events=(("todo/write", {"items": [{"text": args["what"], "status": "pending"}]}),),
    ),
    "nothing": lambda args: ToolOutput([]),
}
TOOLS = tuple(Tool(name, name == "look") for name in ("work", "look", "fail", "tell", "todo", "nothing"))


def at_length(output: ToolOutput, call: Call) -> ToolOutput:
    """What fills a small window."""
    more = f" {call.id}" * (150 if call.name == "look" else 30)
    return attrs.evolve(output, content=[{**b, "text": b["text"] + more} for b in output.content])


def grant_of(call: Call) -> Grant:
    """For all calls of this tool."""
    return Grant(tool=call.name, arguments="any")


class SimTools(Tools):
    """Bodies run in place, without threads; what begins is noted."""

    life: Life

    def _must_be_allowed(self, call: Call) -> bool:
        return self.life.plan.asks is not None and zlib.crc32(call.arguments.encode()) % 3 == 0

    async def asks(self, call: Call, ctx: ToolContext) -> Question | None:
        await trio.lowlevel.checkpoint()
        grant = grant_of(call)
        if not self._must_be_allowed(call) or grant in ctx.grants:
            return None
        return Question(grant, call.name, "simulated")

    async def execute(self, call: Call, ctx: ToolContext) -> ToolOutput:
        tool = self.get(call.name)
        assert tool is not None
        here = (ctx.session, call.id)
        if self._must_be_allowed(call) and ctx.ask == "wait" and grant_of(call) not in ctx.grants:
            self.life.find(f"{here} runs, and nobody has allowed it")
        self.life.note_began(here)
        try:
            output = await tool.run(json.loads(call.arguments), ctx)
            return output if self.life.plan.windows is None else at_length(output, call)
        except Simulated as error:
            return failure(f"{call.name}: {error}", "TOOL_FAILED")
        finally:
            self.life.running.discard(here)


class Plugin:
    name = "judge"

    def __init__(self, life: Life) -> None:
        self._life = life

    async def pre_step(self, proposal: PreStep) -> PreStep | Reject | Defer:
        kind, seconds = self._life.next_verdict()
        await trio.sleep(seconds) if kind == "hang" else await trio.lowlevel.checkpoint()
        messages = proposal.messages
        if kind == "raise":
            raise Simulated("simulated")
        if kind == "reject":
            return Reject("no")
        if kind == "reject one" and messages:
            return Reject("not this", (messages[-1]["id"],))
        if kind == "defer":
            return Defer("later", seconds)
        if kind == "add":
            extra = {"role": "user", "content": [{"type": "text", "text": "from the plugin"}], "created": 0,
                     "source": {"kind": "plugin"}, "wake": False, "verb": "inject"}  # fmt: skip
            return attrs.evolve(proposal, messages=(*messages, extra))
        if kind == "drop" and messages:
            return attrs.evolve(proposal, messages=messages[1:])
        return proposal


class Ends(Hooks):
    """One hook, that is told of each turn's end."""

    def __init__(self, life: Life) -> None:
        hook = Hook(event="turn_end", command=["tell"], name="tell")
        super().__init__(None, lambda: [hook], daemon=dict, keys=frozenset, log=lambda id: id)  # type: ignore[arg-type]
        self._life = life

    async def run(self, hook: Hook, place: Place, found: Any) -> Run:
        session, turn = found["session"], found["turn"]
        self._life.note_told_of_end(session, turn)
        seconds, exit = self._life.plan.ends[turn % len(self._life.plan.ends)]
        await trio.sleep(seconds) if seconds else await trio.lowlevel.checkpoint()
        return Run(answer_of(Ended(exit=exit), hook.event), exit, 3)


class Outside:
    async def instructions(self, directory: Path) -> list[tuple[str, str]]:
        await trio.lowlevel.checkpoint()
        return []

    async def notes(self, directory: Path) -> Notes:
        await trio.lowlevel.checkpoint()
        return Notes()

    async def git(self, directory: Path) -> None:
        await trio.lowlevel.checkpoint()


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
