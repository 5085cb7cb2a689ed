"""Asking the model for an open step's answer: attempts, other routes, and waiting for the provider.

One *round* asks each route in turn: the session's own, with quick retries (`retry.decide`), then its
fallbacks. If none has an answer and one may have one later, the step waits until the earliest time that one
of them named, or until our own schedule's (`waits`), and another round begins, with one attempt for each
route whose time has come. Patience counts what the step has waited in all.

Nothing of a failed attempt reaches the answer, though its chunks stay in the log.
"""

from __future__ import annotations

import logging
from typing import Any

import attrs
import trio

from dshd.driver import prestep
from dshd.driver.asking.chunks import ChunkLog
from dshd.driver.requests import calling, counting
from dshd.driver.requests.request import Prepared, emit_request, prepare
from dshd.driver.run import Run
from dshd.driver.waiting import waits
from dshd.model import retry
from dshd.model.blocks import Assembled
from dshd.model.chunks import Chunk
from dshd.model.errors import RETRIED, ModelError
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import compactions
from dshd.session.shown.activities import waiting_for

log = logging.getLogger(__name__)


async def ask(run: Run, prepared: Prepared | None) -> Assembled:
    """The model's answer to an open step, whose request has been written down. ``prepared`` None: the step
    waits already. Raises `ModelError` once nothing is left to try.

    Cancellation: at any point; what had streamed is in ``run.partial()``.
    """
    while True:
        if prepared is None:
            prepared = await _again(run)
        if prepared.problem is not None:
            raise prepared.problem
        answer = await _round(run, prepared)
        if answer is not None:
            return answer
        prepared = None


# --- a round -------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Round:
    """``routes``: those not asked yet; ``later``: of those asked, when they may be asked again, with how they
    failed."""

    routes: list[str]
    later: dict[str, tuple[retry.Later, ModelError]] = attrs.field(factory=dict)


async def _round(run: Run, prepared: Prepared) -> Assembled | None:
    """Ask each route; None: none has an answer now, and the step waits.

    Durability: that it waits, and until when, is on disk.
    """
    one = _Round(list(prepared.call.fallback))
    while True:
        found = await _one_route(run, prepared)
        if isinstance(found, Assembled):
            return found
        error, plan = found
        if isinstance(plan, retry.Later):
            one.later[prepared.call.route] = (plan, error)
        if not (one.later or error.code in RETRIED):
            raise _final(error, plan)
        other = _fall_back(run, prepared, one.routes)
        if other is None and not one.later:
            raise _final(error, plan)
        if other is None:
            await run.owner.record(lambda s: _emit_wait(s, run, one))
            return None
        prepared = other
        await _send_again(run, prepared)


async def _one_route(run: Run, prepared: Prepared) -> Assembled | tuple[ModelError, Any]:
    """The answer of one route, or how it failed and what is to be done about that."""
    turn, policy = run.state.turn, prepared.call.retry
    waited = turn.waits if turn is not None else 0
    failures = policy.quick + waited if waited else 0
    while True:
        run.says(f"model: {prepared.call.route}")
        try:
            return await _attempt(run, prepared)
        except ModelError as error:
            run.give_up()  # nothing of a failed attempt reaches the answer
            failures += 1
            failed, plan = error, _plan(run, prepared, error, failures)
        if (repaired := await _repair(run, prepared, failed)) is not None:
            prepared = repaired
            continue
        if not isinstance(plan, retry.Quick):
            return failed, plan
        if not run.work.stop_at_boundary:
            await _pause(run, failed, plan.delay_s)
        if run.work.stop_at_boundary:
            return failed, retry.Later(run.services.now())  # by the next daemon
        await _send_again(run, prepared)


async def _repair(run: Run, prepared: Prepared, error: ModelError) -> Prepared | None:
    """The request that a plugin made of one that failed, written down."""
    found = await calling.repair(run, prepared, error, _attempts(run))
    if found is None:
        return None
    by, other = found
    data = {**_failed(run, error, 0.0, run.services.now()), "by": by}
    run.owner.post(lambda s: s.emit("llm/retry", data))
    await _send_again(run, other)
    return other


def _plan(run: Run, prepared: Prepared, error: ModelError, failures: int) -> Any:
    turn = run.state.turn
    return retry.decide(
        failures,
        error,
        now_ms=run.services.now(),
        patience_s=prepared.call.patience,
        rng=run.services.rng,
        policy=prepared.call.retry,
        waited_s=turn.waited / 1000 if turn is not None else 0.0,
    )


def _final(error: ModelError, plan: Any) -> ModelError:
    if isinstance(plan, retry.Fail) and plan.retry_at is not None:
        error.retry_at = plan.retry_at
    return error


