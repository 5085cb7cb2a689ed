"""The daemon itself: greeting, status, reload, stop; and its models."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dshd.control.calls import Answer, Call, Handler, Json
from dshd.log.writer import hop
from dshd.session.deciding import budget
from dshd.tools.sandbox import detect


def greeting(methods: Callable[[], Iterable[str]]) -> Handler:
    """The handler of ``daemon.hello``; ``methods`` gives the names of all that can be asked."""

    async def hello(call: Call) -> Json:
        rights = call.link.greet(call.params)
        permissions = {"read": True, "write": rights.writes, "kind": rights.peer.kind}
        return {**call.room.process.hello(), "capabilities": sorted(methods()), "permissions": permissions}

    return hello


async def status(call: Call) -> Json:
    sessions = await call.registry.views(True)
    closed = [one for one in sessions if one["state"] == "closed"]
    spool = call.room.spool
    spooled = await hop(spool.disk, spool.counts)
    return {
        **call.room.process.status(),
        "type": "status",
        "exit": 0,
        "today": _today(call),
        "sessions": [one for one in sessions if one["state"] != "closed"],
        "closed": len(closed),
        "closed_bytes": sum(one["bytes"] or 0 for one in closed),
        "scheduled": await call.registry.schedules.summary(),
        "spool": {**spooled._asdict(), "dir": str(spool.path)},
    }


def _today(call: Call) -> Json:
    """What all sessions spent since midnight, and the limit, if there is one."""
    services = call.registry.services
    config, spent = services.config(), services.days.today(services.now())
    limit = budget.day_limit(config, spent)
    return {
        "tokens": spent.get("tokens") or None,
        "cost": spent.get("cost"),
        "currency": spent.get("currency") or (config.currency if limit else None),
        "limit": limit or None,
    }


async def reload(call: Call) -> Json:
    return await call.room.process.reload()


async def stop(call: Call) -> Answer:
    running = sum(one["state"] == "running" for one in await call.registry.views(False))
    return Answer({"type": "stopping", "exit": 0, "running": running}, call.room.process.stop)


async def doctor(call: Call) -> Json:
    """What is well here and what isn't. A sandbox is tried once, nothing is asked of model servers."""
    sessions = await call.registry.views(True)
    spool, services = call.room.spool, call.registry.services
    spooled = await hop(spool.disk, spool.counts)
    found = await detect(services.spawner)
    said = {**spooled._asdict(), "dir": str(spool.path)}
    checks = await hop(spool.disk, lambda: call.room.process.examined(found, sessions, said))
    return {"type": "doctor", "checks": checks}


async def models(call: Call) -> Json:
    models = call.registry.services.models
    return {"type": "models", "models": models.rows(), "default": models.likely()}
