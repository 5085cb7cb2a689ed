"""Stopping what runs, making room, and going on: abort, compact, wake and retry."""

from __future__ import annotations

from dshd import wire
from dshd.control.calls import Call, Json
from dshd.errors import Conflict, Invalid
from dshd.session.owner import stopping


async def abort(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.abort(call.params, call.peer)


async def retry(call: Call) -> Json:
    params: wire.RetryParams = call.params
    async with call.link.in_order:
        session = await call.session_meant()
    done: Json = await session.retry(params, call.peer)
    if params.tied:
        call.link.tie(session.id, done["message"])
    return done


async def compact(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.compact(call.peer)


async def wake(call: Call) -> Json:
    params: wire.WakeParams = call.params
    if params.all and params.add:
        raise Invalid("what is added is added to one session @ $.add", outcome="not-written")
    if params.all:
        return await _wake_all(call)
    async with call.link.in_order:
        session = await call.session_meant()
    return await session.wake(params, call.peer)


async def _wake_all(call: Call) -> Json:
    views = await call.registry.views(False)
    stopped = [one["id"] for one in views if one["parked"] or one["waits"] == "provider"]
    params = call.params.replace(all=False)
    sessions = [await _wake_one(call, id, params) for id in stopped]
    return {"type": "woken", "exit": 0, "sessions": sessions}


async def _wake_one(call: Call, id: str, params: wire.WakeParams) -> Json:
    """What a budget keeps from running stays parked, and keeps no other from being woken."""
    session = await call.registry.get(id)
    try:
        return await session.wake(params, call.peer)
    except Conflict as refused:
        return {**stopping.woken(session, released=[], unparked=None), "refused": refused.message}
