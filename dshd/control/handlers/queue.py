"""What waits in a session's queues: looking at it and changing it."""

from __future__ import annotations

from dshd import wire
from dshd.control.calls import Call, Handler, Json
from dshd.errors import Invalid


async def ls(call: Call) -> Json:
    return (await call.session()).queue_ls(call.params.queue)


async def show(call: Call) -> Json:
    return (await call.session_of(call.params.message)).queue_show(call.params.message)


async def edit(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session_of(call.params.message)
        params = await call.with_uploads(call.params)
    return await session.queue_edit(params, call.peer)


def changing(op: str) -> Handler:
    async def change(call: Call) -> Json:
        messages = call.params.messages
        if len({wire.session_of(message) for message in messages}) != 1:
            raise Invalid("name messages of one session @ $.messages")
        async with call.link.in_order:
            session = await call.session_of(messages[0])
        return await session.queue_change(op, messages, call.peer)

    return change


async def clear(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.queue_clear(call.params.queue, call.peer)


async def undo(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.queue_undo(call.peer)
