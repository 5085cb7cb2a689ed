"""Sessions as files: export, and import of what was put before."""

from __future__ import annotations

import base64
from typing import Final

import trio

from dshd import wire
from dshd.control import jsonrpc
from dshd.control.calls import Call, Json
from dshd.control.handlers.logs import look_for_damage

PIECE: Final = 384 * 1024  # bytes in one notification, before base64


async def export(call: Call) -> Json:
    """The file as notifications, at the pace at which the client takes them, then the answer."""
    id = await call.id()
    exported = await call.registry.export(id)
    size = 0
    while piece := await exported.next():
        async with call.link.reading:
            for start in range(0, len(piece), PIECE):
                await call.link.room()
                data = base64.b64encode(piece[start : start + PIECE]).decode()
                call.link.write(jsonrpc.notification_line("export.piece", {"session": id, "data": data}))
        size += len(piece)
    log = call.room.hub.log(id)
    await look_for_damage(call, id, log)
    return {"type": "exported", "exit": 0, "session": id, "name": exported.name, "bytes": size,
            "damage": log.damage}  # fmt: skip


async def take(call: Call) -> Json:
    """A file that `attachment.put` has put on this connection."""
    params: wire.ImportParams = call.params
    async with call.link.in_order:
        file = call.link.uploads.file(params.upload)
    try:
        return await call.registry.take(file.read, params, call.peer)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(file.close)
