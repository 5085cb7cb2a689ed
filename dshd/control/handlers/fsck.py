"""``fsck``: one log looked at, or all of them, and a damaged one repaired."""

from __future__ import annotations

import trio

from dshd import wire
from dshd.control.calls import Call, Json
from dshd.errors import DshError, Invalid


async def fsck(call: Call) -> Json:
    params: wire.FsckParams = call.params
    if params.all and params.session is not None:
        raise Invalid("either one session or all @ $.all")
    ids = await call.registry.all_logs() if params.all else [await call.id(log=True)]
    if params.repair and params.all:
        raise Invalid("repair one session at a time", hint="dshctl fsck --repair NAME")
    if params.repair:
        call.rights.check("fsck --repair", True, "no")
        with trio.CancelScope(shield=True):  # it rewrites a file: to be ended, whoever asked
            report = await call.registry.repair(ids[0], call.peer)
        return _report([await call.registry.fsck(ids[0], requests=True) if params.requests else report])
    if not params.all:
        return _report([await call.registry.fsck(ids[0], requests=params.requests)])
    return _report([await _one(call, id) for id in ids])


async def _one(call: Call, id: str) -> Json:
    """One of all: what can't be looked at is a finding, and the others are looked at."""
    try:
        return await call.registry.fsck(id, requests=call.params.requests)
    except DshError as error:
        return {
            "type": "fsck", "session": id, "name": id, "ok": False, "events": 0, "bytes": 0,
            "problem": error.message, "hint": error.hint, "requests": None, "exit": 7,
        }  # fmt: skip


def _report(reports: list[Json]) -> Json:
    return {"type": "fsck", "exit": max((r["exit"] for r in reports), default=0), "sessions": reports}
