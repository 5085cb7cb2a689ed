"""How the end of a turn comes into the log, whatever the turn holds: decisions on a scratch, no IO.

What a turn ends with comes from everywhere: from providers, plugins, tools, and from our own mistakes. Some
of it may be what a line can't hold, or what trips us over. So there are three ways to write the same end, and
one is tried after the other (`ways`):

| way     | it holds                                                                                        |
|---------|-------------------------------------------------------------------------------------------------|
| whole   | all that is owed: text that had streamed, results of calls that had finished, usage              |
| bare    | the same, but of the work only what is in the log already; of an error its code and sentence     |
| cut off | what makes it an end: a result for each call, the step's end, what goes back, `turn/end`         |

If even the last can't be written, the session is not one that can go on (`driver`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from dshd.budgets import NAMED
from dshd.driver import step
from dshd.driver.run import Run
from dshd.errors import one_line
from dshd.session.deciding import budget
from dshd.session.deciding.closing import Ending, close_compaction, close_turn, cut_off
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import inbox
from dshd.session.fold.turns import Abort, requested

log = logging.getLogger(__name__)

TIME: Final = NAMED["turn_time"]
ENDS_BY_CAUSE: Final = {
    "user": "aborted", "interrupt": "aborted", "client": "aborted", "shutdown": "interrupted"
}  # fmt: skip

Way = Callable[[Scratch], None]


def failed(error: BaseException) -> Ending:
    """Of work that failed for a reason that nobody expected."""
    return Ending(reason="error", error={"code": "UNKNOWN", "message": one_line(error)})


def ways(run: Run, ending: Ending) -> tuple[Way, ...]:
    """The ways to write this turn's end, the best first."""
    ending = _settled(run, ending)
    whole, plain = _with_work(run, ending), _plain(ending)
    return (
        lambda s: _end(s, run, whole),
        lambda s: _end(s, run, plain, finished=False),
        lambda s: cut_off(s, run.turn, plain),
    )


def left(turn: int, error: BaseException) -> tuple[Way, ...]:
    """Of a turn that is open and that nobody runs."""
    plain = failed(error)
    return (lambda s: cut_off(s, turn, plain),)


def _settled(run: Run, ending: Ending) -> Ending:
    try:
        return _by_cause(run, ending)
    except Exception as error:
        log.exception("session %s: why turn %d ends is not known", run.state.id, run.turn)
        return failed(error)


def _with_work(run: Run, ending: Ending) -> Ending:
    """With what the work leaves behind."""
    try:
        route = run.call.route if run.call is not None else None
        ending = attrs.evolve(
            ending, partial=run.partial(), model=ending.model or route, worked=run.work.worked
        )
        run.give_up()
        return attrs.evolve(ending, usage=run.owed)
    except Exception:
        log.exception("session %s: what turn %d leaves is lost", run.state.id, run.turn)
        return ending


def _plain(ending: Ending) -> Ending:
    """Why and how, and nothing that came from elsewhere."""
    error = ending.error
    if error is not None:
        error = {"code": str(error.get("code", "UNKNOWN")), "message": str(error.get("message", ""))}
    return Ending(reason=ending.reason, cause=ending.cause, error=error)


def _by_cause(run: Run, ending: Ending) -> Ending:
    """The ending of work that was cancelled; of any other, what the work said."""
    work = run.work
    if work.out_of_time:
        return _out_of_time(run)
    if work.cause is None:
        return ending
    if work.cause == "fault":
        return Ending(reason="error", cause="fault", error={"code": "STORAGE", "message": "the disk failed"})
    return Ending(reason=ENDS_BY_CAUSE.get(work.cause, "aborted"), cause=work.cause)


def _out_of_time(run: Run) -> Ending:
    uses = budget.used(run.state, run.services.config(), run.now)
    stop = next(use for use in uses if use.what == TIME.name)
    return Ending(reason="budget", cause=TIME.name, budget=stop.to_json())


def _end(s: Scratch, run: Run, ending: Ending, *, finished: bool = True) -> None:
    open_turn: Any = s.state.turn
    if open_turn is None or open_turn.number != run.turn:
        return
    results = _results(run, open_turn) if finished else {}
    brought = {id: run.finished[id].events for id in results}
    if run.work.asked is not None and open_turn.abort is None:
        _emit_abort(s, run.turn, run.work.asked, run.work.clears)
        open_turn = s.state.turn
    if open_turn.abort is not None:
        ending = attrs.evolve(ending, reason="aborted", cause=open_turn.abort.cause, error=None, resume=False)
    elif run.work.cause == "shutdown" and open_turn.only_waits:
        usage = ending.usage  # the next daemon waits on, and compacts again if it must
        return close_compaction(s, "interrupted", cause="shutdown", usage=usage)
    elif run.work.cause == "shutdown":  # between two steps, at the gates, is a boundary too
        ending = attrs.evolve(ending, resume=not open_turn.step_open)
    close_turn(s, attrs.evolve(ending, results=results, brought=brought, hooked=run.services.hooked))


def _results(run: Run, turn: Any) -> Mapping[str, Mapping[str, Any]]:
    return {id: step.result_of(run, id) for id in turn.calls if id in run.finished}


def _emit_abort(s: Scratch, turn: int, asked: Abort, clears: frozenset[str]) -> None:
    """The event of an abort that could not be written when it was asked for."""
    s.emit("abort/requested", requested(turn, asked))
    waiting = [(q, m) for q, items in s.state.queues.items() for m in items if m.id in clears]
    if waiting:
        s.emit("inbox/spliced", {"cause": "clear", "by": asked.by, "ops": inbox.remove_ops(waiting)})
