"""Who has a word in a turn: the plugins, in the config's order, then the hooks, in theirs.

Each chain asks those that are about its event, as they are when it happens: a reload of the config is heard
at the next one. What they raise ends the turn (`PLUGIN`); hooks raise nothing.

Right before a tool runs the first refusal holds, and the call is not made, whatever a person has allowed,
or a rule would. After one, what gates say is for the model, behind the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from dshd.driver.run import Run
from dshd.errors import one_line
from dshd.hooks.causes import about
from dshd.hooks.gates import Gate, Scene
from dshd.hooks.runner import name_of
from dshd.model.errors import ModelError
from dshd.plugins import PostTool, PreTool, Reject
from dshd.tools import arguments
from dshd.tools.threads import reading
from dshd.tools.tool import Call, ToolContext, ToolOutput, failure

Said = tuple[Mapping[str, Any], str]  # whose it is, as a message's source, and the text

BEFORE_A_STEP: Final = ("pre_step", "request")


def of(run: Run, event: str, *, tool: str | None = None, step: int | None = None) -> list[Any]:
    """Those that are to be asked. ``step``: the one it is about, if that is not the one that runs."""
    found = [plugin for plugin in run.services.plugins if callable(getattr(plugin, event, None))]
    here = partial(scene, run, run.step if step is None else step)
    return [*found, *run.services.hooks.gates(event, here, tool)]


def stand_before_a_step(run: Run) -> bool:
    """Whether a step has to wait for anybody."""
    return any(of(run, event) for event in BEFORE_A_STEP)


def origin(gate: Any) -> dict[str, Any]:
    """The source of what it says."""
    if isinstance(gate, Gate):
        return {"kind": "hook", "via": name_of(gate.hook)}
    return {"kind": "plugin", "via": gate.name}


def scene(run: Run, step: int) -> Scene:
    services, state = run.services, run.state
    here = attrs.evolve(about(state, services.hooks.log(state.id)), turn=run.turn, step=step or None)
    return Scene(
        run=services.hooks.run,
        place=services.hooks.place(here.dir, services.environment(state)),
        about=here,
        record=lambda data: run.owner.post(lambda s: s.emit("hook/ran", data)),
        halt=run.halt,
        shows=run.says,
    )


async def started(run: Run) -> list[Said]:
    """What those have to say that hear of a session's beginning; nothing if it has begun already."""
    if run.state.begun:
        return []
    source = "fork" if (run.state.header or {}).get("parent") else "startup"
    said: list[Said] = []
    for gate in of(run, "session_start", step=run.step + 1):
        said += [
            (origin(gate), text) for text in _texts(gate, await asked(gate, gate.session_start(source)))
        ]
    return said


async def execute(run: Run, call: Call, context: ToolContext) -> ToolOutput:
    """One call, with those asked that stand before and after it. What a plugin raises is in ``run.broken``,
    for the end of the batch: the call has its output all the same, or was not made.

    Cancellation: of whoever is asked, or of the tool.
    """
    before, after = of(run, "pre_tool", tool=call.name), of(run, "post_tool", tool=call.name)
    if not before and not after:
        return await _made(run, call, context)
    args = await _arguments(run, call)
    if isinstance(args, ToolOutput):
        return args
    try:
        refused = await _before(run, before, call, args)
    except ModelError as error:
        run.broken = error
        return failure(f"{call.name} was not run: {error}", "PLUGIN")
    if refused is not None:
        return failure(refused, "BLOCKED")
    output = await _made(run, call, context)
    try:
        await _after(run, after, call, args, output)
    except ModelError as error:
        run.broken = error
    return output


async def _made(run: Run, call: Call, context: ToolContext) -> ToolOutput:
    output: ToolOutput = await run.tools.execute(call, context)
    return output


async def _arguments(run: Run, call: Call) -> Any:
    """Checked, or the output that says what is wrong with them: of those nobody is asked."""
    if not arguments.prepared():
        await reading(arguments.prepare)
    return run.tools.parse(call.name, call.arguments)


async def _before(run: Run, gates: Sequence[Any], call: Call, args: Mapping[str, Any]) -> str | None:
    """The sentence for a call that one of them refuses."""
    for gate in gates:
        about_call = PreTool(run.state.id, run.turn, run.step, call.id, call.name, dict(args))
        answer = await asked(gate, gate.pre_tool(about_call))
        if isinstance(answer, Reject):
            return f"{call.name} was not run: {gate.name} does not allow it: {answer.reason}"
        if not isinstance(answer, PreTool):
            raise ModelError("PLUGIN", f"plugin {gate.name} answered {type(answer).__name__}")
        _said(run, call, gate, answer.context)
    return None


async def _after(
    run: Run, gates: Sequence[Any], call: Call, args: Mapping[str, Any], output: ToolOutput
) -> None:
    for gate in gates:
        made = PostTool(
            run.state.id, run.turn, run.step, call.id, call.name, dict(args), output.text, output.is_error
        )
        _said(run, call, gate, await asked(gate, gate.post_tool(made)))


def _said(run: Run, call: Call, gate: Any, texts: Any) -> None:
    found = [(origin(gate), text) for text in _texts(gate, texts)]
    run.said.setdefault(call.id, []).extend(found)


async def asked(gate: Any, question: Any) -> Any:
    """Its answer. Raises `ModelError` ``PLUGIN`` if it raises."""
    try:
        return await question
    except ModelError:
        raise
    except Exception as error:
        raise ModelError("PLUGIN", f"plugin {gate.name} failed: {one_line(error)}") from error


def _texts(gate: Any, given: Any) -> list[str]:
    texts = list(given or ()) if not isinstance(given, str) else [given]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ModelError("PLUGIN", f"plugin {gate.name} gave something else than texts")
    return texts
