"""One message: what it says, what became of it and why, and what was answered."""

from __future__ import annotations

from dshd import wire
from dshd.control.calls import Call, Json
from dshd.errors import Invalid


async def show(call: Call) -> Json:
    session = await call.session_of(call.params.message)
    return {**session.message(call.params.message), "broken": session.broken and session.broken.told()}


async def why(call: Call) -> Json:
    return (await call.session_meant()).why(call.params.message)


async def answer(call: Call) -> Json:
    params: wire.AnswerShowParams = call.params
    if params.n < 1:
        raise Invalid("counts from 1 @ $.n")
    session = await call.session_meant()
    return {**session.answer(params.message, params.n), "broken": session.broken and session.broken.told()}
