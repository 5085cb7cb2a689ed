"""One step: the model's answer, then the tool calls it asks for.

- The answer is asked for in `asking`, again and again if need be.
- The answer and the calls of its first group are one batch: before a tool runs, its `tool/call`
  is on disk.
- Call ids are ours (``t<turn>_<step>_<n>``): providers repeat theirs.
- Results are logged in the model's order, each as soon as it can be; the last of a group goes with what
  follows it, the next group or the step's end. What a tool adds besides goes to ``next-step`` after
  the whole batch.
- A call that a person must allow waits where it stands (`approvals`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd.driver.asking import cutting, hurry
from dshd.driver.opening import claim, waiting
from dshd.driver.plugged import gates
from dshd.driver.requests.request import Prepared
from dshd.driver.run import Run
from dshd.driver.waiting import approvals, waits
from dshd.model.blocks import Assembled
from dshd.model.errors import ModelError
from dshd.session.deciding import approving
from dshd.session.deciding.approving import Asked
from dshd.session.deciding.budget import Stop
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.approvals import Approval
from dshd.session.fold.events import Message, splice, text_block
from dshd.session.fold.who import SYSTEM
from dshd.tools import scheduler
from dshd.tools.grants import Grant
from dshd.tools.jobs import Leaving
from dshd.tools.tool import Call, ToolContext, ToolOutput

log = logging.getLogger(__name__)

HOOK = {**SYSTEM, "kind": "hook"}  # of what a tool adds besides its result


# --- the answer ----------------------------------------------------------------------------------


async def keep(run: Run, answer: Assembled) -> list[list[Call]]:
    """Write the answer down, with the first group's `tool/call`s; the groups of calls to run.

    Durability: both are on disk when it returns.
    """
    content, calls = _own_ids(run, answer.content)
    asked = await approvals.questions(run, calls, content, lambda: context(run))
    groups = _groups(run, calls, frozenset(one.call for one in asked))
    run.capped = run.capped or answer.finish == "max-tokens"
    data: dict[str, Any] = {
        "turn": run.turn,
        "step": run.step,
        "content": content,
        "model": run.call.route if run.call is not None else None,
        "usage": run.priced(answer.usage),
        "finish": "max-tokens" if answer.finish == "max-tokens" else None,
    }
    first = groups[0] if groups else ()
    if content:
        await run.owner.record(lambda s: _emit_answer(s, data, asked, run.work.worked, first))
        run.assembler = None
    run.give_up()
    if answer.finish == "content-filter":
        raise ModelError("CONTENT_FILTERED", "the provider's content filter stopped the answer")
    return groups


def _own_ids(run: Run, content: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Call]]:
    blocks: list[dict[str, Any]] = []
    calls: list[Call] = []
    for block in content:
        if block["type"] == "tool-call":
            block = {**block, "id": f"t{run.turn}_{run.step}_{len(calls) + 1}"}
            calls.append(Call(block["id"], block["name"], block["arguments"]))
        blocks.append(block)
    return blocks, calls


def _groups(run: Run, calls: Sequence[Call], asked: Collection[str]) -> list[list[Call]]:
    """Those that run together; a call that is asked about stands alone."""
    return scheduler.groups(calls, lambda call: call.id not in asked and run.tools.read_only(call))


def left(run: Run) -> list[list[Call]]:
    """The calls of the open step that have no result yet, none of which has begun."""
    turn = run.state.turn
    calls = [Call(c.id, c.name, c.arguments) for c in turn.calls.values()] if turn is not None else []
    return _groups(run, calls, frozenset(call.id for call in calls if approvals.of(run, call) is not None))


def _emit_answer(
    s: Scratch, data: dict[str, Any], asked: Sequence[Asked], worked: int, first: Sequence[Call]
) -> None:
    s.emit("assistant/message", {k: v for k, v in data.items() if v is not None})
    if s.state.turn is None or s.state.turn.abort is not None:
        return
    approving.ask(s, data["turn"], data["step"], asked, worked)
    if not any(one.call == call.id for one in asked for call in first):
        _emit_calls(s, data["turn"], data["step"], first)


def _emit_calls(s: Scratch, turn: int, step: int, group: Sequence[Call]) -> None:
    for call in group:
        data = {"turn": turn, "step": step, "call": call.id, "name": call.name, "arguments": call.arguments}
        s.emit("tool/call", data)


# --- tools ---------------------------------------------------------------------------------------


async def run_tools(run: Run, groups: Sequence[Sequence[Call]]) -> None:
    """Run the groups one after the other. A call that failed is a result, not an error.

    Cancellation: bodies are cancelled; ``run.finished`` holds what had ended.
    """
    for group in groups:
        cut = hurry.scope(run)
        with cut:
            if not await _run_group(run, group, cut):
                return
        if cut.cancel_called:
            return await cutting.cut_short(run, [call for group in groups for call in group])


async def _run_group(run: Run, group: Sequence[Call], cut: trio.CancelScope) -> bool:
    """False: none runs any more."""
    await trio.lowlevel.checkpoint_if_cancelled()
    started = [call.id for call in group]
    asked = await _may_run(run, group[0])
    if asked is not None and asked.answer != "allow":
        run.finished[group[0].id] = approvals.refusal(asked)
        return True
    if not _all_started(run, started):
        await run.owner.record(lambda s: _start_group(s, run, group))
    await trio.lowlevel.checkpoint_if_cancelled()
    if not _all_started(run, started):
        return False
    run.says(_doing(run, group))
    around = context(run, approvals.grant(asked))

    async def execute(call: Call) -> ToolOutput:
        began = time.monotonic()
        keep = partial(run.finished.__setitem__, call.id)
        leaving = Leaving(lambda: cut.cancel_called and not run.work.scope.cancel_called)
        run.leaving[call.id] = leaving
        here = attrs.evolve(around, keep=keep, call=call.id, leaving=leaving)
        output = await gates.execute(run, call, here)
        run.seconds[call.id] = time.monotonic() - began
        run.finished[call.id] = output
        return output

    async def deliver(call: Call, output: ToolOutput) -> None:
        run.injects += [(HOOK, text) for text in output.inject]
        run.injects += run.said.pop(call.id, [])
        if call is not group[-1]:
            run.owner.post(lambda s: _emit_result(s, run, call.id))

    await scheduler.run_group(group, execute, deliver)
    if run.broken is not None:
        raise run.broken
    return True


async def _may_run(run: Run, call: Call) -> Approval | None:
    """The answered question about this call, waited for with all that ran before it written down; None if
    there is none."""
    asked = approvals.of(run, call)
    if asked is not None and asked.open:
        await run.owner.record(lambda s: _before_waiting(s, run))
        run.injects = []
        asked = await approvals.settled(run, call)
    return asked


def _before_waiting(s: Scratch, run: Run) -> None:
    """All that the calls so far have given is written down, and durable: who goes on from here may be another
    daemon, and only if no call is unfinished."""
    _emit_owed(s, run)
    _emit_injects(s, run)
    s.urgent = s.urgent or bool(s.events)


def _start_group(s: Scratch, run: Run, group: Sequence[Call]) -> None:
    _emit_owed(s, run)
    if s.state.turn is not None and s.state.turn.abort is None:
        _emit_calls(s, run.turn, run.step, group)


def _all_started(run: Run, ids: Sequence[str]) -> bool:
    turn = run.state.turn
    return turn is not None and all(id in turn.calls and turn.calls[id].started for id in ids)


def _doing(run: Run, group: Sequence[Call]) -> str:
    first = run.tools.describe(group[0])
    return first if len(group) == 1 else f"{first} and {len(group) - 1} more"


def result_of(run: Run, id: str) -> dict[str, Any]:
    """The members of a finished call's `tool/result`."""
    output = run.finished[id]
    data: dict[str, Any] = {
        "content": output.content or [text_block("(no output)")],
        "is_error": output.is_error,
        "ms": round(run.seconds.get(id, 0.0) * 1000),
    }
    if output.error:
        data["error"] = {"code": output.error}
    if output.summary:
        data["summary"] = output.summary
    if tells := [data["id"] for type, data in output.events if type == "subagent/told"]:
        data["tells"] = tells
    return data


