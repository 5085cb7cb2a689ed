"""The body in the chat-completions dialect: deterministic, and the quirks go by the model."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from dshd.model.adapter import PreparedCall
from dshd.model.checker import NO_OUTPUT
from dshd.model.http import Http
from dshd.model.models import Models
from dshd.model.openai import OpenAI
from dshd.model.openai_request import MAX_ID, wire_id
from dshd.model.profiles import Profile, profile_for
from dshd.model.request import ModelRequest, ToolSpec
from tests.model.test_checker import Message, call, reasoning, request, result, said, strict, text, user


def body(asked: ModelRequest, profile: Profile | None = None, **fields: Any) -> dict[str, Any]:
    prepared = PreparedCall("mock", OpenAI(Http()), "mock", profile=profile or Profile(), **fields)
    return json.loads(prepared.adapter.encode(prepared, asked))  # type: ignore[no-any-return]


def sent(*messages: Message, **flags: Any) -> list[Message]:
    return body(request(*messages), Profile(**flags))["messages"]  # type: ignore[no-any-return]


LOOP = [user("a"), said(reasoning("r"), call("c1")), result("c1")]


def test_the_whole_body() -> None:
    asked = ModelRequest(
        "be good", (user("hi"),), (ToolSpec("bash", "runs", {"type": "object"}),), 100, {"temperature": 0}
    )
    assert body(asked) == {
        "model": "mock",
        "messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "bash", "description": "runs", "parameters": {"type": "object"}},
            }
        ],
        "max_tokens": 100,
        "temperature": 0,
    }


def test_what_has_no_value_is_left_out() -> None:
    got = body(ModelRequest("", (user("hi"),)), attrs.evolve(Profile(), stream_usage=False))
    assert got == {"model": "mock", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def test_the_calls_limit_counts_unless_the_request_has_its_own() -> None:
    assert body(request(user("a")), max_tokens=7)["max_tokens"] == 7
    assert body(attrs.evolve(request(user("a")), max_tokens=5), max_tokens=7)["max_tokens"] == 5
    newer = profile_for("gpt-5.1")
    assert body(request(user("a")), newer, max_tokens=7)["max_completion_tokens"] == 7


def test_the_same_request_gives_the_same_bytes_again_from_what_was_logged() -> None:
    models = Models(
        {"fast": {"adapter": "openai", "base_url": "http://x", "model": "deepseek-v4", "max_tokens": 9}}
    )
    prepared = models.prepare_call("fast")
    asked = request(*LOOP)
    logged = json.loads(json.dumps(prepared.context()))
    again = ModelRequest(
        **{**attrs.asdict(asked, recurse=False), "messages": tuple(json.loads(json.dumps(asked.messages)))}
    )
    encoded = prepared.adapter.encode(prepared, asked)
    assert models.rebuild(logged, "openai/1", again) == encoded
    assert Models().rebuild(logged, "openai/1", again) == encoded
    assert models.rebuild(logged, "openai/0", again) is None


def test_a_call_and_its_result_on_the_wire() -> None:
    got = sent(user("a"), said(text("b"), call("c1", '{"x":1}')), result("c1", "out"))
    assert got[2:] == [
        {"role": "assistant", "content": "b", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"x":1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
    ]  # fmt: skip


def test_an_answer_of_calls_alone_has_empty_content_or_null_where_a_model_wants_that() -> None:
    assert sent(*LOOP)[2]["content"] == ""
    assert sent(*LOOP, null_content=True)[2]["content"] is None


def test_texts_of_one_message_stand_on_lines_of_their_own_and_as_sent() -> None:
    message = {**user(""), "content": [text("a"), text("b\n"), text(" c ")]}
    assert sent(message)[1]["content"] == "a\nb\n c "


def test_a_steer_is_a_user_message_without_a_mark() -> None:
    assert sent(*LOOP, user("use the new fixture"))[-1] == {"role": "user", "content": "use the new fixture"}


def test_images_go_to_models_that_take_them_and_are_named_to_others() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "AAAA", "name": "x.png"}
    message = {**user(""), "content": [text("see"), image]}
    assert sent(message)[1]["content"] == "see\n[image x.png]"
    assert sent(message, images=True)[1]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]


def test_a_result_with_only_unknown_blocks_is_not_empty() -> None:
    odd = {**result("c1"), "content": [{"type": "x-future"}]}
    assert sent(user("a"), said(call("c1")), odd)[-1]["content"] == NO_OUTPUT


@pytest.mark.parametrize("ident", ["functions.bash:0", "x" * (MAX_ID + 1), "ümlaut", "a b"])
def test_ids_that_a_server_may_refuse_are_replaced_on_both_sides(ident: str) -> None:
    got = sent(user("a"), said(call(ident)), result(ident))
    assert got[2]["tool_calls"][0]["id"] == got[3]["tool_call_id"] != ident


def test_strict_ids_have_nine_characters() -> None:
    assert wire_id("t1_1_1", strict=False) == "t1_1_1"
    short = wire_id("t1_1_1", strict=True)
    assert len(short) == 9
    assert short.isalnum()
    assert wire_id("t1_1_2", strict=True) != short


def test_a_template_that_wants_turns_gets_them() -> None:
    got = sent(user("a"), user("b"), said(call("c1")), result("c1"), user("c"), user("d"), alternate=True)
    assert [m["role"] for m in got] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert got[1]["content"] == "a\n\nb"
    assert got[-1]["content"] == "c\n\nd"


# -- reasoning that goes back


def thoughts(*messages: Message, back: str) -> list[str | None]:
    """What each assistant message on the wire carries as reasoning."""
    got = sent(*messages, reasoning_back=back)
    return [m.get("reasoning_content") for m in got if m["role"] == "assistant"]


def test_by_default_reasoning_stays_here() -> None:
    assert thoughts(*LOOP, back="never") == [None]


def test_inside_the_tool_loop_it_goes_back_verbatim_and_in_plain_chat_it_does_not() -> None:
    assert thoughts(*LOOP, back="tools") == ["r"]
    assert thoughts(user("a"), said(reasoning("r"), text("b")), user("c"), back="tools") == [None]


def test_a_new_user_message_ends_the_loop() -> None:
    history = [*LOOP, said(reasoning("r2"), text("b")), user("c")]
    assert thoughts(*history, back="tools") == [None, None]
    assert thoughts(*history, said(reasoning("r3"), call("c2")), result("c2"), back="tools") == [
        None,
        None,
        "r3",
    ]


def test_where_it_must_be_it_is_on_every_answer_and_empty_where_there_was_none() -> None:
    history = [
        user("1"), said(reasoning("r1"), text("a")), user("2"), said(text("b")), user("3"),
        said(call("c1")), result("c1"), said(reasoning("half", incomplete=True), text("c")), user("4"),
    ]  # fmt: skip
    assert thoughts(*history, back="always") == ["r1", "", "", ""]
    strict(sent(*history, reasoning_back="always"))


@pytest.mark.parametrize(
    ("model", "back"),
    [
        ("deepseek-v4-flash", "always"),
        ("deepseek/deepseek-v4-pro:free", "always"),
        ("deepseek-reasoner", "tools"),
        ("DeepSeek-R1-Distill-Qwen-7B", "tools"),
        ("kimi-k2-thinking", "always"),
        ("gpt-4o", "never"),
        ("some-model", "never"),
    ],
)
@pytest.mark.parametrize("base_url", ["http://127.0.0.1:1", "https://api.deepseek.com"])
def test_the_policy_goes_by_the_model_and_not_by_its_host(model: str, back: str, base_url: str) -> None:
    route = {"adapter": "openai", "base_url": base_url, "model": model}
    assert Models({"r": route}).prepare_call("r").profile.reasoning_back == back
    overridden = {**route, "profile": {"reasoning_back": "always"}}
    assert Models({"r": overridden}).prepare_call("r").profile.reasoning_back == "always"
