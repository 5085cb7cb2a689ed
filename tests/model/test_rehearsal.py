"""The rehearsal model: everything from the messages, a line a step."""

from __future__ import annotations

import trio

from dshd.model.blocks import Assembled, Assembler
from dshd.model.models import Models
from dshd.model.request import ModelRequest, ToolSpec, text_of, tool_calls


async def answer(messages: list[dict[str, object]]) -> Assembled:
    call = Models().prepare_call("rehearsal")
    body = call.adapter.encode(call, ModelRequest("", tuple(messages), (ToolSpec("bash", "", {}),)))
    assembler = Assembler()

    async def emit(chunk: object) -> None:
        await trio.lowlevel.checkpoint()
        assembler.feed(chunk)  # type: ignore[arg-type]

    with trio.fail_after(5):
        await call.adapter.stream(call, body, emit)
    return assembler.result()


def user(text: str, verb: str | None = "followup", **more: object) -> dict[str, object]:
    source = {"kind": "user" if verb else "system"}
    return {
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "verb": verb,
        "source": source,
        **more,
    }


class Turn:
    """Plays the driver: keeps the history, answers calls."""

    def __init__(self) -> None:
        self.messages: list[dict[str, object]] = []

    async def step(self, output: str = "ok", is_error: bool = False, interrupted: bool = False) -> Assembled:
        got = await answer(self.messages)
        message: dict[str, object] = {"role": "assistant", "content": got.content, "model": "rehearsal"}
        if interrupted:
            message["interrupted"] = True
        self.messages.append(message)
        for call in tool_calls(message):
            self.messages.append(
                {
                    "role": "tool",
                    "call": call["id"],
                    "name": call["name"],
                    "content": [{"type": "text", "text": output}],
                    "is_error": is_error,
                }
            )
        return got


async def test_lists_the_directory_with_a_real_call_and_says_what_it_is() -> None:
    turn = Turn()
    turn.messages.append(user("what is in this directory?"))
    first = await turn.step("Makefile\nREADME.md\nsrc\ntests\na\nb")
    assert [(block["name"], block["arguments"]) for block in first.content] == [("bash", '{"command":"ls"}')]
    assert first.finish == "tool-calls"
    last = await turn.step()
    assert text_of(last.content).split("\n") == [
        "6 entries: Makefile, README.md, src, tests, ...",
        "(Rehearsal. No AI was asked. To use one: dshctl key deepseek, or see man dshd.)",
    ]
    assert last.finish == "stop"