def _emit_result(s: Scratch, run: Run, id: str) -> None:
    turn = s.state.turn
    if turn is None or id not in turn.calls:
        return
    s.emit("tool/result", {"turn": run.turn, "step": run.step, "call": id, **result_of(run, id)})
    for type, data in run.finished[id].events:
        s.emit(type, data)


def _emit_owed(s: Scratch, run: Run) -> None:
    """The results that are not in the log yet: the group's last, and those whose own batch failed for want
    of room."""
    for id in list(s.state.turn.calls) if s.state.turn else ():
        if id in run.finished:
            _emit_result(s, run, id)


def context(run: Run, granted: tuple[Grant, ...] = ()) -> ToolContext:
    """What the tools of this session may know and do, now."""
    settings, services = run.state.settings, run.services
    config = services.config()
    spill, attachments = _places(run.session_dir)
    mode, net = str(settings.get("mode") or "workspace"), bool(settings.get("net"))
    if settings.get("agent"):
        mode, net = services.ties.bounds(run.state, mode, net)
    return ToolContext(
        session=run.state.id,
        name=run.state.name,
        whose="" if settings.get("implicit") else f" -s {run.state.name}",
        dir=_path(str(settings.get("dir") or "/")),
        spill_dir=spill,
        env=services.environment(run.state),
        mode=mode,
        net=net,
        hidden=services.hidden(),
        readable=(spill, attachments),
        protected=services.protected,
        rules=tuple(services.tool_rules),
        grants=(*granted, *approvals.standing(run)),
        spawner=services.spawner,
        jobs=run.owner.jobs,
        agents=run.owner.agents,
        rest=partial(_rest, run),
        back=partial(waits.take_place, run),
        todo=run.state.todo,
        ask=str(settings.get("ask") or "deny"),
        bash_max=config.tools.bash_max,
        sandbox=config.tools.sandbox,
        home=services.home,
    )


