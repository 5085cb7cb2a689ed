"""Whatever stands in the log, what is sent is a history that a strict provider takes."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshd.model.adapter import PreparedCall
from dshd.model.checker import NO_OUTPUT, check
from dshd.model.errors import ModelError
from dshd.model.http import Http
from dshd.model.openai import OpenAI
from dshd.model.profiles import Profile
from dshd.model.request import Memo, ModelRequest, ToolSpec
from tests.amount import examples

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}], "verb": "steer", "source": {}}


def said(*blocks: dict[str, Any]) -> Message:
    return {"role": "assistant", "content": list(blocks), "model": "mock"}


def call(ident: str, arguments: str = "{}", name: str = "bash") -> dict[str, Any]:
    return {"type": "tool-call", "id": ident, "name": name, "arguments": arguments}


def result(ident: str, text: str = "ok") -> Message:
    content = [{"type": "text", "text": text}] if text else []
    return {"role": "tool", "call": ident, "name": "bash", "content": content, "is_error": False}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def reasoning(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "text": value, **more}


def request(*messages: Message) -> ModelRequest:
    return ModelRequest("system", messages, (ToolSpec("bash", "", {"type": "object"}),))


def checked(*messages: Message) -> list[Message]:
    return list(check(request(*messages)).messages)


def shape(messages: list[Message]) -> list[str]:
    return [f"tool {m['call']}" if m["role"] == "tool" else m["role"] for m in messages]


def wire(*messages: Message, **flags: Any) -> list[Message]:
    prepared = PreparedCall("mock", OpenAI(Http()), "mock", profile=Profile(**flags))
    body = json.loads(prepared.adapter.encode(prepared, request(*messages)))
    return body["messages"]  # type: ignore[no-any-return]


TURNLESS = {("user", "user"), ("tool", "user"), ("assistant", "assistant")}


def strict(messages: list[Message], *, alternate: bool = False) -> None:
    """What the strictest servers ask of a history; AssertionError if it isn't so."""
    assert messages[0]["role"] == "system"
    assert messages[1]["role"] == "user"
    assert messages[-1]["role"] in {"user", "tool"}
    seen: set[str] = set()
    owed: list[str] = []
    before = "system"
    for message in messages[1:]:
        assert (message["role"] == "tool") == bool(owed), "results follow their calls, and nothing else does"
        assert not alternate or (before, message["role"]) not in TURNLESS
        OBEY[message["role"]](message, owed, seen)
        before = message["role"]
    assert not owed


def _obey_user(message: Message, owed: list[str], seen: set[str]) -> None:
    assert message["content"].strip()


def _obey_assistant(message: Message, owed: list[str], seen: set[str]) -> None:
    calls = message.get("tool_calls", [])
    assert calls or message["content"].strip()
    assert "tool_calls" not in message or calls
    for one in calls:
        assert one["id"] not in seen
        assert one["function"]["name"]
        assert isinstance(json.loads(one["function"]["arguments"]), dict)
        seen.add(one["id"])
        owed.append(one["id"])


def _obey_tool(message: Message, owed: list[str], seen: set[str]) -> None:
    assert message["tool_call_id"] == owed.pop(0)
    assert message["content"].strip()


OBEY = {"user": _obey_user, "assistant": _obey_assistant, "tool": _obey_tool}

idents = st.sampled_from(["c1", "c2", "c3", "", "functions.bash:0", "x" * 60])
words = st.one_of(st.sampled_from(["", " ", "\n", "a", "\ud83d", "\ude00\ud83d"]), st.text(max_size=3))
arguments = st.sampled_from(["", "{}", '{"a":1}', '{"a', "[]", "null", "7", '{"a":"\\ud83d"}', "\ud83d"])
blocks = st.one_of(
    st.builds(text, words),
    st.builds(reasoning, words, incomplete=st.booleans()),
    st.builds(call, idents, arguments, st.sampled_from(["bash", "read", ""])),
    st.just({"type": "x-future", "what": 1}),
    st.just({"type": "image", "hash": "abc"}),
)
messages = st.one_of(
    st.builds(user, words),
    st.builds(lambda blocks: said(*blocks), st.lists(blocks, max_size=4)),
    st.builds(result, idents, words),
    st.builds(lambda blocks: {**user(""), "content": blocks}, st.lists(blocks, max_size=2)),
)
histories = st.lists(messages, max_size=12)


