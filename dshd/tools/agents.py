"""The tool `agent`: have part of the work done by another session; this one's owner looks after it."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from dshd.tools.files import schema
from dshd.tools.tool import Args, ToolContext, ToolFailure, ToolOutput, text_output


class Kin(Protocol):
    """The subagents of a session, as the tool sees them. All raise `DshError`."""

    async def start(self, prompt: str, context: str, call: str) -> str:
        """Its id. Durability: it is on disk, and works."""
        ...

    async def steer(self, id: str, text: str) -> None: ...

    async def wait(self, id: str | None) -> list[tuple[str, str, bool]]:
        """(id, what to tell, is this the first time) of this one, or of all that run, when they have ended.

        Cancellation: they go on, and are told of by a message.
        """
        ...

    async def stop(self, id: str) -> str: ...


class Agent:
    """Start, steer, wait for and stop subagents."""

    name: ClassVar[str] = "agent"
    description: ClassVar[str] = (
        "Have a part of the work done by a subagent: another session in this directory, with the same model,"
        " tools and permissions, that sees nothing but the prompt (context fresh) or the conversation up to"
        " this turn as well (context fork). start returns at once with its id, and several work side by"
        " side; you are told of each end with its answer. wait waits for one, or, without agent, for all;"
        " steer says something more to one that works; stop ends it. What they spend counts to your budget."
    )
    schema: ClassVar[dict[str, Any]] = schema(
        ["action"],
        action={"type": "string", "enum": ["start", "steer", "wait", "stop"]},
        prompt={"type": "string", "minLength": 1, "description": "for start and steer: what it is to do"},
        agent={"type": "string", "description": "which one: the id that start gave"},
        context={"type": "string", "enum": ["fresh", "fork"], "description": "for start; fresh by default"},
    )
    read_only: ClassVar[bool] = False

    def describe(self, args: Args) -> str:
        about = args.get("agent") or " ".join(str(args.get("prompt") or "").split())[:80]
        return f"agent: {args.get('action', '')} {about}".rstrip()

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        kin: Kin | None = ctx.agents
        if kin is None:
            raise ToolFailure("there are no subagents here; do it yourself.")
        return await getattr(self, f"_{args['action']}")(args, ctx, kin)  # type: ignore[no-any-return]

    async def _start(self, args: Args, ctx: ToolContext, kin: Kin) -> ToolOutput:
        id = await kin.start(_needed(args, "prompt"), args.get("context") or "fresh", ctx.call)
        return text_output(f"[subagent {id} works on it; you are told when it ends]", summary=id)

    async def _steer(self, args: Args, ctx: ToolContext, kin: Kin) -> ToolOutput:
        id = _needed(args, "agent")
        await kin.steer(id, _needed(args, "prompt"))
        return text_output(f"[said to {id}, for its next step]", summary=id)

    async def _stop(self, args: Args, ctx: ToolContext, kin: Kin) -> ToolOutput:
        return text_output(await kin.stop(_needed(args, "agent")))

    async def _wait(self, args: Args, ctx: ToolContext, kin: Kin) -> ToolOutput:
        ctx.rest(self.describe(args))
        found = await kin.wait(args.get("agent"))
        await ctx.back()
        events = tuple(("subagent/told", {"id": id, "by": "call"}) for id, _, untold in found if untold)
        text = "\n\n".join(said for _, said, _ in found) or "[no subagent works]"
        return text_output(text, events=events, summary=f"{len(found)} ended")


def _needed(args: Args, name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolFailure(f"{args['action']} needs {name}", code="INVALID_ARGS")
    return value