async def _attempt(run: Run, prepared: Prepared) -> Assembled:
    run.assembler = assembler = counting.assembler(prepared)
    chunks = ChunkLog(run.owner, run.turn, run.step, _attempts(run))

    async def emit(chunk: Chunk) -> None:
        assembler.feed(chunk)
        await chunks.add(chunk)

    through = calling.through(run, _attempts(run), emit)
    await prepared.call.adapter.stream(prepared.call, prepared.body, through)
    counting.tell(assembler, prepared)
    answer = assembler.result()
    if not answer.content and not answer.dropped and answer.finish != "max-tokens":
        raise ModelError("EMPTY_RESPONSE", "the model answered nothing")
    return answer


def _attempts(run: Run) -> int:
    """How many the open step has had."""
    return run.state.turn.attempt if run.state.turn is not None else 0


async def _send_again(run: Run, prepared: Prepared) -> None:
    """Durability: the request of the next attempt is on disk on return. Cancellation: at once if an abort
    came first; then nothing is sent."""
    attempt = _attempts(run) + 1
    if not await run.owner.record(lambda s: emit_request(s, prepared, run.turn, run.step, attempt)):
        await run.stopped()


def _fall_back(run: Run, prepared: Prepared, routes: list[str]) -> Prepared | None:
    """The same request on the next route that can take it; ``routes`` are used up on the way."""
    request, wait = prepared.request, waits.of(run)
    while routes:
        route = routes.pop(0)
        if wait is not None and wait.asked.get(route, 0) > run.services.now():
            continue
        try:
            call = run.services.models.prepare_call(route, patience=run.state.settings.get("patience"))
            run.check_price(call)
        except ModelError as error:
            log.warning("session %s: route %s is passed over: %s", run.state.id, route, error)
            continue
        correction = compactions.correction(run.state.factors, call.context())
        other = prepare(call, request.system, request.messages, request.tools, place=prepared.place,
                        correction=correction)  # fmt: skip
        if other.problem is None:
            run.call = call
            return other
        log.warning("session %s: route %s is passed over: %s", run.state.id, route, other.problem)
    return None


# --- between two attempts ------------------------------------------------------------------------


async def _pause(run: Run, error: ModelError, delay_s: float) -> None:
    """Before a quick retry."""
    until = run.services.now() + round(delay_s * 1000)
    data = _failed(run, error, delay_s, until)
    run.owner.post(lambda s: s.emit("llm/retry", data))
    doing = f"{waiting_for(error.code)}, attempt {data['attempt']}"
    run.says(doing, waits="provider", until=until)
    await trio.sleep(delay_s)


def _failed(run: Run, error: ModelError, delay_s: float, until: int) -> dict[str, Any]:
    """The data of `llm/retry`: the failure, and when which attempt follows."""
    data = {"turn": run.turn, "step": run.step, "attempt": _attempts(run) + 1,
            "delay_ms": round(delay_s * 1000), "until": until, **error.to_json()}  # fmt: skip
    return {**data, "usage": dict(run.pay())} if run.owed else data


def _emit_wait(s: Scratch, run: Run, one: _Round) -> None:
    """Let the step wait for the first route that may have an answer. On what it waits for the next daemon's
    decisions rest, so it is synced like a *now* event."""
    turn = s.state.turn
    if turn is None or turn.abort is not None:
        return
    plan, error = min(one.later.values(), key=lambda found: found[0].until_ms)
    asked = {route: plan.until_ms for route, (plan, _) in one.later.items() if plan.named}
    data = _failed(run, error, (plan.until_ms - s.now) / 1000, plan.until_ms)
    more = {"waits": True, "named": plan.named, "worked_ms": run.work.worked}
    s.emit("llm/retry", {**data, **more, **({"asked": asked} if len(one.later) > 1 else {})})
    s.urgent = True


async def _again(run: Run) -> Prepared:
    """Wait until it is time for another round; the step's request as it is then, written down. The daemon,
    the config and the session's model may be others by now.

    Raises `ModelError` if no route can be called.
    """
    await waits.rest(run)
    run.prepare_call()
    await prestep.look_around(run)
    if run.wanted is None:
        await calling.propose(run, run.step)
    prepared = await run.owner.record(lambda s: prestep.request(s, run))
    wait, route = waits.of(run), prepared.call.route
    if wait is not None and wait.asked.get(route, 0) > run.services.now():
        prepared = _fall_back(run, prepared, list(prepared.call.fallback)) or prepared
    if prepared.problem is None:
        await _send_again(run, prepared)
    return prepared