@settings(max_examples=examples(150))
@given(histories, st.booleans(), st.booleans())
def test_any_history_becomes_one_that_the_strictest_server_takes(
    history: list[Message], ids: bool, alternate: bool
) -> None:
    try:
        got = wire(*history, strict_ids=ids, alternate=alternate)
    except ModelError as error:
        assert error.code == "INVALID_REQUEST"  # noqa: PT017 - the only way to fail, for an empty history
        return
    strict(got, alternate=alternate)


@settings(max_examples=examples(100))
@given(histories)
def test_checking_twice_changes_nothing_and_checking_does_not_touch_what_it_is_given(
    history: list[Message],
) -> None:
    before = repr(history)
    try:
        once = check(request(*history))
    except ModelError:
        return
    assert check(once) == once
    assert repr(history) == before


@settings(max_examples=examples(100))
@given(histories, st.lists(st.integers(0, 12), max_size=5), st.sampled_from(["never", "tools", "always"]))
def test_a_history_that_grows_or_is_replaced_is_encoded_as_if_it_were_new(
    history: list[Message], ends: list[int], back: Any
) -> None:
    """What is kept from one request to the next changes nothing of the bytes."""
    memo = Memo()
    prepared = PreparedCall("mock", OpenAI(Http()), "mock", profile=Profile(reasoning_back=back))
    for end in [*ends, len(history)]:
        shown = request(user("begin"), *history[:end])
        kept = attrs.evolve(shown, memo=memo)
        assert prepared.adapter.encode(prepared, kept) == prepared.adapter.encode(prepared, shown)


def test_tools_that_change_from_one_request_to_the_next_are_the_ones_sent() -> None:
    memo = Memo()
    prepared = PreparedCall("mock", OpenAI(Http()), "mock")
    one, other = (ToolSpec("bash", "", {"type": "object"}),), (ToolSpec("b\ud800", "x", {}),)
    for tools in (one, other, one, ()):
        shown = attrs.evolve(request(user("a")), tools=tools)
        kept = attrs.evolve(shown, memo=memo)
        assert prepared.adapter.encode(prepared, kept) == prepared.adapter.encode(prepared, shown)


def test_a_result_that_comes_late_takes_the_place_of_the_one_made_up() -> None:
    memo = Memo()
    history = [user("a"), said(call("c1")), user("steer")]
    assert check(attrs.evolve(request(*history), memo=memo)).messages[2]["is_error"]
    late = [*history, result("c1")]
    assert shape(list(check(attrs.evolve(request(*late), memo=memo)).messages)) == [
        "user", "assistant", "tool c1", "user",
    ]  # fmt: skip
    assert not check(attrs.evolve(request(*late), memo=memo)).messages[2]["is_error"]


def test_a_right_history_comes_back_equal() -> None:
    history = [user("a"), said(text("b"), call("c1")), result("c1"), said(text("c")), user("d")]
    assert checked(*history) == history


def test_a_steer_between_a_call_and_its_result_comes_after_it() -> None:
    assert shape(checked(user("a"), said(call("c1")), user("steer"), result("c1"))) == [
        "user", "assistant", "tool c1", "user",
    ]  # fmt: skip


def test_a_steer_between_parallel_results_comes_after_all_of_them_in_the_calls_order() -> None:
    got = checked(user("a"), said(call("c1"), call("c2")), result("c2"), user("steer"), result("c1"))
    assert shape(got) == ["user", "assistant", "tool c1", "tool c2", "user"]


def test_two_steers_keep_their_order() -> None:
    got = checked(user("a"), said(call("c1")), user("1"), user("2"), result("c1"), user("3"))
    assert [m["content"][0]["text"] for m in got if m["role"] == "user"] == ["a", "1", "2", "3"]


