"""Jobs: listed, read along, stopped, kept."""

from __future__ import annotations

from dshd import wire
from dshd.control.calls import Call, Json
from dshd.errors import Invalid

LONGEST_WAIT_S = 60.0


async def ls(call: Call) -> Json:
    params: wire.JobListParams = call.params
    of_one = params.session is not None or params.cwd is not None
    session = await call.id() if of_one else None
    await call.registry.opened()
    return {"type": "jobs", "jobs": await call.registry.jobs.rows(session, params.all)}


async def output(call: Call) -> Json:
    params: wire.JobOutputParams = call.params
    if params.most < 1 or (params.offset or 0) < 0 or not 0 <= params.wait <= LONGEST_WAIT_S:
        raise Invalid("expected most from 1, offset from 0, wait to 60 s @ $")
    return await call.registry.jobs.output(params.job, params.offset, params.most, params.wait)


async def stop(call: Call) -> Json:
    return await call.registry.jobs.stop(call.params.job, call.peer)


async def keep(call: Call) -> Json:
    return await call.registry.jobs.keep(call.params.job, call.peer)
