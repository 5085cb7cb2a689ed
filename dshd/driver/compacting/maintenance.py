"""What is done to a session between turns: its conversation is compacted because a person asked.

It is an activity of its own, with a scope and a cause of its own; aborting it touches no turn and parks
nothing. What it leaves open in the log is closed here; after a crash, by recovery.
"""

from __future__ import annotations

import logging
from typing import Any

from dshd.driver.compacting import compacting
from dshd.driver.requests.prompting import system_prompt
from dshd.driver.run import Run
from dshd.driver.waiting import room
from dshd.driver.wishes import Outcome, Wish
from dshd.errors import log_refused, one_line
from dshd.model.errors import ModelError
from dshd.session.deciding.closing import close_compaction

log = logging.getLogger(__name__)


async def maintain(run: Run, wish: Wish) -> None:
    """Do what is wished for, and say what became of it, whatever happens.

    Cancellation: the work's scope, by whoever aborts it; from outside only by the end of the daemon.
    """
    outcome = Outcome(reason="aborted")
    try:
        with run.work.scope:
            outcome = await _compact(run, wish)
        if run.work.scope.cancelled_caught:
            outcome = Outcome(reason="aborted", number=run.state.compactions or None)
        await _close(run, outcome)
    except Exception as error:
        if log_refused(error):
            log.warning("session %s: the conversation is not compacted: %s", run.state.id, error)
            outcome = _failed(error.code, error.message)
            return
        log.exception("session %s: compacting the conversation failed", run.state.id)
        outcome = _failed("UNKNOWN", one_line(error))
        run.assembler, run.owed = None, {}  # it may be what could not be written
        await _close(run, outcome)
    finally:
        run.wishes.settle(wish, outcome)


async def _compact(run: Run, wish: Wish) -> Outcome:
    try:
        await run.owner.remember()
        run.prepare_call()
        run.system = await system_prompt(run.services, run.state, run.call.window if run.call else None)
        return await compacting.compact(run, "asked", wish.by)
    except ModelError as error:
        return Outcome(reason="failed", error=error.to_json())


def _failed(code: str, message: str) -> Outcome:
    return Outcome(reason="failed", error={"code": code, "message": message})


async def _close(run: Run, outcome: Outcome) -> None:
    """End what is still open, as soon as there is room. Raises `DshError`: then the next opening does it."""
    if run.state.compaction is None:
        return
    cause = run.work.cause
    word = "interrupted" if cause in ("shutdown", "fault") else outcome.reason
    error: Any = outcome.error
    usage = dict(run.pay())
    await room.when_room(run, lambda s: close_compaction(s, word, cause=cause, usage=usage, error=error))
