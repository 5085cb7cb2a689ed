"""A turn: gates, step, and round again until nothing is owed.

`work` is what the turn's cancel scope covers. It returns once the turn has ended by itself (then
`turn/end` is written, decided in one batch with the question whether anything is owed), or says
how the caller is to end it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from dshd.driver import prestep, step, waterfall
from dshd.driver.run import Run
from dshd.errors import NoSpace
from dshd.plugins import TurnStopping
from dshd.session.deciding.budget import Stop
from dshd.session.deciding.closing import Ending, close_turn
from dshd.session.deciding.scratch import Scratch


async def work(run: Run) -> Ending | None:
    """Do the turn's work; None when its end is already written.

    Raises `ModelError` (the call failed for good) and `DshError` (the log refused).
    Cancellation: at every await but the log's own; nothing is left running.
    """
    run.call = run.services.models.prepare_call(_route(run), patience=run.state.settings.get("patience"))
    run.check_price(run.call)
    prepared = await prestep.enter(run)
    while prepared is not None:
        run.step += 1
        run.notices = ()
        answer = await step.ask(run, prepared)
        groups = await step.keep(run, answer)
        await step.run_tools(run, groups)
        follows = await _follows(run)
        if follows.ends:
            return None if run.state.turn is None else Ending(reason="interrupted")
        run.claimed, run.finished, run.injects, run.owed = follows.claimed, {}, [], {}
        if follows.prepared is None and run.work.stop_at_boundary:
            return Ending(reason="interrupted", cause="shutdown", resume=True)
        prepared = follows.prepared or await prestep.enter(run)
    return _refused(run)


def _route(run: Run) -> str:
    return str(run.state.settings.get("model") or "")


def _refused(run: Run) -> Ending:
    if run.blocked:
        return Ending(reason="blocked")
    return Ending(reason="max-tokens" if run.capped else "completed")


async def _follows(run: Run) -> step.After:
    """What follows the step; who wants a word before the turn ends is asked first."""
    asks = bool(waterfall.stoppers(run.services.plugins)) and not run.work.stop_at_boundary
    try:
        follows = await run.owner.record(lambda s: _straight_on(s, run, _after(s, run, closes=not asks)))
    except NoSpace:  # for the step's end alone there may be room; its next one waits at the gate
        follows = await run.owner.record(lambda s: _after(s, run, closes=not asks))
    if not (asks and follows.ends) or follows.stop is not None:
        return follows
    answer = run.state.turn.answer if run.state.turn is not None else ""
    stopping = TurnStopping(run.state.id, run.turn, run.step, answer)
    said = await waterfall.ask_stoppers(run.services.plugins, stopping)
    return await run.owner.record(lambda s: _stopping(s, run, said))


def _after(s: Scratch, run: Run, *, closes: bool) -> step.After:
    follows = step.after(s, run)
    return _close(s, run, follows) if closes or follows.stop is not None else follows


def _straight_on(s: Scratch, run: Run, follows: step.After) -> step.After:
    if follows.ends:
        return follows
    return attrs.evolve(follows, prepared=prestep.straight_on(s, run, follows.claimed))


def _stopping(s: Scratch, run: Run, said: Sequence[tuple[str, str]]) -> step.After:
    if s.state.turn is not None and s.state.turn.abort is None:
        for plugin, text in said:
            step.emit_inject(s, text, {"kind": "plugin", "via": plugin})
    return _close(s, run, step.go_on(s, run))


def _close(s: Scratch, run: Run, follows: step.After) -> step.After:
    turn = s.state.turn
    if follows.ends and turn is not None and turn.abort is None:
        close_turn(s, attrs.evolve(_ending(run, follows.stop), worked=run.work.worked))
    return follows


def _ending(run: Run, stop: Stop | None) -> Ending:
    if stop is not None:
        return Ending(reason="budget", cause=stop.what, budget=stop.to_json())
    return Ending(reason="max-tokens" if run.capped else "completed")
