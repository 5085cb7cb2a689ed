"""The pre-step chain: plugins in order, each of which may pass on, rewrite, reject or defer.

The outcome is a value; nothing here touches the log. A plugin that leaves a claimed message out
has rejected it; one it adds is a new message of kind ``plugin``. One that raises ends the turn
with an error (`PLUGIN`), never as a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from dshd.errors import one_line
from dshd.model.errors import ModelError
from dshd.plugins import Defer, PreStep, Reject

LEAST_DEFERRED_S = 1.0


@attrs.frozen(slots=True)
class Verdict:
    """What the chain decided. ``messages``: those that enter, as JSON, in order.

    ``rejected``: (plugin, reason, ids); ``whole``: the step itself was rejected;
    ``deferred``: (plugin, reason, seconds) for the batch as a whole.
    """

    messages: tuple[Any, ...]
    rejected: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    whole: bool = False
    deferred: tuple[str, str, float] | None = None


async def run_chain(plugins: Sequence[Any], proposal: PreStep) -> Verdict:
    """Ask each plugin in turn. Cancellation: an abort cancels the plugin that is being asked."""
    verdict = Verdict(tuple(proposal.messages))
    for plugin in plugins:
        asked = attrs.evolve(proposal, messages=verdict.messages)
        verdict = _merge(verdict, plugin.name, asked, await _ask(plugin, asked))
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


def _merge(so_far: Verdict, name: str, asked: PreStep, answer: PreStep | Reject | Defer) -> Verdict:
    if isinstance(answer, Defer):
        return attrs.evolve(so_far, deferred=(name, answer.reason, max(LEAST_DEFERRED_S, answer.seconds)))
    if isinstance(answer, PreStep):
        return _passed(so_far, name, asked, answer)
    gone = [m for m in asked.messages if answer.messages is None or m.get("id") in answer.messages]
    left = tuple(m for m in asked.messages if m not in gone)
    rejected = (*so_far.rejected, (name, answer.reason, _ids(gone)))
    return attrs.evolve(so_far, messages=left, rejected=rejected, whole=answer.messages is None)


def _ids(messages: Iterable[Any]) -> tuple[str, ...]:
    """Ids of messages; one that a plugin added in this chain has none yet."""
    return tuple(m["id"] for m in messages if m.get("id"))


def _passed(so_far: Verdict, name: str, asked: PreStep, answer: PreStep) -> Verdict:
    kept = {m.get("id") for m in answer.messages}
    dropped = _ids(m for m in asked.messages if m.get("id") not in kept)
    rejected = so_far.rejected + (((name, "left out by the plugin", dropped),) if dropped else ())
    return attrs.evolve(so_far, messages=tuple(answer.messages), rejected=rejected)
