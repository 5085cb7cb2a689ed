"""The rehearsal model: everything from the messages, a line a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from dshd.model.blocks import Assembled, Assembler
from dshd.model.chunks import Chunk
from dshd.model.errors import ModelError
from dshd.model.models import Models
from dshd.model.rehearsal.items import plan, seconds
from dshd.model.rehearsal.moves import moves
from dshd.model.request import ModelRequest, text_of, tool_calls
from dshd.prompt.compaction import asking, framed

Message = dict[str, Any]
CLOSING = "(Rehearsal. No AI was asked. To use one: dshctl key deepseek, or see man dshd.)"
CAN = (
    "I can: run: CMD, read FILE, write FILE: TEXT, what is in this directory?, wait D, fail, ask"
    " (a line each)."
)


async def answer(messages: list[Message], script: str | None = None) -> Assembled:
    models = Models({"rehearsal": {"script": script}})
    call = models.prepare_call("rehearsal")
    body = call.adapter.encode(call, ModelRequest("", tuple(messages)))
    assembler = Assembler()

    async def emit(chunk: Chunk) -> None:
        await trio.lowlevel.checkpoint()
        assembler.feed(chunk)

    await call.adapter.stream(call, body, emit)
    return assembler.result()


def said(text: str, verb: str | None = "followup", **more: Any) -> Message:
    content = [{"type": "text", "text": text}]
    return {"role": "user", "content": content, "verb": verb, "source": {"kind": "user"}, **more}


class Session:
    """Plays the driver: keeps the history and answers calls with what ``outputs`` says next."""

    def __init__(
        self, *messages: Message, outputs: dict[str, str] | None = None, script: str | None = None
    ) -> None:
        self.messages = list(messages)
        self.script = script
        self.outputs = outputs or {}

    def say(self, *messages: Message) -> None:
        self.messages.extend(messages)

    async def step(self, *, interrupted: bool = False) -> Assembled:
        got = await answer(self.messages, self.script)
        message: Message = {"role": "assistant", "content": got.content, "interrupted": interrupted}
        self.messages.append(message)
        for call in tool_calls(message):
            output = self.outputs.get(call["arguments"], "[exit 0, 0 s]")
            content = [{"type": "text", "text": output}]
            self.messages.append(
                {"role": "tool", "call": call["id"], "name": call["name"], "content": content}
            )
        return got

    async def calls(self, *, most: int = 9) -> list[tuple[str, Any]]:
        """The calls of this turn, to its end; ``text`` is then the last answer."""
        seen: list[tuple[str, Any]] = []
        for _ in range(most):
            got = await self.step()
            self.text = text_of(got.content)
            made = [(c["name"], json.loads(c["arguments"])) for c in got.content if c["type"] == "tool-call"]
            assert (got.finish == "tool-calls") == bool(made)
            assert len(made) <= 1
            if not made:
                return seen
            seen += made
        raise AssertionError("the turn does not end")


async def test_it_lists_the_directory_with_a_real_call_and_says_what_it_is() -> None:
    outputs = {'{"command":"ls"}': "Makefile\nREADME.md\nsrc\ntests\na\nb\n[exit 0, 0 s]"}
    session = Session(said("what is in this directory?"), outputs=outputs)
    assert await session.calls() == [("bash", {"command": "ls"})]
    assert session.text == f"6 entries: Makefile, README.md, src, tests, ...\n{CLOSING}"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("one\n[exit 0, 0 s]", "1 entry: one"),
        ("a\nb\nc\nd", "4 entries: a, b, c, d"),
        ("[exit 0, 0 s]", "0 entries: this directory is empty."),
        ("(no output)", "0 entries: this directory is empty."),
        ("ls: cannot open directory\n[exit 2, 0 s]", "ls: exit 2, 0 s\n  ls: cannot open directory"),
    ],
)
async def test_it_counts_what_it_was_shown(output: str, line: str) -> None:
    session = Session(said("What's in this directory"), outputs={'{"command":"ls"}': output})
    await session.calls()
    assert session.text.startswith(line)


async def test_a_line_of_the_request_is_a_step() -> None:
    session = Session(
        said("run: make\nread README.md\n\nwrite a/b.txt: hello: world\nwhat is in this directory?")
    )
    assert await session.calls() == [
        ("bash", {"command": "make"}),
        ("read", {"path": "README.md"}),
        ("write", {"path": "a/b.txt", "content": "hello: world\n"}),
        ("bash", {"command": "ls"}),
    ]
    lines = session.text.split("\n")
    assert [line for line in lines if not line.startswith(" ")] == [
        "$ make: exit 0, 0 s", "read README.md: exit 0, 0 s", "write a/b.txt: exit 0, 0 s",
        "0 entries: this directory is empty.", CLOSING,
    ]  # fmt: skip


async def test_a_long_output_is_shown_in_part() -> None:
    output = "\n".join(f"line {n}" for n in range(100)) + "\n[exit 1, 3 s]\n[network is off here]"
    session = Session(said("run: x"), outputs={'{"command":"x"}': output})
    await session.calls()
    assert session.text.startswith("$ x: exit 1, 3 s; network is off here\n  line 0\n")
    assert "... 88 more lines" in session.text


@pytest.mark.parametrize(
    "text", ["fix the tests", "", "run:", "run away", "reader x", "\ud83d", "x" * 10_000]
)
async def test_every_text_is_answered_and_repeated_with_what_it_can(text: str) -> None:
    if not text:
        got = await answer([said("hi"), said("")])
    else:
        got = await answer([said(text)])
        assert text_of(got.content).startswith(f"you asked: {text}".replace("\ud83d", "\ufffd"))
    assert got.finish == "stop"
    assert text_of(got.content).endswith(f"{CAN}\n{CLOSING}")


async def test_steers_and_injects_are_repeated_by_their_verb_and_a_command_in_a_steer_is_work() -> None:
    session = Session(said("run: sleep 20", turn=1, step=1))
    assert tool_calls({"content": (await session.step()).content})[0]["arguments"] == '{"command":"sleep 20"}'
    session.say(
        said("read README.md", "steer", turn=1, step=2), said("it is Monday", "inject", turn=1, step=2)
    )
    got = await session.step()
    assert text_of(got.content) == "you steered: read README.md\nI was told: it is Monday"
    assert [c["arguments"] for c in tool_calls({"content": got.content})] == ['{"path":"README.md"}']
    assert text_of((await session.step()).content).split("\n") == [
        "$ sleep 20: exit 0, 0 s", "you steered: read README.md", "I was told: it is Monday",
        "read README.md: exit 0, 0 s", CLOSING,
    ]  # fmt: skip


async def test_ten_steers_are_ten_lines_in_order() -> None:
    session = Session(said("run: a"), *[said(f"steer {n}", "steer") for n in range(10)])
    await session.calls()
    assert [line for line in session.text.split("\n") if line.startswith("you")] == [
        f"you steered: steer {n}" for n in range(10)
    ]


async def test_what_is_repeated_comes_before_the_work_that_is_left() -> None:
    session = Session(said("run: a\nrun: b"))
    await session.step()
    session.say(said("hurry", "steer"))
    got = await session.step()
    assert text_of(got.content) == "you steered: hurry"
    assert tool_calls({"content": got.content})[0]["arguments"] == '{"command":"b"}'


async def test_an_inject_too_late_for_the_last_step_is_repeated_alone() -> None:
    session = Session(said("run: a"))
    await session.calls()
    session.say(said("by the way", "inject"))
    assert await session.calls() == []
    assert session.text == f"I was told: by the way\n{CLOSING}"


async def test_what_waited_for_the_turn_is_repeated_with_it() -> None:
    session = Session(said("be quick", "steer"), said("it is Monday", "inject"), said("run: a"))
    assert await session.calls() == [("bash", {"command": "a"})]
    assert session.text.startswith("you steered: be quick\nI was told: it is Monday\n$ a: exit 0, 0 s\n")


async def test_what_the_system_says_is_not_repeated() -> None:
    context = {**said("time: 12:00", "inject"), "source": {"kind": "system"}}
    session = Session(said("run: a"), context)
    assert await session.calls() == [("bash", {"command": "a"})]
    assert "12:00" not in session.text


async def test_each_followup_is_its_own_work() -> None:
    session = Session(said("run: a"))
    await session.calls()
    session.say(said("run: b"))
    assert await session.calls() == [("bash", {"command": "b"})]
    assert session.text.startswith("$ b: ")


@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_the_work_left_of_an_aborted_turn_is_dropped_by_the_message_that_opens_the_next(
    verb: str,
) -> None:
    session = Session(said("run: a\nrun: b\nrun: c", turn=1, step=1))
    await session.step()
    session.say(said("run: d", verb, turn=2, step=1))
    assert await session.calls() == [("bash", {"command": "d"})]


async def test_a_turn_that_was_aborted_before_it_answered_leaves_nothing() -> None:
    for second in (said("run: b"), said("run: b", turn=2, step=1)):
        session = Session(said("run: a", turn=1, step=1), second)
        assert await session.calls() == [("bash", {"command": "b"})]
    assert await Session(said("run: a"), said("run: b")).calls() == [("bash", {"command": "b"})]


async def test_a_retried_turn_goes_on_where_it_stood() -> None:
    session = Session(said("run: a\nrun: b", turn=1, step=1))
    await session.step()
    session.say({**said("you were restarted", "inject", turn=2, step=1), "source": {"kind": "system"}})
    assert await session.calls() == [("bash", {"command": "b"})]


async def test_an_answer_that_was_cut_took_nothing_off_the_list(autojump_clock: MockClock) -> None:
    session = Session(said("wait 1h\nrun: a", turn=1, step=1))
    session.say(
        {"role": "assistant", "content": [{"type": "text", "text": "waiting 1h"}], "interrupted": True}
    )
    began = trio.current_time()
    await session.step()
    assert trio.current_time() - began == 3600


# -- wait, fail, ask


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("5", 5),
        ("0.5", 0.5),
        ("200ms", 0.2),
    ],
)
async def test_it_waits_as_long_as_it_is_told(
    autojump_clock: MockClock, duration: str, expected: float
) -> None:
    began = trio.current_time()
    got = await answer([said(f"wait {duration}")])
    assert trio.current_time() - began == pytest.approx(expected)
    assert seconds(duration) == expected
    assert text_of(got.content) == f"waiting {duration}\n{CLOSING}"


async def test_it_waits_before_what_comes_after_and_only_once(autojump_clock: MockClock) -> None:
    session = Session(said("run: a\nwait 10\nrun: b\nrun: c"))
    began = trio.current_time()
    assert [call[1]["command"] for call in await session.calls()] == ["a", "b", "c"]
    assert trio.current_time() - began == 10
    assert "\nwaited 10\n" in session.text


@pytest.mark.parametrize("line", ["fail", "FAIL"])
async def test_it_fails_when_told_to_in_a_way_that_is_not_retried(line: str) -> None:
    session = Session(said(f"run: a\n{line}\nrun: b"))
    await session.step()
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await session.step()
        assert (caught.value.code, caught.value.retryable) == ("INVALID_REQUEST", False)
    session.say(said("run: c"))
    assert await session.calls() == [("bash", {"command": "c"})]


async def test_it_asks_when_told_to_and_goes_on_with_what_is_said_then() -> None:
    session = Session(said("run: a\nask"))
    await session.calls()
    assert "What shall I do next?" in session.text
    session.say(said("read x"))
    assert await session.calls() == [("read", {"path": "x"})]


# -- the same again


lines = st.sampled_from(
    ["run: a", "read x", "write y: z", "what is in this directory?", "hello", "ask", "fail", "wait 0"]
)
user_messages = st.builds(
    said, st.lists(lines, max_size=3).map("\n".join), st.sampled_from(["followup", "steer", "inject", None])
)


@given(st.lists(st.one_of(user_messages, st.none()), max_size=10))
def test_any_conversation_gets_answers_that_end_and_that_are_the_same_again(
    script: list[Message | None],
) -> None:
    """None stands for a step of the model."""
    messages: list[Message] = []
    for entry in script:
        if entry is not None:
            messages.append(entry)
            continue
        first, again = list(moves(plan(messages))), list(moves(plan(json.loads(json.dumps(messages)))))
        assert repr(first) == repr(again)
        play(messages, first)
    for _ in range(40):
        made = list(moves(plan(messages)))
        if not play(messages, made):
            return
    raise AssertionError("the work does not end")


def play(messages: list[Message], made: list[Any]) -> bool:
    """Adds what the driver would; True if a call was made."""
    if any(isinstance(move, ModelError) for move in made):
        return False
    call = made[-1] if made and not isinstance(made[-1], str) and hasattr(made[-1], "kind") else None
    content: list[dict[str, Any]] = [{"type": "text", "text": "x"}]
    if call is not None:
        content.append({"type": "tool-call", "id": f"c{len(messages)}", "name": "t", "arguments": "{}"})
    messages.append({"role": "assistant", "content": content})
    if call is not None:
        messages.append({"role": "tool", "call": content[1]["id"], "content": [], "is_error": False})
    return call is not None


# -- scripts


SCRIPT = [
    {
        "reasoning": "hm",
        "text": "a b c",
        "chunks": 3,
        "tools": [{"name": "bash", "arguments": {"command": "ls"}}],
    },
    {"text": "done", "usage": {"output": 7}},
    {"text": "half", "error": {"code": "SERVER", "message": "made to fail"}},
]


@pytest.mark.parametrize("as_lines", [True, False])
async def test_a_script_is_played_an_answer_for_each_that_was_given(tmp_path: Path, as_lines: bool) -> None:
    path = tmp_path / "script.json"
    path.write_text("\n".join(map(json.dumps, SCRIPT)) if as_lines else json.dumps(SCRIPT))
    session = Session(said("anything"), script=str(path))
    first = await session.step()
    assert [block["type"] for block in first.content] == ["reasoning", "text", "tool-call"]
    assert first.content[2]["arguments"] == '{"command":"ls"}'
    second = await session.step()
    assert (text_of(second.content), second.finish) == ("done", "stop")
    assert second.usage is not None
    assert second.usage["output"] == 7
    with pytest.raises(ModelError) as caught:
        await session.step()
    assert (caught.value.code, caught.value.message) == ("SERVER", "made to fail")
    session.say({"role": "assistant", "content": [{"type": "text", "text": "x"}]})
    assert text_of((await session.step()).content) == "end of script"


@pytest.mark.parametrize("text", [None, "{", "[1]", "nonsense"])
async def test_a_script_that_cannot_be_played_is_told_with_its_path(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "script.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ModelError, match=r"script\.json can't be played"):
        await answer([said("x")], str(path))


async def test_no_key_and_no_network_are_needed() -> None:
    call = Models().prepare_call("rehearsal")
    assert call.rehearsal
    assert await call.credentials.key() is None


async def test_asked_to_sum_up_it_tells_what_was_said_and_goes_on_with_the_work_that_is_left() -> None:
    history: list[Message] = [
        {"role": "user", "content": [{"type": "text", "text": "run: true\nrun: false"}], "verb": "followup"},
        {"role": "assistant", "content": [{"type": "text", "text": "hm"}], "model": None},
    ]
    asked = asking("sum up")
    found = await answer([*history, asked])
    assert not [block for block in found.content if block["type"] == "tool-call"]
    assert text_of(found.content).splitlines()[:2] == [
        "## Task: 1 message, the newest last:",
        "- run: true run: false",
    ]
    stands = {"role": "user", "content": framed(text_of(found.content)), "verb": "inject",
              "source": {"kind": "system", "via": "compaction"}}  # fmt: skip
    after = await answer([stands, {"role": "user", "content": [{"type": "text", "text": "run: true"}]}])
    assert [block["name"] for block in after.content if block["type"] == "tool-call"] == ["bash"]
