"""The calls of a step that is cut short (`hurry`): each gets a result that says what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dshd.driver.run import Run
from dshd.driver.waiting import waits
from dshd.errors import DshError
from dshd.session.deciding import approving
from dshd.tools.jobs import Spec
from dshd.tools.tool import Call, ToolOutput, failure, text_output

WHY: Final = "the user has steered"


async def cut_short(run: Run, calls: Sequence[Call]) -> None:
    """Have an output in ``run.finished`` for each call; what runs of `bash` is a job by then.

    Durability: that it is one is on disk. Cancellation: what has no job yet is ended.
    """
    for call in calls:
        if call.id in run.finished:
            continue
        leaving = run.leaving.pop(call.id, None)
        if leaving is None:
            said = f"Skipped: {WHY} before this call started. Safe to repeat."
            run.finished[call.id] = failure(said, "SKIPPED")
        elif leaving.spec is None:
            said = f"Stopped: {WHY} while this call ran. Check what it did before repeating."
            run.finished[call.id] = failure(said, "STOPPED")
        else:
            run.finished[call.id] = await _as_job(run, leaving.spec)
    if run.state.asks:
        await run.owner.record(lambda s: approving.withdraw(s, WHY, None))
    await waits.take_place(run)


async def _as_job(run: Run, spec: Spec) -> ToolOutput:
    try:
        id = await run.owner.jobs.start(spec)
    except DshError as error:
        why = error.message.removeprefix("not started: ")
        return failure(f"Stopped: {WHY}, and it could not go on in the background: {why}", "STOPPED")
    return text_output(
        f"[{WHY}, so this goes on in the background, as {id}; what it prints goes to {spec.file}."
        " You are told when it ends.]",
        summary=f"job {id}",
    )
