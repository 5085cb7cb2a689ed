"""Schedules: made, listed, changed, fired by hand; what became of them."""

from __future__ import annotations

from dshd import wire
from dshd.control.calls import Call, Handler, Json


async def add(call: Call) -> Json:
    params: wire.ScheduleAddParams = call.params
    call.registry.schedules.check(params)
    async with call.link.in_order:
        session = None if params.run is not None else await call.session()
    return await call.registry.schedules.add(session, params, call.peer)


async def ls(call: Call) -> Json:
    params: wire.ScheduleListParams = call.params
    of_one = params.session is not None or params.cwd is not None
    session = await call.id() if of_one else None
    return {"type": "schedules", "schedules": await call.registry.schedules.rows(session)}


async def log(call: Call) -> Json:
    return await call.registry.schedules.log(call.params.schedule)


async def run(call: Call) -> Json:
    return await call.registry.schedules.run(call.params.schedule, call.peer)


def changing(op: str) -> Handler:
    """The handler of ``rm``, ``pause`` or ``resume``."""

    async def change(call: Call) -> Json:
        return await call.registry.schedules.change(op, call.params.schedule, call.peer)

    return change
