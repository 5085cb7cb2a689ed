"""The chains around a model call: `request` before it, `stream` around it, `request_error` behind it.

What a plugin changes of a request is written down as what it is: `request/header` has the system prompt, the
tools and the limit that were sent, `request/context` the route. So the log alone makes the request again, and
nothing of the plugin is needed for that. What it makes of the stream is what the log says that streamed.

A step whose request was changed keeps it for all its attempts; a repair (`request_error`) replaces it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import attrs

from dshd.driver.plugged import gates
from dshd.driver.requests.request import Prepared, prepare
from dshd.driver.run import Run
from dshd.errors import DshError, one_line
from dshd.model.adapter import Emit, PreparedCall
from dshd.model.errors import ModelError
from dshd.model.request import ToolSpec
from dshd.plugins import Request, RequestFailed, Streaming
from dshd.session.fold import compactions

log = logging.getLogger(__name__)

MOST_REPAIRS: Final = 3  # of a step


async def propose(run: Run, step: int) -> None:
    """Ask what is to be changed of the step's request. Raises `ModelError`: ``PLUGIN``, or what a route that
    they chose refuses with.

    Cancellation: of the plugin that is asked.
    """
    run.wanted, run.repairs = None, 0
    chain = gates.of(run, "request", step=step)
    if not chain:
        return
    assert run.call is not None
    assert run.system is not None
    names = tuple(spec.name for spec in run.tools.specs())
    first = asked = Request(
        run.state.id, run.turn, step, run.call.route, run.system.text, names, run.call.max_tokens
    )
    for plugin in chain:
        asked = _checked(plugin, asked, await gates.asked(plugin, plugin.request(asked)))
    if asked.route != first.route:
        _take_route(run, asked.route)
    run.wanted = asked if asked != first else None


def _take_route(run: Run, route: str) -> None:
    call = run.services.models.prepare_call(route, patience=run.state.settings.get("patience"))
    run.check_price(call)
    run.call = call


def _checked(plugin: Any, asked: Request, answer: Any) -> Request:
    if not isinstance(answer, Request):
        raise ModelError("PLUGIN", f"plugin {plugin.name} answered {type(answer).__name__}")
    limit, tools = answer.max_tokens, answer.tools
    most = type(limit) is int and limit > 0
    good = isinstance(answer.system, str) and isinstance(answer.route, str) and (limit is None or most)
    if not good or not isinstance(tools, tuple) or not set(tools) <= set(asked.tools):
        raise ModelError("PLUGIN", f"plugin {plugin.name} gave a request that can't be made")
    return attrs.evolve(asked, route=answer.route, system=answer.system, tools=tools, max_tokens=limit)


def system(run: Run) -> str:
    """The system prompt of the step's request."""
    assert run.system is not None
    return run.system.text if run.wanted is None else run.wanted.system


def specs(run: Run) -> tuple[ToolSpec, ...]:
    """Its tools, in the registry's order."""
    return _chosen(run, run.tools.specs())


def _chosen(run: Run, all: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    if run.wanted is None or len(run.wanted.tools) == len(all):
        return all
    return tuple(spec for spec in all if spec.name in run.wanted.tools)


def call(run: Run) -> PreparedCall:
    """The call that it is made with."""
    assert run.call is not None
    if run.wanted is None or run.wanted.max_tokens == run.call.max_tokens:
        return run.call
    return attrs.evolve(run.call, max_tokens=run.wanted.max_tokens)


async def repair(
    run: Run, prepared: Prepared, error: ModelError, attempt: int
) -> tuple[str, Prepared] | None:
    """Who has an idea what to do about a failed attempt, and the request to try instead; None: nobody has.

    Raises `ModelError` ``PLUGIN``. Cancellation: of the plugin that is asked.
    """
    chain = gates.of(run, "request_error") if run.repairs < MOST_REPAIRS and error.code != "PLUGIN" else []
    for plugin in chain:
        sent = _sent(run, prepared)
        failed = RequestFailed(sent, attempt, error.code, error.message)
        answer = await gates.asked(plugin, plugin.request_error(failed))
        if answer is not None and (other := _instead(run, prepared, _repaired(plugin, sent, answer))):
            run.repairs += 1
            return plugin.name, other
    return None


def _repaired(plugin: Any, sent: Request, answer: Any) -> Request:
    wanted = _checked(plugin, sent, answer)
    if wanted.route != sent.route:
        raise ModelError("PLUGIN", f"plugin {plugin.name} wants another route for a request that was sent")
    return wanted


def _sent(run: Run, prepared: Prepared) -> Request:
    request, names = prepared.request, tuple(spec.name for spec in prepared.request.tools)
    return Request(
        run.state.id, run.turn, run.step, prepared.call.route, request.system, names, prepared.call.max_tokens
    )


def _instead(run: Run, prepared: Prepared, wanted: Request) -> Prepared | None:
    before, run.wanted = run.wanted, wanted
    request = prepared.request
    to = attrs.evolve(prepared.call, max_tokens=wanted.max_tokens)
    tools = _chosen(run, request.tools)
    correction = compactions.correction(run.state.factors, to.context())
    other = prepare(to, wanted.system, request.messages, tools, place=prepared.place, correction=correction)
    if other.problem is None:
        return other
    log.warning("session %s: a repaired request can't be sent: %s", run.state.id, other.problem)
    run.wanted = before
    return None


def through(run: Run, attempt: int, emit: Emit) -> Emit:
    """Where an attempt's chunks go: through those that want to see them, the first of the config first."""
    assert run.call is not None
    about = Streaming(run.state.id, run.turn, run.step, attempt, run.call.route)
    chain: Sequence[Any] = gates.of(run, "stream")
    return reduce(lambda inner, plugin: _around(plugin, about, inner), reversed(chain), emit)


def _around(plugin: Any, about: Streaming, inner: Emit) -> Emit:
    try:
        outer = plugin.stream(about, inner)
    except Exception as error:
        raise ModelError("PLUGIN", f"plugin {plugin.name} failed: {one_line(error)}") from error
    if not callable(outer):
        raise ModelError("PLUGIN", f"plugin {plugin.name} gave a stream that takes no chunks")

    async def emit(chunk: Any) -> None:
        try:
            await outer(chunk)
        except (ModelError, DshError):
            raise
        except Exception as error:
            raise ModelError("PLUGIN", f"plugin {plugin.name} failed: {one_line(error)}") from error

    return emit
