"""What the model is told, and how large it is."""

from __future__ import annotations

from dshd.control.calls import Call, Json


async def show(call: Call) -> Json:
    return await (await call.session()).prompt()
