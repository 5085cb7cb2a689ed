"""Waiting for messages to end, or for a session to come to rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import trio

from dshd import wire
from dshd.control.calls import Call, Json
from dshd.errors import DshError


async def wait(call: Call) -> Json:
    params: wire.WaitParams = call.params
    if not params.messages:
        session = await call.session()
        return {"type": "waited", "results": [await session.wait_idle(stay=params.stay, asked=params.asked)]}
    results = await _together([partial(_one, call, message) for message in params.messages])
    return {"type": "waited", "results": results}


async def _one(call: Call, message: str) -> Json:
    session = await call.session_of(message)
    return await session.wait_message(message, stay=call.params.stay, asked=call.params.asked)


async def _together(works: Iterable[Callable[[], Awaitable[Json]]]) -> list[Json]:
    """All at once; answers in the order asked. The first error ends all."""
    answers: dict[int, Json] = {}

    async def note(index: int, work: Callable[[], Awaitable[Json]]) -> None:
        answers[index] = await work()

    try:
        async with trio.open_nursery() as nursery:
            for index, work in enumerate(works):
                nursery.start_soon(note, index, work)
    except BaseExceptionGroup as group:
        raise _first_of(group) from None
    return [answers[index] for index in sorted(answers)]


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    ours = group.subgroup(DshError)
    found: BaseException = ours if ours is not None else group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if ours is not None else group