def test_an_answer_that_stands_before_a_late_result_stays_behind_it() -> None:
    got = checked(user("a"), said(call("c1")), said(text("b")), result("c1"), user("c"))
    assert shape(got) == ["user", "assistant", "tool c1", "assistant", "user"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    got = checked(user("a"), said(call("c1"), call("c2")), result("c1"), user("b"))
    assert shape(got) == ["user", "assistant", "tool c1", "tool c2", "user"]
    assert got[3]["is_error"]
    assert "interrupted" in got[3]["content"][0]["text"]


def test_a_result_without_its_call_is_left_out() -> None:
    assert shape(checked(user("a"), result("c1"), user("b"))) == ["user", "user"]


def test_a_second_result_of_a_call_is_left_out() -> None:
    got = checked(user("a"), said(call("c1")), result("c1", "first"), result("c1", "late"), user("b"))
    assert shape(got) == ["user", "assistant", "tool c1", "user"]
    assert got[2]["content"] == [text("first")]


def test_two_calls_with_one_id_get_two_ids_and_a_result_each() -> None:
    got = checked(user("a"), said(call("dup"), call("dup")), result("dup", "1"), result("dup", "2"))
    assert shape(got) == ["user", "assistant", "tool dup", "tool dup-2"]
    assert [m["content"][0]["text"] for m in got if m["role"] == "tool"] == ["1", "2"]


def test_an_id_used_again_in_a_later_answer_keeps_its_own_result() -> None:
    got = checked(user("a"), said(call("c1")), said(call("c1")), result("c1", "of the second"), user("b"))
    assert shape(got) == ["user", "assistant", "tool c1", "assistant", "tool c1-2", "user"]
    assert got[2]["is_error"]
    assert got[4]["content"][0]["text"] == "of the second"


@pytest.mark.parametrize("empty", [[], [text("")], [text(" \n")], [reasoning("thought only")]])
def test_an_answer_that_says_nothing_is_not_sent(empty: list[dict[str, Any]]) -> None:
    history = [user("a"), said(*empty), user("b"), said(*empty), user("c")]
    assert shape(checked(*history)) == ["user", "user", "user"]


def test_the_result_of_a_silent_tool_says_that() -> None:
    got = checked(user("a"), said(call("c1")), result("c1", ""))
    assert got[-1]["content"] == [text(NO_OUTPUT)]
    assert wire(user("a"), said(call("c1")), result("c1", ""))[-1]["content"] == NO_OUTPUT


def test_half_a_reasoning_block_is_not_sent_back() -> None:
    got = checked(user("a"), said(reasoning("half", incomplete=True), text("b")), user("c"))
    assert got[1]["content"] == [text("b")]


@pytest.mark.parametrize("cut", ['{"path":"a', "", "[1]", "not json", '"text"'])
def test_arguments_that_are_no_object_are_sent_as_an_empty_one(cut: str) -> None:
    got = checked(user("a"), said(call("c1", cut)), result("c1"))
    assert got[1]["content"][0]["arguments"] == "{}"


def test_arguments_that_are_an_object_are_sent_as_they_came() -> None:
    got = checked(user("a"), said(call("c1", '{"a": 1.0 ,"b":"\\u2028"}')), result("c1"))
    assert got[1]["content"][0]["arguments"] == '{"a": 1.0 ,"b":"\\u2028"}'


def test_half_a_surrogate_pair_is_replaced_everywhere() -> None:
    half = json.loads('"\\ud83d"')
    got = check(
        ModelRequest(
            half,
            (user(half), said(text(half), call("c1")), result("c1", half)),
            (ToolSpec("t", half, {"d": half}),),
        )
    )
    assert repr(got).count("\ufffd") == 6
    assert "\\ud83d" not in repr(got)


def test_a_pair_in_two_halves_is_its_character() -> None:
    assert checked(user("\ud83d\ude00"))[0]["content"][0]["text"] == "\U0001f600"


def test_an_empty_history_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        checked(said(text(" ")))
    assert caught.value.code == "INVALID_REQUEST"


def test_the_model_never_speaks_last_or_first() -> None:
    assert shape(checked(said(text("a")))) == ["user", "assistant", "user"]


@pytest.mark.parametrize("levels", [90, 500, 3000])
def test_a_call_that_is_nested_too_deeply_does_not_go_back(levels: int) -> None:
    raw = '{"x": ' + "[" * levels + "]" * levels + "}"
    called = {"type": "tool-call", "id": "c", "name": "todo", "arguments": raw}
    history = [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [called]},
        {"role": "tool", "call": "c", "content": [{"type": "text", "text": "no"}]},
    ]  # fmt: skip
    request = check(ModelRequest(system="", messages=tuple(history), tools=()))
    sent = next(m for m in request.messages if m["role"] == "assistant")["content"][0]["arguments"]
    assert sent == (raw if levels < 100 else "{}")
