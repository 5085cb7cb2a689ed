"""What is sent in the messages dialect, byte for byte where it matters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshd.model.adapter import PreparedCall
from dshd.model.anthropic import Anthropic, address, key_headers
from dshd.model.anthropic_request import LIMIT, MAX_NAME
from dshd.model.checker import GO_ON, NO_OUTPUT
from dshd.model.http import Http
from dshd.model.models import Models
from dshd.model.profiles import profile_for
from dshd.model.request import ModelRequest, ToolSpec

Json = dict[str, Any]
BASH = ToolSpec("bash", "runs", {"type": "object"})
SIGNED = {"type": "reasoning", "text": "hm", "dialect": "anthropic", "signature": "s"}
MARK = {"cache_control": {"type": "ephemeral"}}
ADAPTER = Anthropic(Http())


def call(model: str = "claude-x", route: str = "r", **more: Any) -> PreparedCall:
    profile = profile_for(model, more.pop("profile", None))
    return PreparedCall(route=route, adapter=ADAPTER, model=model, profile=profile, **more)


def user(*texts: str, **more: Any) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts], **more}


def assistant(*blocks: Json, model: str = "r") -> Json:
    return {"role": "assistant", "content": list(blocks), "model": model}


def asks(ident: str, arguments: str = "{}", name: str = "bash") -> Json:
    return {"type": "tool-call", "id": ident, "name": name, "arguments": arguments}


def result(ident: str, text: str = "ok", *, is_error: bool = False) -> Json:
    content = [{"type": "text", "text": text}]
    return {"role": "tool", "call": ident, "name": "bash", "content": content, "is_error": is_error}


def text(value: str, **more: Any) -> Json:
    return {"type": "text", "text": value, **more}


def body(*messages: Json, system: str = "sys", tools: tuple[ToolSpec, ...] = (BASH,), **more: Any) -> Json:
    options = {key: more.pop(key) for key in ("settings", "max_tokens_asked") if key in more}
    limit = options.pop("max_tokens_asked", None)
    asked = ModelRequest(system, messages, tools, max_tokens=limit, **options)
    sent: Json = json.loads(ADAPTER.encode(call(**more), asked))
    return sent


def plain(*messages: Json, **more: Any) -> list[Json]:
    """The conversation as sent, without marks."""
    sent: list[Json] = body(*messages, **more, profile={"cache_control": False})["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant"] * (len(sent) // 2) + ["user"] * (len(sent) % 2)
    return sent


def test_the_whole_body() -> None:
    sent = body(
        user("go"),
        assistant(text("I look."), asks("c1", '{"command":"ls"}')),
        result("c1"),
        user("rather this"),
        max_tokens=100,
        settings={"temperature": 0},
    )
    assert sent == {
        "model": "claude-x",
        "max_tokens": 100,
        "stream": True,
        "system": [text("sys", **MARK)],
        "tools": [{"name": "bash", "description": "runs", "input_schema": {"type": "object"}, **MARK}],
        "messages": [
            {"role": "user", "content": [text("go", **MARK)]},
            {
                "role": "assistant",
                "content": [
                    text("I look."),
                    {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [text("ok")]},
                    text("rather this", **MARK),
                ],
            },
        ],
        "temperature": 0,
    }


def test_what_has_no_value_is_left_out_but_the_limit_never() -> None:
    assert set(body(user("go"), system="", tools=())) == {"model", "max_tokens", "stream", "messages"}
    assert body(user("go"))["max_tokens"] == LIMIT
    assert body(user("go"), max_tokens=5)["max_tokens"] == 5
    assert body(user("go"), max_tokens=5, max_tokens_asked=7)["max_tokens"] == 7


def test_the_same_request_gives_the_same_bytes_again_from_what_was_logged() -> None:
    models = Models({"a": {"adapter": "anthropic", "model": "claude-x", "base_url": "http://h"}})
    prepared = models.prepare_call("a")
    asked = ModelRequest("sys", (user("go"), assistant(SIGNED, asks("c"), model="a"), result("c")), (BASH,))
    logged = json.loads(json.dumps(prepared.context()))
    made = prepared.adapter.encode(prepared, asked)
    assert b'"signature":"s"' in made
    assert models.rebuild(logged, "anthropic/1", asked) == made
    assert models.rebuild(logged, "anthropic/0", asked) is None


def test_a_history_that_grows_is_encoded_as_if_it_were_new() -> None:
    history = [user("go"), assistant(SIGNED, asks("c")), result("c"), assistant(text("x")), user("on")]
    growing = ModelRequest("sys", (), (BASH,))
    for length in (1, 3, 5):
        messages = tuple(history[:length])
        now = ModelRequest("sys", messages, (BASH,), memo=growing.memo)
        assert ADAPTER.encode(call(), now) == ADAPTER.encode(call(), ModelRequest("sys", messages, (BASH,)))


# -- turns


def test_parallel_results_and_what_was_said_meanwhile_are_one_message_results_first() -> None:
    sent = plain(
        user("go"),
        assistant(asks("a"), asks("b")),
        result("a"),
        user("steer"),
        result("b", is_error=True),
        user("more"),
    )
    kinds = [block["type"] for block in sent[2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text", "text"]
    assert [block.get("is_error") for block in sent[2]["content"]] == [None, True, None, None]
    assert sent[2]["content"][2:] == [text("steer"), text("more")]


def test_between_two_answers_in_a_row_a_user_speaks() -> None:
    sent = plain(user("go"), assistant(text("half")), assistant(text("whole")), user("on"))
    assert [m["content"][0]["text"] for m in sent] == ["go", "half", GO_ON, "whole", "on"]


def test_no_block_is_empty() -> None:
    sent = plain(user("go", "", " "), assistant(text(""), asks("a")), result("a", ""), user("\n"))
    assert sent[0]["content"] == [text("go")]
    assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": [text(NO_OUTPUT)]}]


def test_images_go_to_models_that_take_them_and_are_named_to_others() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "aGk=", "name": "a.png"}
    asked = {"role": "user", "content": [text("look"), image]}
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert plain(asked)[0]["content"] == [text("look"), {"type": "image", "source": source}]
    assert plain(asked, model="deepseek-v4-pro")[0]["content"] == [text("look"), text("[image a.png]")]


@pytest.mark.parametrize("ident", ["call_1|x", "a b", "c:1", "ü", "functions.bash:0"])
def test_ids_and_names_that_a_server_would_refuse_are_replaced_on_both_sides(ident: str) -> None:
    sent = plain(user("go"), assistant(asks(ident, name="my.tool" + "x" * 200)), result(ident))
    used = sent[1]["content"][0]
    assert used["id"] == sent[2]["content"][0]["tool_use_id"]
    assert used["id"].replace("_", "").isalnum()
    assert used["id"].isascii()
    assert used["name"] == ("my_tool" + "x" * 200)[:MAX_NAME]


@pytest.mark.parametrize("arguments", ['{"a":"cut', "", "[]", "null", '"x"'])
def test_arguments_that_are_no_object_go_back_as_an_empty_one(arguments: str) -> None:
    assert plain(user("go"), assistant(asks("a", arguments)), result("a"))[1]["content"][0]["input"] == {}


def test_a_history_with_calls_brings_their_tools_though_none_may_be_called() -> None:
    sent = body(user("go"), assistant(asks("a")), result("a"), tools=())
    assert sent["tools"] == [{"name": "bash", "description": "", "input_schema": {"type": "object"}, **MARK}]
    assert sent["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in body(user("go"), assistant(asks("a")), result("a"))


# -- thinking


def thinking_sent(*blocks: Json, model: str = "r", route: str = "r") -> list[Json]:
    sent = plain(user("go"), assistant(*blocks, asks("a"), model=model), result("a"), route=route)
    return [block for block in sent[1]["content"] if "thinking" in block["type"]]


def test_thinking_goes_back_byte_for_byte() -> None:
    odd = {**SIGNED, "text": " a\n\u2028ü\n ", "signature": "EqQB+/=="}
    assert thinking_sent(odd) == [{"type": "thinking", "thinking": " a\n\u2028ü\n ", "signature": "EqQB+/=="}]
    assert thinking_sent({**SIGNED, "text": ""}) == [{"type": "thinking", "thinking": "", "signature": "s"}]


def test_redacted_thinking_goes_back() -> None:
    redacted = {"type": "reasoning", "text": "", "dialect": "anthropic", "redacted": "Zm9v"}
    assert thinking_sent(redacted) == [{"type": "redacted_thinking", "data": "Zm9v"}]


def test_thinking_that_came_unsigned_goes_back_unsigned() -> None:
    unsigned = {"type": "reasoning", "text": "hm", "dialect": "anthropic"}
    assert thinking_sent(unsigned) == [{"type": "thinking", "thinking": "hm"}]


@pytest.mark.parametrize(
    "block",
    [
        {**SIGNED, "incomplete": True},
        {**SIGNED, "signature": ""},
        {"type": "reasoning", "text": "hm"},
        {"type": "reasoning", "text": "hm", "incomplete": True},
    ],
)
def test_half_thinking_blank_signatures_and_others_reasoning_stay_here(block: Json) -> None:
    assert thinking_sent(block) == []


def test_thinking_goes_to_the_route_that_made_it_and_to_no_other() -> None:
    assert thinking_sent(SIGNED, model="other") == []
    assert thinking_sent(SIGNED, route="r/claude-y") == []
    assert len(thinking_sent(SIGNED, model="r/claude-y", route="r/claude-y")) == 1


DEEPSEEK = "deepseek-v4-pro"


@pytest.mark.parametrize(
    "block", [SIGNED, {"type": "reasoning", "text": "hm"}, {"type": "reasoning", "text": "hm", "extra": 1}]
)
def test_a_model_that_demands_it_gets_anybodys_reasoning_unsigned(block: Json) -> None:
    sent = body(user("go"), assistant(block, asks("a"), model="other"), result("a"), model=DEEPSEEK)
    assert sent["messages"][1]["content"][0] == {"type": "thinking", "thinking": "hm"}
    assert "thinking" not in sent


def test_what_it_signed_itself_it_gets_as_it_was() -> None:
    sent = body(user("go"), assistant(SIGNED, asks("a")), result("a"), model=DEEPSEEK)
    assert sent["messages"][1]["content"][0]["signature"] == "s"


def test_where_a_call_has_no_reasoning_thinking_is_off_for_who_would_demand_it() -> None:
    history = [user("go"), assistant(SIGNED, asks("a")), result("a"), assistant(asks("b")), result("b")]
    assert body(*history, model=DEEPSEEK)["thinking"] == {"type": "disabled"}
    assert "thinking" not in body(*history)
    assert "thinking" not in body(user("go"), assistant(text("x")), user("on"), model=DEEPSEEK)
    redacted = {"type": "reasoning", "text": "", "dialect": "anthropic", "redacted": "Zm9v"}
    foreign = [user("go"), assistant(redacted, asks("a"), model="other"), result("a")]
    assert body(*foreign, model=DEEPSEEK)["thinking"] == {"type": "disabled"}


def test_no_answer_ends_in_thinking() -> None:
    sent = plain(user("go"), assistant(SIGNED, text("so"), SIGNED), user("on"))
    assert [block["type"] for block in sent[1]["content"]] == ["thinking", "text"]


# -- the cache


def marks(sent: Json) -> list[str]:
    found = [f"tool {t['name']}" for t in sent.get("tools", []) if "cache_control" in t]
    found += ["system" for block in sent.get("system", []) if "cache_control" in block]
    for at, message in enumerate(sent["messages"]):
        found += [f"{at}.{n}" for n, block in enumerate(message["content"]) if "cache_control" in block]
    return found


def test_the_static_parts_and_the_two_newest_user_messages_are_marked_at_their_ends() -> None:
    steps = [m for n in range(5) for m in (assistant(asks(f"c{n}")), result(f"c{n}"))]
    sent = body(user("go"), *steps, user("a", "b"), tools=(BASH, ToolSpec("read", "", {"type": "object"})))
    assert marks(sent) == ["tool read", "system", "8.0", "10.2"]


def test_each_step_marks_again_what_the_step_before_has_marked_last() -> None:
    history = [user("go"), assistant(asks("a")), result("a"), assistant(asks("b")), result("b")]
    before, after = body(*history[:3]), body(*history)
    assert marks(before)[-1] in marks(after)
    assert plain(*history)[:3] == plain(*history[:3])


def test_a_server_that_refuses_marks_gets_none() -> None:
    assert marks(body(user("go"), profile={"cache_control": False})) == []


# -- where it goes


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.deepseek.com/anthropic", "https://api.deepseek.com/anthropic/v1/messages"),
        ("http://h/x/v1/", "http://h/x/v1/messages"),
        ("http://h/v1/messages", "http://h/v1/messages"),
    ],
)
def test_an_address_may_end_before_or_behind_its_version(base_url: str, url: str) -> None:
    assert address(base_url, "messages") == url


def test_the_key_is_where_the_server_looks_for_it() -> None:
    assert key_headers(None) == {"anthropic-version": "2023-06-01"}
    assert key_headers("k") == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert key_headers("k", bearer=True) == {"anthropic-version": "2023-06-01", "authorization": "Bearer k"}
