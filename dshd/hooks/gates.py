"""Hooks in the chains: each stands there as a plugin would, for the one event it is about.

What a run gave is written down (`hook/ran`) before anybody acts on it, and a failure is told in the daemon's
log too. A failed hook is as good as one that passed, but for ``on_failure = "block"`` where something can be
blocked: before a step, and before a tool.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.config import Hook
from dshd.config.hooks import BLOCKABLE
from dshd.hooks import payload
from dshd.hooks.answers import Answer
from dshd.hooks.payload import About
from dshd.hooks.runner import Place, Run, matches, name_of
from dshd.plugins import Defer, PostTool, PreStep, PreTool, Reject, TurnStopping, text_of

log = logging.getLogger(__name__)

Runs = Callable[[Hook, Place, Mapping[str, Any]], Awaitable[Run]]
AROUND_TOOLS: Final = frozenset(("pre_tool", "post_tool"))


@attrs.frozen(kw_only=True)
class Scene:
    """What a hook acts on. ``record`` puts a `hook/ran` into the session's log; ``halt``: the turn is to end
    after this step;
    ``shows``: what status says that the session does."""

    run: Runs
    place: Place
    about: About
    record: Callable[[dict[str, Any]], object]
    halt: Callable[[str], None]
    shows: Callable[[str], object] = lambda doing: None


class Gate:
    """One hook at one event. ``name`` is what people call it among plugins."""

    def __init__(self, hook: Hook, scene: Scene) -> None:
        self.hook = hook
        self.scene = scene
        self.name = f"hook {name_of(hook)}"

    async def ask(self, found: Mapping[str, Any], **where: Any) -> Answer:
        """Run it and say what it wants.

        Cancellation: its processes are ended first; nothing is written down then.
        """
        whole = payload.payload(self.hook.event, self.scene.about, **found)
        if self.hook.event not in AROUND_TOOLS:  # there the tool is what is shown
            self.scene.shows(f"{self.name} ({self.hook.event})")
        run = await self.scene.run(self.hook, self.scene.place, whole)
        self._tell(run, where)
        return self._meant(run.answer)

    def _tell(self, run: Run, where: Mapping[str, Any]) -> None:
        answer, about = run.answer, self.scene.about
        if answer.outcome == "failed":
            log.warning(
                "session %s: %s (%s) failed: %s", about.session, self.name, self.hook.event, answer.reason
            )
        self.scene.record(ran(self.hook, run, {"turn": about.turn, "step": about.step, **where}))

    def _meant(self, answer: Answer) -> Answer:
        """What is done about it."""
        if answer.stop is not None and self.hook.event != "turn_stopping":
            self.scene.halt(answer.stop)
            answer = attrs.evolve(answer, outcome="blocked", reason=answer.stop)
        if answer.outcome != "failed":
            return answer
        if self.hook.on_failure == "block" and self.hook.event in BLOCKABLE:
            return attrs.evolve(answer, outcome="blocked", reason=f"it failed: {answer.reason}")
        return Answer(outcome="passed")


def ran(hook: Hook, run: Run, where: Mapping[str, Any]) -> dict[str, Any]:
    """The data of `hook/ran`."""
    answer = run.answer
    data: dict[str, Any] = {
        "event": hook.event,
        "hook": name_of(hook),
        "outcome": answer.outcome,
        "ms": run.ms,
    }
    more = {
        **where,
        "exit": run.exit,
        "reason": answer.stop or (answer.reason if answer.outcome != "passed" else None),
        "says": answer.says,
        "remark": answer.remark,
    }
    return data | {key: value for key, value in more.items() if value is not None}


def texts(answer: Answer) -> tuple[str, ...]:
    """What it has to say to the model, as texts."""
    return (*answer.context, *(text for message in answer.messages if (text := text_of(message)).strip()))


class PreStepGate(Gate):
    async def pre_step(self, proposal: PreStep) -> PreStep | Reject | Defer:
        messages = proposal.messages
        if not matches(self.hook, "messages" if messages else "results"):
            return proposal
        prompt = "\n".join(text for m in messages if (text := text_of(m)))
        answer = await self.ask(payload.of_step(messages, prompt))
        if answer.outcome == "deferred":
            return Defer(answer.reason, answer.seconds)
        if answer.outcome == "blocked":
            return Reject(answer.reason, self._refused(answer, messages))
        return attrs.evolve(proposal, messages=self._passed(answer, messages))

    def _refused(self, answer: Answer, messages: Sequence[Any]) -> tuple[str, ...] | None:
        """What it blocks is what is said, not the work that goes on; unless it wants the turn to end, or
        nothing is said."""
        claimed = tuple(m["id"] for m in messages if m.get("id"))
        if answer.stop is not None or not claimed:
            return None
        return answer.ids or claimed

    def _passed(self, answer: Answer, messages: Sequence[Any]) -> tuple[Any, ...]:
        rewritten = {m["id"]: m["content"] for m in answer.messages if "id" in m}
        kept = [{**m, "content": rewritten.get(m.get("id"), m["content"])} for m in messages]
        known = {m.get("id") for m in messages}
        added = [{"content": m["content"]} for m in answer.messages if m.get("id") not in known]
        context = [{"content": [{"type": "text", "text": text}]} for text in answer.context]
        return (*kept, *context, *added)


class PreToolGate(Gate):
    async def pre_tool(self, call: PreTool) -> PreTool | Reject:
        found = payload.of_call(call.call, call.tool, call.arguments)
        answer = await self.ask(found, call=call.call)
        if answer.outcome in ("blocked", "deferred"):
            return Reject(answer.reason)
        if answer.ask:
            return Reject(f"a person is to be asked first, and nobody can be: {answer.reason}")
        return attrs.evolve(call, context=texts(answer))


class PostToolGate(Gate):
    async def post_tool(self, made: PostTool) -> Sequence[str]:
        found = payload.of_call(made.call, made.tool, made.arguments)
        answer = await self.ask({**found, **payload.of_result(made.text, made.is_error)}, call=made.call)
        return (answer.reason,) if answer.outcome == "blocked" and answer.stop is None else texts(answer)


class StoppingGate(Gate):
    async def turn_stopping(self, stopping: TurnStopping) -> Sequence[str]:
        answer = await self.ask(payload.of_stopping(stopping.steps, stopping.answer, stopping.again))
        if answer.stop is not None:
            return ()
        return (answer.reason,) if answer.outcome == "blocked" else texts(answer)


class StartGate(Gate):
    async def session_start(self, source: str) -> Sequence[str]:
        answer = await self.ask({"source": source})
        return texts(answer)


GATES: Final[Mapping[str, type[Gate]]] = {
    "session_start": StartGate,
    "pre_step": PreStepGate,
    "pre_tool": PreToolGate,
    "post_tool": PostToolGate,
    "turn_stopping": StoppingGate,
}
