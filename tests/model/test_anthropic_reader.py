"""What servers of the messages dialect stream, and what is made of it. No IO: bytes in, chunks out."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshd.model.anthropic import Reader
from dshd.model.blocks import Assembled, Assembler
from dshd.model.chunks import Chunk, Finish, Usage
from dshd.model.errors import ModelError
from dshd.model.pieces import MAX_NOISE
from tests.amount import examples

Json = dict[str, Any]


def ev(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def start(at: int, **block: Any) -> bytes:
    return ev("content_block_start", index=at, content_block=block)


def delta(at: int, kind: str, **members: Any) -> bytes:
    return ev("content_block_delta", index=at, delta={"type": kind, **members})


def stop(at: int) -> bytes:
    return ev("content_block_stop", index=at)


def text(at: int, *pieces: str) -> bytes:
    said = b"".join(delta(at, "text_delta", text=piece) for piece in pieces)
    return start(at, type="text", text="") + said + stop(at)


def tool(at: int, *pieces: str, id: str = "toolu_1", name: str = "bash", input: Any = None) -> bytes:
    parts = b"".join(delta(at, "input_json_delta", partial_json=piece) for piece in pieces)
    return start(at, type="tool_use", id=id, name=name, input=input or {}) + parts + stop(at)


def ends(reason: str | None = "end_turn", **usage: int) -> bytes:
    return ev("message_delta", delta={"stop_reason": reason}, usage=usage) + ev("message_stop")


BEGIN = ev("message_start", message={"content": [], "usage": {"input_tokens": 10, "output_tokens": 1}})
HELLO = text(0, "Hel", "lo")


def chunks_of(*pieces: bytes, **options: Any) -> list[Chunk]:
    reader = Reader("mock", **options)
    out = [chunk for piece in pieces for chunk in reader.feed(piece)]
    return out + list(reader.close())


def assembled(chunks: list[Chunk]) -> Assembled:
    assembler = Assembler()
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.result()


def read(*pieces: bytes, **options: Any) -> Assembled:
    return assembled(chunks_of(*pieces, **options))


def fails(*pieces: bytes, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read(*pieces, **options)
    return caught.value


def said(answer: Assembled) -> str:
    return "".join(block["text"] for block in answer.content if block["type"] == "text")


def calls(answer: Assembled) -> list[tuple[str, str, str]]:
    return [(b["id"], b["name"], b["arguments"]) for b in answer.content if b["type"] == "tool-call"]


def test_an_answer_streams_and_ends() -> None:
    got = read(BEGIN, HELLO, ends(output_tokens=2))
    assert (said(got), got.finish) == ("Hello", "stop")
    assert got.usage == {"input": 10, "cached": 0, "output": 2, "reasoning": 0}


@settings(max_examples=examples(30))
@given(st.data())
def test_borders_of_pieces_do_not_matter(draw: Any) -> None:
    stream = BEGIN + text(0, "Grüße \u2028 🎉") + tool(1, '{"a":', '"é"}') + ends("tool_use")
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    got = read(*(stream[a:b] for a, b in pairwise(edges)))
    assert (said(got), calls(got)) == ("Grüße \u2028 🎉", [("toolu_1", "bash", '{"a":"é"}')])


# -- what means nothing


@pytest.mark.parametrize(
    "noise",
    [
        ev("ping"),
        ev("x_future", index=0, delta={"type": "text_delta", "text": "no"}),
        b"data: {}\n\n",
        b": comment\n\n",
        b"event: ping\n\n",
        delta(77, "x_future_delta", text="no"),
        delta(0, "citations_delta", citation={}),
        ev("content_block_stop", index=99),
        ev("message_delta", delta=None, usage=None),
        start(50, type="server_tool_use", id="x", name="web_search", input={})
        + delta(50, "input_json_delta", partial_json='{"q":1}')
        + stop(50),
        start(51, type="x_future", text="no") + delta(51, "text_delta", text="no") + stop(51),
        start(52) + stop(52),
        b"data: [DONE]\n\n",
        b"data: : what\n\n",
        b"data: []\n\n",
    ],
)
def test_pings_and_what_is_unknown_mean_nothing_wherever_they_stand(noise: bytes) -> None:
    got = read(noise, BEGIN, noise, text(0, "Hel"), noise, text(1, "lo"), noise, ends(), noise)
    assert (said(got), len(got.content), got.finish) == ("Hello", 2, "stop")


def test_noise_without_end_is_refused() -> None:
    assert fails(*[b"data: : x\n\n"] * (MAX_NOISE + 1), HELLO, ends()).code == "MALFORMED_RESPONSE"


# -- errors in the stream


@pytest.mark.parametrize(
    ("kind", "message", "code"),
    [
        ("overloaded_error", "Overloaded", "SERVER"),
        ("rate_limit_error", "slow down", "RATE_LIMIT"),
        ("api_error", "Internal server error", "SERVER"),
        ("timeout_error", "too slow", "TIMEOUT"),
        ("authentication_error", "invalid x-api-key", "AUTH"),
        ("permission_error", "no", "AUTH"),
        ("billing_error", "pay", "QUOTA"),
        ("invalid_request_error", "Your credit balance is too low", "QUOTA"),
        ("invalid_request_error", "prompt is too long: 21 tokens > 20 maximum", "CONTEXT_WINDOW_EXCEEDED"),
        ("invalid_request_error", "input length and `max_tokens` exceed context limit: 18 + 21 > 20",
         "CONTEXT_WINDOW_EXCEEDED"),
        ("request_too_large", "Request exceeds the allowed number of bytes", "CONTEXT_WINDOW_EXCEEDED"),
        ("invalid_request_error", "messages.1: what", "INVALID_REQUEST"),
        ("not_found_error", "model: nope", "INVALID_REQUEST"),
        ("x_future_error", "what", "UNKNOWN"),
    ],
)  # fmt: skip
def test_an_error_in_the_stream_goes_by_what_it_calls_itself(kind: str, message: str, code: str) -> None:
    wire = {"type": kind, "message": message}
    for before in (
        b"",
        BEGIN,
        BEGIN + HELLO,
        BEGIN + HELLO + ev("message_delta", delta={"stop_reason": "end_turn"}),
    ):
        error = fails(before, ev("error", error=wire), ends())
        assert (error.code, message in error.message) == (code, True)
    assert fails(f"data: {json.dumps({'error': wire})}\n\n".encode()).code == code


# -- usage


def test_usage_counts_the_cache_and_the_last_number_counts() -> None:
    cache = {"cache_creation_input_tokens": 20, "cache_read_input_tokens": 300}
    first = {"input_tokens": 10, **cache, "output_tokens": 1}
    got = chunks_of(
        ev("message_start", message={"usage": first}),
        HELLO,
        ev("message_delta", delta={}, usage={"output_tokens": 13}),
        ev(
            "message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 20, "input_tokens": 0}
        ),
        ev("message_stop"),
    )
    assert got[-2:] == [Usage({"input": 30, "cached": 300, "output": 20, "reasoning": 0}), Finish("stop")]
    assert sum(isinstance(chunk, Usage) for chunk in got) == 1


@pytest.mark.parametrize("odd", [None, "many", -1, True, {}, 1e300])
def test_counts_that_are_none_change_nothing(odd: Any) -> None:
    got = read(BEGIN, HELLO, ends(input_tokens=odd, output_tokens=4))
    assert got.usage is not None
    assert got.usage["output"] == 4


def test_who_says_nothing_of_usage_has_none() -> None:
    assert read(HELLO, ends()).usage is None


# -- stop reasons


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("x_future", "stop"),
        (None, "stop"),
        ("max_tokens", "max-tokens"),
        ("model_context_window_exceeded", "max-tokens"),
        ("refusal", "content-filter"),
    ],
)
def test_each_stop_reason_is_one_of_ours(reason: str | None, finish: str) -> None:
    assert read(BEGIN, HELLO, ends(reason)).finish == finish


def test_having_calls_decides() -> None:
    assert read(BEGIN, tool(0, "{}"), ends("end_turn")).finish == "tool-calls"
    assert read(BEGIN, tool(0, "{}"), ends("refusal")).finish == "content-filter"


def test_a_limit_drops_the_calls_whatever_the_server_calls_it() -> None:
    cut = start(0, type="tool_use", id="t", name="bash", input={}) + delta(
        0, "input_json_delta", partial_json='{"command":"rm'
    )
    for reason in ("max_tokens", "tool_use"):
        got = read(BEGIN, cut, ends(reason, output_tokens=50), max_tokens=50)
        assert (got.finish, calls(got), got.dropped) == ("max-tokens", [], ("bash",))
    assert (
        read(BEGIN, tool(0, "{}"), ends("tool_use", output_tokens=50), max_tokens=50).finish == "tool-calls"
    )


def test_a_refusal_may_be_empty_and_a_full_window_without_an_answer_is_an_error() -> None:
    assert read(BEGIN, ends("refusal")).finish == "content-filter"
    assert fails(BEGIN, ends("model_context_window_exceeded")).code == "CONTEXT_WINDOW_EXCEEDED"
    assert fails(BEGIN, ends("end_turn")).code == "EMPTY_RESPONSE"
    assert fails(BEGIN, start(0, type="text", text=""), stop(0), ends()).code == "EMPTY_RESPONSE"


# -- how it ends


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (b"", "EMPTY_RESPONSE"),
        (BEGIN, "STREAM_CLOSED"),
        (BEGIN + HELLO, "STREAM_CLOSED"),
        (
            BEGIN + start(0, type="thinking", thinking="") + delta(0, "thinking_delta", thinking="hm"),
            "STREAM_CLOSED",
        ),
        (BEGIN + tool(0, '{"content":"abc'), "STREAM_CLOSED"),
        (
            BEGIN + start(0, type="text", text="") + ev("message_delta", delta={"stop_reason": "end_turn"}),
            "STREAM_CLOSED",
        ),
    ],
)
def test_a_stream_cut_before_its_end_is_no_answer(stream: bytes, code: str) -> None:
    assert fails(stream).code == code


def test_after_a_stop_reason_only_the_end_mark_is_missing() -> None:
    assert said(read(BEGIN, HELLO, ev("message_delta", delta={"stop_reason": "end_turn"}))) == "Hello"


def test_nothing_follows_the_end() -> None:
    got = chunks_of(BEGIN, HELLO, ends(), text(5, "more"), ev("error", error={"type": "api_error"}))
    assert got[-1] == Finish("stop")


# -- calls


@pytest.mark.parametrize(
    ("pieces", "given", "arguments"),
    [
        (['{"a": 1}'], {}, '{"a": 1}'),
        (["", '{"a"', ": 1}"], {}, '{"a": 1}'),
        ([], {}, "{}"),
        ([""], {}, "{}"),
        ([" "], {}, " {}"),
        ([], {"a": "é"}, '{"a":"é"}'),
        (['{"b":2}'], {"a": 1}, '{"b":2}'),
    ],
)
def test_input_comes_in_fragments_or_whole_or_not_at_all(
    pieces: list[str], given: Json, arguments: str
) -> None:
    got = read(BEGIN, tool(0, *pieces, input=given), ends("tool_use"))
    assert calls(got) == [("toolu_1", "bash", arguments)]


def test_parallel_calls_keep_their_order_and_may_interleave() -> None:
    both = [
        start(0, type="tool_use", id="a", name="one", input={}),
        start(1, type="tool_use", id="b", name="two", input={}),
        delta(1, "input_json_delta", partial_json='{"y":'),
        delta(0, "input_json_delta", partial_json='{"x":'),
        delta(0, "input_json_delta", partial_json="1}"),
        delta(1, "input_json_delta", partial_json="2}"),
    ]
    got = read(BEGIN, *both, stop(1), stop(0), ends("tool_use"))
    assert calls(got) == [("a", "one", '{"x":1}'), ("b", "two", '{"y":2}')]


def test_blocks_that_share_an_index_or_lack_their_stop_are_still_apart() -> None:
    first = start(0, type="tool_use", id="a", name="one", input={}) + delta(
        0, "input_json_delta", partial_json="{}"
    )
    got = read(BEGIN, first, tool(0, '{"x":1}', id="b", name="two"), ends("tool_use"))
    assert calls(got) == [("a", "one", "{}"), ("b", "two", '{"x":1}')]


def test_text_without_a_start_is_text() -> None:
    assert said(read(BEGIN, delta(0, "text_delta", text="hi"), ends())) == "hi"


def test_a_surrogate_pair_cut_between_two_deltas_is_joined() -> None:
    halves = (
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\u%s"}}\n\n'
    )
    got = read(BEGIN, halves % b"d83c", halves % b"df89", halves % b"d83d", ends())
    assert said(got) == "🎉\ufffd"


# -- thinking


def reasoning(*pieces: bytes) -> Json:
    return next(b for b in read(BEGIN, *pieces, text(9, "so"), ends()).content if b["type"] == "reasoning")


def thought(at: int = 0) -> bytes:
    return delta(at, "thinking_delta", thinking="h") + delta(at, "thinking_delta", thinking="m")


@pytest.mark.parametrize(
    ("opening", "deltas", "expected"),
    [
        ({"signature": ""}, [{"signature": "ab"}, {"signature": "c="}], {"signature": "abc="}),
        ({}, [{"signature": "abc="}], {"signature": "abc="}),
        ({"signature": "abc="}, [], {"signature": "abc="}),
        ({"signature": ""}, [], {"signature": ""}),
        ({}, [], {}),
    ],
)
def test_thinking_keeps_its_signature_byte_for_byte_and_what_is_missing_stays_missing(
    opening: Json, deltas: list[Json], expected: Json
) -> None:
    signed = b"".join(delta(0, "signature_delta", **members) for members in deltas)
    got = reasoning(start(0, type="thinking", thinking="", **opening), thought(), signed, stop(0))
    assert got == {"type": "reasoning", "text": "hm", "dialect": "anthropic", **expected}


def test_redacted_and_hidden_thinking_is_kept_though_it_has_no_text() -> None:
    got = reasoning(start(0, type="redacted_thinking", data="Zm9v"), stop(0))
    assert got == {"type": "reasoning", "text": "", "dialect": "anthropic", "redacted": "Zm9v"}
    signed = delta(0, "signature_delta", signature="s")
    assert (
        reasoning(start(0, type="thinking", thinking="", signature=""), signed, stop(0))["signature"] == "s"
    )


def test_thinking_that_nobody_ended_is_marked_as_half() -> None:
    assert reasoning(start(0, type="thinking", thinking="", signature=""), thought())["incomplete"] is True


def test_thinking_cut_by_an_abort_is_marked_as_half() -> None:
    reader, assembler = Reader("mock"), Assembler()
    for chunk in reader.feed(BEGIN + start(0, type="thinking", thinking="", signature="") + thought()):
        assembler.feed(chunk)
    assembler.abort()
    assert assembler.interrupted() == [{"type": "reasoning", "text": "hm", "incomplete": True}]


# -- answers in one piece


def test_an_answer_in_one_piece_is_the_same_answer() -> None:
    answer = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    got = assembled(list(Reader("mock").whole(answer)))
    assert (said(got), calls(got)) == ("Hello", [("t", "bash", '{"command":"ls"}')])
    assert got.content[0]["signature"] == "s"
    assert (got.finish, got.usage) == ("tool-calls", {"input": 3, "cached": 0, "output": 2, "reasoning": 0})


def test_an_error_in_one_piece_is_an_error() -> None:
    with pytest.raises(ModelError) as caught:
        list(Reader("mock").whole({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}))
    assert caught.value.code == "SERVER"
    with pytest.raises(ModelError) as caught:
        list(Reader("mock").whole({"hello": 1}))
    assert caught.value.code == "EMPTY_RESPONSE"


@pytest.mark.parametrize("levels", [500, 1000, 5000])
def test_an_event_that_is_nested_too_deeply_is_noise(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    start = '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{"x":%s}}}'
    reader = Reader("mock")
    list(reader.feed(f"event: content_block_start\ndata: {start % deep}\n\n".encode()))
    with pytest.raises(ModelError):
        list(reader.close())
