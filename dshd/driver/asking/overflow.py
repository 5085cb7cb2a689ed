"""The answer to an open step, even if the model's window is exceeded: then the conversation is compacted, and
the request made once more in the same step."""

from __future__ import annotations

from dshd.driver import prestep
from dshd.driver.asking import hurry
from dshd.driver.compacting import compacting
from dshd.driver.requests.request import Prepared
from dshd.driver.run import Run
from dshd.driver.waiting import room
from dshd.driver.wishes import Outcome
from dshd.model.blocks import Assembled
from dshd.model.errors import ModelError

FULL = "CONTEXT_WINDOW_EXCEEDED"


async def ask(run: Run, prepared: Prepared | None) -> Assembled | None:
    """As `hurry.ask`, which is asked. Once in a step, however many daemons it outlives: what is too large
    after that is the step's error.

    Raises `ModelError`. Cancellation: at any point; a compaction's bracket is open then.
    """
    try:
        return await hurry.ask(run, prepared)
    except ModelError as error:
        turn = run.state.turn
        if error.code != FULL or (turn is not None and turn.overflowed):
            raise
        full = error
    outcome = await compacting.compact(run, "overflow")
    if not outcome.changed:
        raise _explained(full, outcome)
    smaller = await room.when_room(run, lambda s: prestep.once_more(s, run))
    if smaller is None:
        raise full
    return await hurry.ask(run, smaller)


def _explained(full: ModelError, outcome: Outcome) -> ModelError:
    """Why compacting did not help, if it was tried."""
    why = (outcome.error or {}).get("message")
    if why is None:
        return full
    return ModelError(full.code, f"{full.message}. Compacting it failed: {why}", http_status=full.http_status)
