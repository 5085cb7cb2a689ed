"""Approvals: listing them, answering, taking back, and being told of them."""

from __future__ import annotations

from dshd import wire
from dshd.control.approvals import ApprovalFollower
from dshd.control.calls import Answer, Call, Json
from dshd.errors import Invalid


async def ls(call: Call) -> Json:
    of = None if call.params.session is None else (await call.session()).id
    registry = call.registry
    await registry.opened()
    return {
        "type": "approvals", "exit": 0,
        "approvals": registry.approvals.open(of), "allowed": await registry.approvals.allowed(of),
    }  # fmt: skip


async def answer(call: Call) -> Json:
    params: wire.ApprovalAnswerParams = call.params
    if params.answer == "deny" and params.scope != "once":
        raise Invalid("a deny is for this call: expected once @ $.scope", outcome="not-written")
    async with call.link.in_order:
        session = await call.registry.approvals.session_of(params.id)
    return {**await call.registry.approvals.answer(session, params, call.peer), "exit": 0}


async def forget(call: Call) -> Json:
    id = call.params.id
    await call.registry.approvals.forget(id, call.peer)
    return {"type": "forgotten", "exit": 0, "id": id}


async def follow(call: Call) -> Answer:
    await call.registry.opened()
    follower = ApprovalFollower(call.registry, call.link)
    told = {"type": "following", "approvals": follower.begin()}
    return Answer(told, lambda: call.link.follow(follower))
