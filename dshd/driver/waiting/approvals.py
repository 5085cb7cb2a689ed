"""Calls that a person must allow: asked about with the answer that brings them, waited for where they stand.

All questions of an answer are put at once, in the batch that writes it down, so that they can be answered
together, in any order. The calls run in the model's order as ever, and one that is asked about is a barrier:
what stands before it has run and has its result in the log, what stands behind has not begun. So while a step
waits for an answer nothing of it is unfinished, and its turn outlives the daemon.

A crash can keep an answer and take questions that were in the same batch, and rules can change while there is
no daemon. So whoever goes on with such a step asks about what has not been asked about (`catch_up`).

`tool/call` follows the answer that allows it, never the question. A call that is denied has none: it gets its
result, with the reason, and the turn goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import trio

from dshd.driver.port import ROOM_POLL_S
from dshd.driver.run import Run
from dshd.driver.waiting import waits
from dshd.errors import DshError, NoSpace
from dshd.model.errors import ModelError
from dshd.session.deciding import approving
from dshd.session.deciding.approving import Asked
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.approvals import Approval
from dshd.session.shown.activities import waits_for
from dshd.tools.grants import Grant
from dshd.tools.registry import Question
from dshd.tools.tool import Call, ToolContext, ToolOutput

LOOK_S: Final = 10.0  # how long a wall clock that jumps can go unnoticed
LONGEST_WHY: Final = 300  # characters of what the model said with its calls

Blocks = Iterable[Mapping[str, Any]]


async def questions(
    run: Run, calls: Sequence[Call], content: Blocks, around: Callable[[], ToolContext]
) -> tuple[Asked, ...]:
    """What a person must be asked before these calls may run, whose context ``around`` gives; nothing, where
    nobody is there to ask.

    Durability: their ids are taken. Raises `ModelError` (``STORAGE``) if the disk refuses that.
    """
    if not calls or run.state.settings.get("ask") != "wait":
        return ()
    context = around()
    found = [(call, question) for call in calls if (question := await run.tools.asks(call, context))]
    if not found:
        return ()
    ids = await _numbers(run, len(found))
    within = run.services.config().approval.expires
    expires = run.services.now() + round(within * 1000) if within else None
    why = _why(content)
    return tuple(
        _asked(id, call, question, why, expires)
        for id, (call, question) in zip(ids, found, strict=True)
    )


async def catch_up(run: Run, context: ToolContext) -> None:
    """Put the questions about the open step's calls that are not in the log and would be put today.

    Durability: they are on disk. Raises as `questions` does, and `DshError`.
    """
    turn = run.state.turn
    if turn is None or turn.abort is not None:
        return
    calls = [Call(c.id, c.name, c.arguments) for c in turn.calls.values() if not c.started]
    calls = [call for call in calls if of(run, call) is None]
    asked = await questions(run, calls, [{"type": "text", "text": turn.answer}], lambda: context)
    if asked:
        await run.owner.record(lambda s: _ask_late(s, run, asked))


def _ask_late(s: Scratch, run: Run, asked: Iterable[Asked]) -> None:
    if s.state.turn is not None and s.state.turn.abort is None:
        approving.ask(s, run.turn, run.step, asked, run.work.worked)


async def _numbers(run: Run, count: int) -> list[str]:
    try:
        return await run.services.numbers.take("a", count, run.state.id)
    except DshError as error:
        raise ModelError("STORAGE", f"a person is to be asked, but {error.message}") from None


def _asked(id: str, call: Call, question: Question, why: str, expires: int | None) -> Asked:
    return Asked(
        id=id,
        call=call.id,
        tool=call.name,
        grant=question.grant.to_json(),
        what=question.what,
        rule=question.reason,
        why=why,
        expires=expires,
    )


def _why(content: Blocks) -> str:
    """The last that the model said before it called."""
    said = "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:LONGEST_WHY] if lines else ""


def of(run: Run, call: Call) -> Approval | None:
    """The question about this call, if there is one."""
    return approving.of_call(run.state, call.id)


async def settled(run: Run, call: Call) -> Approval | None:
    """The question about this call, answered, with a place to go on in; None if none was put.

    Cancellation: at any time; the question stays. With a stop of the daemon ahead it doesn't return.
    """
    while (asked := of(run, call)) is not None and asked.open:
        if run.work.stop_at_boundary:
            run.work.cancel("shutdown")  # which leaves it open, for the next daemon
        run.seat.leave()
        run.work.shows(waits_for(asked))
        if await _expired(run, asked):
            continue
        with trio.move_on_after(_pause(run, asked)):
            await run.owner.next_change()
    await waits.take_place(run)
    return asked


async def _expired(run: Run, asked: Approval) -> bool:
    """Whether its time was over, and that is written. Where there is no room for it, it is not yet."""
    if asked.expires is None or asked.expires > run.services.now():
        return False
    with contextlib.suppress(NoSpace):
        await run.owner.record(approving.expire)
        return True
    return False


def _pause(run: Run, asked: Approval) -> float:
    """Seconds until it is looked at again, if nothing happens before."""
    if asked.expires is None:
        return LOOK_S
    left = (asked.expires - run.services.now()) / 1000
    return min(left, LOOK_S) if left > 0 else ROOM_POLL_S


def grant(asked: Approval | None) -> tuple[Grant, ...]:
    """What an answer lets its call do."""
    allows = asked is not None and asked.answer == "allow"
    return (Grant.from_json(asked.grant),) if asked is not None and allows else ()


def standing(run: Run) -> tuple[Grant, ...]:
    """What is allowed for the session, and in every one."""
    own = tuple(Grant.from_json(one.grant) for one in run.state.allowed)
    return own + run.services.allowed()


def refusal(asked: Approval) -> ToolOutput:
    """The output of a call that was denied."""
    said = approving.denial(asked)
    return ToolOutput(said["content"], is_error=True, error=said["error"]["code"], summary="denied")
