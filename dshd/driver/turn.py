"""A turn: gates, step, and round again until nothing is owed.

`work` is what the turn's cancel scope covers. It returns once the turn has ended by itself (then
`turn/end` is written, decided in one batch with the question whether anything is owed), or says
how the caller is to end it.
"""

from __future__ import annotations

from dshd.driver import prestep, step
from dshd.driver.run import Run
from dshd.session.closing import Ending, close_turn
from dshd.session.scratch import Scratch


async def work(run: Run) -> Ending | None:
    """Do the turn's work; None when its end is already written.

    Raises `ModelError` (the call failed for good) and `DshError` (the log refused).
    Cancellation: at every await but the log's own; nothing is left running.
    """
    run.call = run.services.models.prepare_call(_route(run), patience=run.state.settings.get("patience"))
    while True:
        prepared = await prestep.enter(run)
        if prepared is None:
            return _refused(run)
        run.step += 1
        run.notices = ()
        answer = await step.ask(run, prepared)
        groups = await step.keep(run, answer)
        await step.run_tools(run, groups)
        follows = await run.owner.record(lambda s: _after(s, run))
        if follows.ends:
            return None if run.state.turn is None else Ending(reason="interrupted")
        run.claimed, run.finished, run.injects = follows.claimed, {}, []
        if run.work.stop_at_boundary:
            return Ending(reason="interrupted", cause="shutdown", resume=True)


def _route(run: Run) -> str:
    return str(run.state.settings.get("model") or "")


def _refused(run: Run) -> Ending:
    if run.blocked:
        return Ending(reason="blocked")
    return Ending(reason="max-tokens" if run.capped else "completed")


def _after(s: Scratch, run: Run) -> step.After:
    follows = step.after(s, run)
    turn = s.state.turn
    if follows.ends and turn is not None and turn.abort is None:
        close_turn(s, Ending(reason="max-tokens" if run.capped else "completed"))
    return follows
