"""The four gates before a step: claim, system prompt, runtime context, plugins.

The claim is made by whoever decided that there is a next step (`opening.open_turn` for the first
one, `step.after` for the others), so that asking and taking are one. The other three gates are
here; an abort cancels all of them. What comes out is one batch: rejections, or `step/start` with
the messages and the request.

From a turn's second step on only plugins can make a gate take its time. Without any, `straight_on`
opens the step in the very batch that ends the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from dshd.driver import deferring
from dshd.driver.compacting import compacting
from dshd.driver.plugged import gates
from dshd.driver.plugged.waterfall import Verdict, run_chain
from dshd.driver.requests import calling
from dshd.driver.requests.prompting import system_prompt
from dshd.driver.requests.request import Prepared, emit_request, prepare
from dshd.driver.run import Run
from dshd.driver.waiting.room import when_room
from dshd.plugins import PreStep
from dshd.prompt import context as runtime
from dshd.session.deciding.jobbing import brief
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import compactions
from dshd.session.fold.events import Message, text_block
from dshd.session.fold.state import State

Json = Mapping[str, Any]


async def enter(run: Run) -> Prepared | None:
    """Pass the gates and open the step; None if no step opens (the turn is to end).

    Cancellation: an abort cancels a gate; the claimed messages are then returned by the closing.
    Durability: when it returns a request, all that describes it is on disk.
    """
    await look_around(run)
    await compacting.before_step(run)
    proposal = PreStep(run.state.id, run.turn, run.step + 1, tuple(m.to_json() for m in run.claimed))
    verdict = await run_chain(gates.of(run, "pre_step", step=run.step + 1), proposal)
    if not _opens(run, verdict):
        await run.owner.record(lambda s: _refuse(s, verdict))
        run.blocked = bool(verdict.rejected)
        return None
    if verdict.deferred:
        verdict = attrs.evolve(verdict, messages=())
    run.begins_with = tuple(await gates.started(run))
    if run.halted is not None:
        run.blocked = True
        return None
    await calling.propose(run, run.step + 1)
    return await when_room(run, lambda s: _open_step(s, run, verdict))


async def look_around(run: Run) -> None:
    """What a prompt needs of the world, once a turn."""
    if run.system is None:
        run.system = await system_prompt(run.services, run.state, run.call.window if run.call else None)
        run.git = await run.services.outside.git(Path(_dir(run.state)))


def straight_on(s: Scratch, run: Run, claimed: Sequence[Message]) -> Prepared | None:
    """Open the step that follows, with what it claimed; None if it has to pass the gates by itself."""
    if gates.stand_before_a_step(run) or run.work.stop_at_boundary or compacting.due(s, run, claimed):
        return None
    return _open_step(s, run, Verdict(tuple(m.to_json() for m in claimed)))


def once_more(s: Scratch, run: Run) -> Prepared | None:
    """The open step's request again, of a surface that is smaller now; None if the turn is aborted."""
    turn = s.state.turn
    if turn is None or turn.abort is not None:
        return None
    prepared = request(s, run)
    if prepared.problem is None:
        emit_request(s, prepared, run.turn, run.step, turn.attempt + 1)
    return prepared


def _opens(run: Run, verdict: Verdict) -> bool:
    """Whether there is a step to take: something to say, tool results that wait for the model, or a turn
    to be repeated."""
    if verdict.whole:
        return False
    results_wait = run.state.turn is not None and run.state.turn.results_wait
    said = bool(verdict.messages) and verdict.deferred is None
    repeats = run.retry and run.step == 0
    return said or results_wait or repeats or bool(run.notices)


# --- gates ---------------------------------------------------------------------------------------


def _snapshot(run: Run, state: State, now: int) -> str | None:
    """The runtime context if it changed since the model last saw it."""
    settings = state.settings
    mode, net = settings.get("mode"), bool(settings.get("net"))
    jobs = tuple(f"{job.id}: {brief(job.command)}" for job in state.running_jobs)
    text = _context_text(_dir(state), now // 60_000, run.git, mode, net, jobs)
    return text if text != state.snapshot else None


def _dir(state: State) -> str:
    return str(state.settings.get("dir") or "/")


@lru_cache(64)  # most steps take less than a minute, and nothing in it is finer
def _context_text(
    dir: str, minute: int, git: runtime.GitInfo | None, mode: str | None, net: bool, jobs: tuple[str, ...]
) -> str:
    now = datetime.fromtimestamp(minute * 60).astimezone()
    return runtime.snapshot(Path(dir), now, git, jobs, mode=mode, net=net)


# --- decisions -----------------------------------------------------------------------------------


def _open_step(s: Scratch, run: Run, verdict: Verdict) -> Prepared | None:
    """Emit the step's beginning; None if an abort came first (then nothing enters)."""
    turn = s.state.turn
    if turn is None or turn.abort is not None:
        return None
    _emit_refusals(s, verdict)
    here = {"turn": run.turn, "step": run.step + 1}
    extra = _extra(s, run)
    s.emit("step/start", here)
    for message in (*verdict.messages, *extra):
        s.emit("user/message", {**_with_id(s, message), **here})
    prepared = request(s, run)
    if prepared.problem is None:
        emit_request(s, prepared, run.turn, run.step + 1, 1)
    return prepared


def _extra(s: Scratch, run: Run) -> list[dict[str, Any]]:
    """Messages that we add, without ids yet: notices, then the runtime context, last of all."""
    notices = [_system_message(text, "notice") for text in run.notices]
    notices += [_message(text, source) for source, text in run.begins_with]
    snapshot = _snapshot(run, s.state, s.now)
    return notices + ([_system_message(snapshot, "context")] if snapshot else [])


def _system_message(text: str, via: str) -> dict[str, Any]:
    return _message(text, {"kind": "system", "via": via})


def _message(text: str, source: Json) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [text_block(text)],
        "source": dict(source),
        "wake": False,
        "verb": "inject",
    }


def request(s: Scratch, run: Run) -> Prepared:
    """The request of the open step: all that stands on the surface now. What is said to a step that has begun
    waits for the next, so that every attempt asks the same."""
    place = run.attachments(s.state)
    messages, tokens = run.history.ahead(run.state.surface, s.state.surface, place)
    call, system, specs, memo = calling.call(run), calling.system(run), calling.specs(run), run.history.memo
    correction = compactions.correction(s.state.factors, call.context())
    return prepare(call, system, messages, specs, said=tokens, memo=memo, place=place, correction=correction)


def _with_id(s: Scratch, message: Json) -> dict[str, Any]:
    """A message as it enters; one that a plugin or we added gets its id now."""
    if message.get("id"):
        return dict(message)
    return {"id": s.take_id(), **message, "created": s.now}


def _refuse(s: Scratch, verdict: Verdict) -> None:
    if s.state.turn is not None and s.state.turn.abort is None:
        _emit_refusals(s, verdict)


def _emit_refusals(s: Scratch, verdict: Verdict) -> None:
    for by, reason, ids in verdict.rejected:
        s.emit("step/rejected", {"by": by, "reason": reason, "messages": list(ids)})
    if verdict.deferred is not None:
        deferring.hold(s, *verdict.deferred)
