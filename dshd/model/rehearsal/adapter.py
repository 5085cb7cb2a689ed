"""The adapter: what is to be done, as chunks."""

from __future__ import annotations

import orjson

from dshd.model.adapter import Emit, PreparedCall
from dshd.model.checker import check
from dshd.model.chunks import (
    BlockEnd,
    BlockStart,
    TextDelta,
    ToolCallDelta,
)
from dshd.model.errors import ModelError
from dshd.model.rehearsal.items import CALLS, Item, plan
from dshd.model.rehearsal.moves import Wait, is_to_sum_up, moves, summary
from dshd.model.rehearsal.script import call_id, end, load, play
from dshd.model.request import Message, ModelRequest


class Rehearsal:
    """The adapter. ``encode`` writes the neutral request itself."""

    name = "rehearsal"
    encoder = "rehearsal/1"

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        """The checked request as JSON."""
        request = check(request)
        written = request.memo.text("rehearsal", request.messages, orjson.dumps)
        return orjson.dumps(
            {
                "model": call.model,
                "system": request.system,
                "messages": orjson.Fragment(b"[" + written + b"]"),
                "tools": [tool.name for tool in request.tools],
            }
        )

    async def stream(self, call: PreparedCall, body: bytes, emit: Emit) -> None:
        """Plays the answer. *Cancellation*: at any point."""
        messages = orjson.loads(body)["messages"]
        if call.script:
            await play(await load(call.script), messages, body, emit)
        else:
            await _answer(messages, body, emit)


async def _answer(messages: list[Message], body: bytes, emit: Emit) -> None:
    import trio

    said = 0
    call: Item | None = None
    for move in summary(messages) if is_to_sum_up(messages) else moves(plan(messages)):
        if isinstance(move, ModelError):
            raise move
        if isinstance(move, Item):
            call = move
        elif isinstance(move, Wait):
            await trio.sleep(move.seconds)
        else:
            said += await _say_line(move, said, emit)
    if said:
        await emit(BlockEnd(0))
    if call is not None:
        tool, arguments = CALLS[call.kind]
        await _emit_call(1, call_id(messages, 0), tool, orjson.dumps(arguments(call)).decode(), emit)
    await end(body, said, "tool-calls" if call else "stop", None, emit)


async def _say_line(line: str, said: int, emit: Emit) -> int:
    if not said:
        await emit(BlockStart(0, "text"))
    text = ("\n" if said else "") + line
    await emit(TextDelta(0, text))
    return len(text)


async def _emit_call(index: int, ident: str, name: str, arguments: str, emit: Emit) -> None:
    await emit(BlockStart(index, "tool-call", ident, name))
    await emit(ToolCallDelta(index, arguments))
    await emit(BlockEnd(index))
