"""The chains of plugins: before a step, and before a turn ends.

Before a step, each in order may pass on, rewrite, reject or defer.

The outcome is a value; nothing here touches the log. A plugin that leaves a claimed message out
has rejected it. Of a claimed message it can rewrite the content and nothing else; a message it
adds is a new one of kind ``plugin``, which gets its id when it enters. A plugin that raises, or
answers what can't be used, ends the turn with an error (`PLUGIN`), never as a pass.

What a plugin is given is its own copy: changing it in place changes nothing but its answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from dshd.driver.plugged import gates
from dshd.errors import Invalid, one_line
from dshd.log.codec import lossless
from dshd.model.errors import ModelError
from dshd.plugins import Defer, PreStep, Reject, TurnStopping


@attrs.frozen(slots=True)
class Verdict:
    """What the chain decided. ``messages``: those that enter, as JSON, in order.

    ``rejected``: (plugin, reason, ids); ``whole``: the step itself was rejected;
    ``deferred``: (plugin, reason, seconds) for the batch as a whole; seconds None: it names none.
    """

    messages: tuple[Any, ...]
    rejected: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    whole: bool = False
    deferred: tuple[str, str, float | None] | None = None


async def run_chain(plugins: Sequence[Any], proposal: PreStep) -> Verdict:
    """Ask each plugin in turn. Cancellation: an abort cancels the plugin that is being asked."""
    verdict = Verdict(tuple(proposal.messages))
    for plugin in plugins:
        asked = attrs.evolve(proposal, messages=verdict.messages)
        answer = await _ask(plugin, attrs.evolve(asked, messages=_copy(asked.messages)))
        try:
            verdict = _merge(verdict, plugin, asked, answer)
        except (Invalid, TypeError, ValueError) as error:
            raise ModelError("PLUGIN", f"plugin {plugin.name} gave {one_line(error)}") from error
        if verdict.whole or verdict.deferred:
            break
    return verdict


async def _ask(plugin: Any, proposal: PreStep) -> PreStep | Reject | Defer:
    try:
        answer = await plugin.pre_step(proposal)
    except Exception as error:
        raise ModelError("PLUGIN", f"plugin {plugin.name} failed: {one_line(error)}") from error
    if not isinstance(answer, PreStep | Reject | Defer):
        raise ModelError("PLUGIN", f"plugin {plugin.name} answered {type(answer).__name__}")
    return answer


async def ask_stoppers(plugins: Sequence[Any], stopping: TurnStopping) -> list[gates.Said]:
    """What they have to say, in order. Raises `ModelError` ``PLUGIN``."""
    said: list[gates.Said] = []
    for plugin in plugins:
        try:
            texts = list(await plugin.turn_stopping(stopping) or ())
        except Exception as error:
            raise ModelError("PLUGIN", f"plugin {plugin.name} failed: {one_line(error)}") from error
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise ModelError("PLUGIN", f"plugin {plugin.name} gave something else than texts")
        said += [(gates.origin(plugin), text) for text in texts]
    return said


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return type(value)(map(_copy, value)) if isinstance(value, list | tuple) else value


def _merge(so_far: Verdict, plugin: Any, asked: PreStep, answer: PreStep | Reject | Defer) -> Verdict:
    name = plugin.name
    if isinstance(answer, Defer):
        return attrs.evolve(so_far, deferred=(name, str(answer.reason), _seconds(answer.seconds)))
    if isinstance(answer, PreStep):
        return _passed(so_far, plugin, asked, answer)
    named = None if answer.messages is None else set(answer.messages)
    gone = [m for m in asked.messages if named is None or m.get("id") in named]
    if named is not None and not gone:
        return so_far
    left = tuple(m for m in asked.messages if m not in gone)
    rejected = (*so_far.rejected, (name, str(answer.reason), _ids(gone)))
    return attrs.evolve(so_far, messages=left, rejected=rejected, whole=named is None)


def _ids(messages: Iterable[Any]) -> tuple[str, ...]:
    """Ids of messages; one that a plugin added in this chain has none yet."""
    return tuple(m["id"] for m in messages if m.get("id"))


def _passed(so_far: Verdict, plugin: Any, asked: PreStep, answer: PreStep) -> Verdict:
    claimed = {m["id"]: m for m in asked.messages if m.get("id")}
    passed = tuple(_message(m, plugin, claimed) for m in answer.messages)
    kept = _ids(passed)
    if len(kept) != len(set(kept)):
        raise ValueError("one message twice")
    dropped = tuple(id for id in claimed if id not in kept)
    rejected = so_far.rejected + (((plugin.name, "left out by the plugin", dropped),) if dropped else ())
    return attrs.evolve(so_far, messages=passed, rejected=rejected)


def _message(given: Any, plugin: Any, claimed: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a plugin passed on, as far as it is its to say."""
    if not isinstance(given, dict):
        raise TypeError("a message that is no object")
    content = lossless(given.get("content"))
    if not content or not isinstance(content, list) or not all(map(_is_block, content)):
        raise ValueError("a message without a list of content blocks")
    if (known := claimed.get(str(given.get("id")))) is not None:
        return {**known, "content": content}
    source = lossless(given.get("source") or {})
    own = gates.origin(plugin)
    origin = {**own, **(source if isinstance(source, dict) else {}), "kind": own["kind"]}
    return {"role": "user", "content": content, "source": origin, "wake": False, "verb": "inject"}


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and isinstance(block.get("type"), str)


def _seconds(seconds: Any) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise ValueError(f"{seconds} s to wait")
    return None if seconds is None else float(seconds)