def _rest(run: Run, doing: str) -> None:
    """A call that only waits for others holds no place, and takes no time of the turn's."""
    run.seat.leave()
    run.says(doing, waits="agent")


_path = lru_cache(256)(Path)


@lru_cache(256)
def _places(session_dir: Path) -> tuple[Path, Path]:
    return session_dir / "spill", session_dir / "attachments"


# --- and after -----------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class After:
    """What follows a step: another one with this batch, or the turn's end (``ends``); ``stop``: the
    budget that doesn't let it go on; ``prepared``: the next step has been opened already, with this."""

    ends: bool
    claimed: tuple[Message, ...] = ()
    stop: Stop | None = None
    prepared: Prepared | None = None


def after(s: Scratch, run: Run) -> After:
    """End the step; go on if results wait for the model or ``next-step`` holds anything.

    The question, the claim and, if nothing is owed, what the caller emits at the turn's end are
    one decision: a message that is durable before it joins this turn, any other the next.
    """
    _emit_owed(s, run)
    data = {"turn": run.turn, "step": run.step, "worked_ms": run.work.worked}
    s.emit("step/end", {**data, "usage": dict(run.owed)} if run.owed else data)
    _emit_injects(s, run)
    return go_on(s, run)


def go_on(s: Scratch, run: Run) -> After:
    """Whether the turn owes another step, and may take it; claims for it."""
    turn = s.state.turn
    if turn is None or turn.abort is not None or run.halted is not None:
        return After(ends=True)
    if (turn.results_wait or waiting(s, first_step=False)) and (stop := run.stops(s.state)) is not None:
        return After(ends=True, stop=stop)
    claimed = () if run.work.stop_at_boundary else claim(s, first_step=False)
    return After(ends=not (turn.results_wait or claimed), claimed=claimed)


def _emit_injects(s: Scratch, run: Run) -> None:
    for source, text in run.injects:
        emit_inject(s, text, source)


def emit_inject(s: Scratch, text: str, source: Mapping[str, Any]) -> None:
    """Put a text that is not a person's into ``next-step``."""
    message = Message(
        id=s.take_id(), content=(text_block(text),), source=source, created=s.now, wake=False, verb="inject"
    )
    data = {"cause": "send", "by": dict(source), "ops": [splice("next-step", insert=[message])]}
    s.emit("inbox/spliced", data)
