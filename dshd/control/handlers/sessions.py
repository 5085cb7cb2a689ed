"""Sessions as things: making, listing, naming, closing and removing them."""

from __future__ import annotations

from dshd import wire
from dshd.control.calls import Answer, Call, Json
from dshd.control.listed import ListFollower, is_listed
from dshd.errors import Conflict, Invalid
from dshd.session.registry.creating import Created


async def create(call: Call) -> Json:
    params: wire.CreateParams = call.params
    async with call.link.in_order:
        await call.room.gate.passed()
        async with call.room.creating:
            params = await call.with_uploads(params)
            made = await _made(call, params)
    session, receipt = made.session, made.receipt
    if params.tied and session is not None and receipt is not None:
        call.link.tie(session.id, receipt["message"])
    return {
        "type": "created", "exit": 0, "session": session.show() if session is not None else None,
        "receipt": receipt, "duplicate": made.duplicate, "result": made.result,
    }  # fmt: skip


async def _made(call: Call, params: wire.CreateParams) -> Created:
    """A directory has one session made for it: asked for twice at once, it is made once."""
    if params.implicit and params.name is None and call.registry.id_of_key(params.key) is None:
        rows = [row for row in await call.registry.rows() if row.implicit and row.state != "closed"]
        found = next((row for row in rows if row.dir == params.dir), None)
        if found is not None:
            raise Conflict(
                f"{params.dir} has a session already: {found.name or found.id}.",
                hint=f"dshctl followup -s {found.name or found.id} 'TEXT'",
                outcome="not-written",
            )
    return await call.registry.make(params, call.peer)


async def ls(call: Call) -> Json:
    cwd = call.params.cwd
    here = wire.session_of_directory(await call.registry.rows(), cwd) if cwd is not None else None
    sessions = await call.registry.listed()  # last: who follows is told of what comes from this instant on
    shown = [one for one in sessions if is_listed(one.row.state, one.agent, call.params.all)]
    return {
        "type": "sessions",
        "sessions": [one.json for one in shown],
        "current": here.id if here else None,
        "more": 0,
        "closed": sum(one.row.state == "closed" for one in sessions),
    }


async def follow_list(call: Call) -> Answer:
    listed = await ls(call)
    follower = ListFollower(call.registry, call.link, all=call.params.all)
    return Answer(listed, lambda: call.link.follow(follower))


async def show(call: Call) -> Json:
    session = await call.session()
    return {
        **session.show_all(),
        "schedules": await call.registry.schedules.rows(session.id),
        "log": str(call.registry.store.log_path(session.id)),
    }


async def rename(call: Call) -> Json:
    return await call.registry.rename(await call.session(), call.params.name, call.peer)


async def close(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.close(call.params.clear, call.peer)


async def reopen(call: Call) -> Json:
    _session, view = await call.registry.reopen(await call.registry.get(await call.id(log=True)), call.peer)
    return view


async def delete(call: Call) -> Json:
    if call.params.session in (None, ".", ""):
        raise Invalid("say which session to remove", hint="dshctl rm NAME")
    id = await call.id(exact=True)
    return await call.registry.delete(id, call.params.force, call.peer)


async def fork(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await call.registry.fork(session, call.params, call.peer)
