"""The four gates before a step: claim, system prompt, runtime context, plugins.

The claim is made by whoever decided that there is a next step (`opening.open_turn` for the first
one, `step.after` for the others), so that asking and taking are one. The other three gates are
here; an abort cancels all of them. What comes out is one batch: rejections, or `step/start` with
the messages and the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd.driver import history
from dshd.driver.port import ROOM_POLL_S
from dshd.driver.request import Prepared, emit_request, prepare
from dshd.driver.run import Run
from dshd.driver.waterfall import Verdict, run_chain
from dshd.errors import NoSpace
from dshd.plugins import PreStep
from dshd.prompt import context as runtime
from dshd.prompt.assembly import GUIDANCE, PromptContext, SystemPrompt, assemble
from dshd.prompt.tokens import estimate_message
from dshd.session.events import splice, text_block
from dshd.session.scratch import Scratch
from dshd.session.views import WAITS_FOR_ROOM

Json = Mapping[str, Any]


async def enter(run: Run) -> Prepared | None:
    """Pass the gates and open the step; None if no step opens (the turn is to end).

    Cancellation: an abort cancels a gate; the claimed messages are then returned by the closing.
    Durability: when it returns a request, all that describes it is on disk.
    """
    if run.system is None:
        run.system = await _system_prompt(run)
    snapshot = await _snapshot(run)
    proposal = PreStep(run.state.id, run.turn, run.step + 1, tuple(m.to_json() for m in run.claimed))
    verdict = await run_chain(run.services.plugins, proposal)
    if not _opens(run, verdict):
        await run.owner.record(lambda s: _refuse(s, verdict))
        run.blocked = bool(verdict.rejected)
        return None
    extra = _extra(run, snapshot)
    if verdict.deferred:
        verdict = attrs.evolve(verdict, messages=())
    messages = [*verdict.messages, *extra]
    prepared = await _request(run, messages)
    opened = await _when_room(run, lambda s: _open_step(s, run, verdict, extra, prepared))
    return prepared if opened else None


async def _when_room(run: Run, decide: Callable[[Scratch], bool]) -> bool:
    """Record it; on a full disk as soon as there is room. Nothing of the step has begun at the gate, so
    that waiting loses no work, and ending the turn would park what a person left to run unattended."""
    while True:
        try:
            return bool(await run.owner.record(decide))
        except NoSpace:
            run.says(WAITS_FOR_ROOM.doing, waits=WAITS_FOR_ROOM.waits)
            await trio.sleep(ROOM_POLL_S)


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


async def _system_prompt(run: Run) -> SystemPrompt:
    """Once a turn, so that the static part is byte-identical from call to call."""
    dir = Path(str(run.state.settings.get("dir") or "/"))
    found = await run.services.outside.instructions(dir)
    guidance = [(name, GUIDANCE[name]) for name in run.services.tools.names if name in GUIDANCE]
    window = run.call.window if run.call is not None else None
    return assemble(PromptContext(tools=guidance, instructions=found, window=window))


async def _snapshot(run: Run) -> str | None:
    """The runtime context if it changed since the model last saw it."""
    settings = run.state.settings
    dir = str(settings.get("dir") or "/")
    if run.step == 0:
        run.git = await run.services.outside.git(Path(dir))
    minute = run.services.now() // 60_000
    text = _context_text(dir, minute, run.git, settings.get("mode"), bool(settings.get("net")))
    return text if text != run.state.snapshot else None


@lru_cache(64)  # most steps take less than a minute, and nothing in it is finer
def _context_text(dir: str, minute: int, git: runtime.GitInfo | None, mode: str | None, net: bool) -> str:
    now = datetime.fromtimestamp(minute * 60).astimezone()
    return runtime.snapshot(Path(dir), now, git, mode=mode, net=net)


def _extra(run: Run, snapshot: str | None) -> list[dict[str, Any]]:
    """Messages that we add, without ids yet: notices, then the runtime context, last of all."""
    notices = [_system_message(run, text, "notice") for text in run.notices]
    return notices + ([_system_message(run, snapshot, "context")] if snapshot else [])


def _system_message(run: Run, text: str, via: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [text_block(text)],
        "source": {"kind": "system", "via": via},
        "created": run.services.now(),
        "wake": False,
        "verb": "inject",
    }


async def _request(run: Run, messages: Sequence[Json]) -> Prepared:
    assert run.call is not None
    assert run.system is not None
    here = {"turn": run.turn, "step": run.step + 1}
    place = run.attachments
    past = run.history.of(run.state.surface, place)
    said = [history.user({**m, **here, "content": history.shown(m["content"], place)}) for m in messages]
    tokens = run.history.tokens + sum(map(estimate_message, said))
    await trio.lowlevel.checkpoint_if_cancelled()
    specs, memo = run.services.tools.specs(), run.history.memo
    return prepare(run.call, run.system.text, [*past, *said], specs, said=tokens, memo=memo, place=place)


# --- decisions -----------------------------------------------------------------------------------


def _open_step(s: Scratch, run: Run, verdict: Verdict, extra: Sequence[Json], prepared: Prepared) -> bool:
    """Emit the step's beginning; False if an abort came first (then nothing enters)."""
    turn = s.state.turn
    if turn is None or turn.abort is not None:
        return False
    _emit_refusals(s, verdict)
    here = {"turn": run.turn, "step": run.step + 1}
    s.emit("step/start", here)
    for message in (*verdict.messages, *extra):
        s.emit("user/message", {**_with_id(s, message), **here})
    if prepared.problem is None:
        emit_request(s, prepared, run.turn, run.step + 1, 1)
    return True


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
        _defer(s, verdict.deferred)


def _defer(s: Scratch, deferred: tuple[str, str, float]) -> None:
    """Hold what is claimed until its time; then it is back at the front of where it was."""
    by, reason, seconds = deferred
    assert s.state.turn is not None
    until = s.now + round(seconds * 1000)
    held = [attrs.evolve(m, due=until, home=q, front=True) for q, m in s.state.turn.claimed]
    if held:
        data = {
            "cause": "hold",
            "by": {"kind": "plugin", "via": by, "reason": reason},
            "turn": s.state.turn.number,
            "ops": [splice("held", insert=held)],
        }
        s.emit("inbox/spliced", data)
