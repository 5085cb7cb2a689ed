"""A turn: gates, step, and round again until nothing is owed.

`work` is what the turn's cancel scope covers. It returns once the turn has ended by itself (then
`turn/end` is written, decided in one batch with the question whether anything is owed), or says
how the caller is to end it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Final

import attrs

from dshd.driver import prestep, step
from dshd.driver.asking import overflow
from dshd.driver.plugged import gates, shape, waterfall
from dshd.driver.requests.request import Prepared
from dshd.driver.run import Run
from dshd.driver.waiting import approvals
from dshd.errors import NoSpace
from dshd.model.errors import ModelError
from dshd.plugins import TurnStopping
from dshd.session.deciding.budget import Stop
from dshd.session.deciding.closing import Ending, close_turn
from dshd.session.deciding.scratch import Scratch
from dshd.tools.tool import Call

Groups = Sequence[Sequence[Call]]

log = logging.getLogger(__name__)

MOST_STOPPINGS: Final = 8  # of a turn, one after the other


async def work(run: Run) -> Ending | None:
    """Do the turn's work; None when its end is already written.

    Raises `ModelError` (the call failed for good) and `DshError` (the log refused).
    Cancellation: at every await but the log's own; nothing is left running.
    """
    run.tools = await run.services.servers.registry(run.services.tools, step.context(run))
    groups = await (_resume(run) if run.resumed else _begin(run))
    while groups is not None:
        await step.run_tools(run, groups)
        if run.call is None:
            run.prepare_call()
        follows = await _follows(run)
        if follows.ends:
            return None if run.state.turn is None else Ending(reason="interrupted")
        run.claimed, run.finished, run.injects, run.owed = follows.claimed, {}, [], {}
        run.leaving = {}
        if follows.prepared is None and run.work.stop_at_boundary:
            return Ending(reason="interrupted", cause="shutdown", resume=True)
        groups = await _answered(run, follows.prepared or await prestep.enter(run))
    return _refused(run)


async def _begin(run: Run) -> Groups | None:
    run.prepare_call()
    return await _answered(run, await prestep.enter(run))


async def _answered(run: Run, prepared: Prepared | None) -> Groups | None:
    """The calls that the answer of the step that has just opened asks for; None: none did."""
    if prepared is None:
        return None
    run.step += 1
    run.notices, run.begins_with = (), ()
    return await _asked(run, prepared)


async def _asked(run: Run, prepared: Prepared | None) -> Groups:
    """The calls of the answer; none, if it was cut short."""
    answer = await overflow.ask(run, prepared)
    return await step.keep(run, answer) if answer is not None else ()


async def _resume(run: Run) -> Groups:
    """Go on with a step that waits since before this run: for its answer, or for a person's to its calls. A
    call of these needs no model; if there is none, that is told when it is needed."""
    turn = run.state.turn
    if turn is not None and turn.answered:
        with contextlib.suppress(ModelError):
            run.prepare_call()
        await prestep.look_around(run)
        await approvals.catch_up(run, step.context(run))
        return step.left(run)
    return await _asked(run, None)


def _refused(run: Run) -> Ending:
    if run.blocked:
        return Ending(reason="blocked")
    return Ending(reason="max-tokens" if run.capped else "completed")


async def _follows(run: Run) -> step.After:
    """What follows the step; who wants a word before the turn ends is asked first."""
    asks = _is_asked_for(run)
    try:
        follows = await run.owner.record(lambda s: _straight_on(s, run, _after(s, run, closes=not asks)))
    except NoSpace:  # for the step's end alone there may be room; its next one waits at the gate
        follows = await run.owner.record(lambda s: _after(s, run, closes=not asks))
    if not (asks and follows.ends) or follows.stop is not None:
        return follows
    answer = run.state.turn.answer if run.state.turn is not None else ""
    said = await _last_words(run, answer)
    follows = await run.owner.record(lambda s: _stopping(s, run, said))
    run.stoppings += not follows.ends  # also if they had it said by a command of their own
    return follows


def _is_asked_for(run: Run) -> bool:
    """Whether anybody has to be asked before the turn ends."""
    if run.halted is not None:
        return False
    shaped = run.state.settings.get("schema") is not None
    return shaped or (bool(gates.of(run, "turn_stopping")) and not run.work.stop_at_boundary)


async def _last_words(run: Run, answer: str) -> list[gates.Said]:
    """What those say who want a word before the turn ends; bounded, so that it comes to an end."""
    if run.stoppings >= MOST_STOPPINGS:
        log.warning("session %s: turn %d has gone on %d times for who was asked before its end; it ends now",
                    run.state.id, run.turn, run.stoppings)  # fmt: skip
        return await shape.words(run, answer)
    stopping = TurnStopping(run.state.id, run.turn, run.step, answer, run.stoppings > 0)
    said = await waterfall.ask_stoppers(gates.of(run, "turn_stopping"), stopping)
    return said or await shape.words(run, answer)


def _after(s: Scratch, run: Run, *, closes: bool) -> step.After:
    follows = step.after(s, run)
    return _close(s, run, follows) if closes or follows.stop is not None else follows


def _straight_on(s: Scratch, run: Run, follows: step.After) -> step.After:
    if follows.ends:
        return follows
    return attrs.evolve(follows, prepared=prestep.straight_on(s, run, follows.claimed))


def _stopping(s: Scratch, run: Run, said: Sequence[gates.Said]) -> step.After:
    if s.state.turn is not None and s.state.turn.abort is None:
        for source, text in said:
            step.emit_inject(s, text, source)
    return _close(s, run, step.go_on(s, run))


def _close(s: Scratch, run: Run, follows: step.After) -> step.After:
    turn = s.state.turn
    if follows.ends and turn is not None and turn.abort is None:
        ending = _ending(run, follows.stop)
        close_turn(s, attrs.evolve(ending, worked=run.work.worked, hooked=run.services.hooked))
    return follows


def _ending(run: Run, stop: Stop | None) -> Ending:
    if stop is not None:
        return Ending(reason="budget", cause=stop.what, budget=stop.to_json())
    if run.halted is not None:
        return Ending(reason="blocked", cause=run.halted)
    return Ending(reason="max-tokens" if run.capped else "completed")
