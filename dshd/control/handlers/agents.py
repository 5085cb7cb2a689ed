"""Subagents: listed, ended."""

from __future__ import annotations

from dshd import wire
from dshd.control.calls import Call, Json


async def ls(call: Call) -> Json:
    params: wire.AgentListParams = call.params
    of_one = params.session is not None or params.cwd is not None
    session = await call.id() if of_one else None
    return {"type": "agents", "agents": await call.registry.kin.rows(session, params.all)}


async def stop(call: Call) -> Json:
    return await call.registry.kin.stop(call.params.agent, call.peer)
