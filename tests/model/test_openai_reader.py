"""What servers stream, and what is made of it. No IO: bytes in, chunks out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.model.blocks import Assembled, Assembler
from dshd.model.chunks import Chunk
from dshd.model.errors import ModelError
from dshd.model.openai import Reader
from dshd.model.pieces import MAX_NOISE
from tests.model.server import DONE, data, event, tool_delta


def chunks_of(*pieces: bytes, **options: Any) -> list[Chunk]:
    reader = Reader("mock", **options)
    out = [chunk for piece in pieces for chunk in reader.feed(piece)]
    return out + list(reader.close())


def read(*pieces: bytes, **options: Any) -> Assembled:
    assembler = Assembler()
    for chunk in chunks_of(*pieces, **options):
        assembler.feed(chunk)
    return assembler.result()


def text_of(answer: Assembled) -> str:
    return "".join(block["text"] for block in answer.content if block["type"] == "text")


def reasoning_of(answer: Assembled) -> str:
    return "".join(block["text"] for block in answer.content if block["type"] == "reasoning")


def calls_of(answer: Assembled) -> list[tuple[str, str, str]]:
    return [(b["id"], b["name"], b["arguments"]) for b in answer.content if b["type"] == "tool-call"]


def fails(*pieces: bytes, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read(*pieces, **options)
    return caught.value


HELLO = event({"content": "Hel"}) + event({"content": "lo"})
STOP = event(finish="stop")


def test_an_answer_streams_and_ends() -> None:
    got = read(event({"role": "assistant", "content": ""}), HELLO, STOP, DONE)
    assert (text_of(got), got.finish, got.usage) == ("Hello", "stop", None)


# -- chunks that carry nothing


@pytest.mark.parametrize(
    "extra",
    [
        {"id": "x", "choices": []},
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        {"id": "x", "object": "chat.completion.chunk"},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"index": 0}]},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None, "reasoning": None}}]},
        {"type": "ping"},
        {"type": "x_future", "choices": "what"},
        {"error": None, "choices": []},
    ],
)
def test_chunks_without_anything_in_them_mean_nothing_wherever_they_stand(extra: dict[str, Any]) -> None:
    got = read(
        data(extra), event({"content": "Hel"}), data(extra), event({"content": "lo"}), STOP, data(extra), DONE
    )
    assert (text_of(got), got.finish) == ("Hello", "stop")


@pytest.mark.parametrize(
    "noise", [b": PROCESSING\n\n", b":\n\n", b":\n", b"event: ping\n\n", b"id: 7\n\n", b"retry: 1\n\n"]
)
def test_comments_and_foreign_fields_leave_nothing_behind(noise: bytes) -> None:
    got = read(noise * 3, event({"content": "Hel"}), noise, event({"content": "lo"}), noise, STOP, DONE)
    assert text_of(got) == "Hello"


@pytest.mark.parametrize(
    "noise", [b"data: : PROCESSING\n\n", b"data: {cut\n\n", b"data: 7\n\n", b"data: []\n\n", b"data:\n\n"]
)
def test_lines_that_are_no_json_object_are_passed_over(noise: bytes) -> None:
    assert text_of(read(noise, HELLO, noise, STOP, noise, DONE)) == "Hello"


def test_noise_without_end_is_refused() -> None:
    assert fails(*[b"data: : x\n\n"] * (MAX_NOISE + 1), HELLO, DONE).code == "MALFORMED_RESPONSE"


# -- usage


def test_usage_comes_once_from_the_last_that_was_said_before_the_finish() -> None:
    got = chunks_of(
        data({"choices": [], "usage": {"completion_tokens": 13}}), HELLO,
        data({"choices": [], "usage": None}), STOP,
        data({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 20}}), DONE,
    )  # fmt: skip
    assert [type(chunk).__name__ for chunk in got][-2:] == ["Usage", "Finish"]
    assert [type(chunk).__name__ for chunk in got].count("Usage") == 1
    assert read(HELLO, data({"usage": {"prompt_tokens": 10, "completion_tokens": 20}}), DONE).usage == {
        "input": 10, "cached": 0, "output": 20, "reasoning": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "wire",
    [
        {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens": 9,
         "completion_tokens_details": {"reasoning_tokens": 4}},
        {"prompt_tokens": 100, "prompt_cache_hit_tokens": 60, "completion_tokens": 9,
         "completion_tokens_details": {"reasoning_tokens": 4}, "prompt_tokens_details": None},
    ],
)  # fmt: skip
def test_cached_tokens_are_not_counted_twice(wire: dict[str, Any]) -> None:
    assert read(HELLO, STOP, data({"choices": [], "usage": wire}), DONE).usage == {
        "input": 40, "cached": 60, "output": 9, "reasoning": 4,
    }  # fmt: skip


@pytest.mark.parametrize("value", ["many", -1, None, True, 1e300, {}])
def test_counts_that_are_none_count_as_zero(value: Any) -> None:
    usage = read(HELLO, data({"usage": {"prompt_tokens": value}}), DONE).usage
    assert usage is not None
    assert usage["input"] in {0, 1}


# -- how a stream ends


@pytest.mark.parametrize(
    "ending",
    [
        [DONE],
        [event(finish=None), DONE],
        [data({"choices": []}), DONE],
        [STOP, b"data: [DONE]"],
        [STOP, b"data:[DONE]\r\n\r\n"],
        [STOP, b"data: [DONE] \n"],
    ],
)
def test_with_its_end_mark_an_answer_is_whole(ending: list[bytes]) -> None:
    got = read(HELLO, *ending)
    assert (text_of(got), got.finish) == ("Hello", "stop")


@pytest.mark.parametrize(
    "cut",
    [
        [HELLO],
        [HELLO, STOP],
        [event({"reasoning_content": "thinking"})],
        [event(tool_delta(0, id="c1", name="write", arguments='{"content":"abc'))],
        [HELLO, b"data: [DO"],
        [b": comment\n\n"],
        [HELLO, event({"content": "x"})[:-9]],
    ],
)
def test_without_it_the_answer_is_cut_whatever_came_before(cut: list[bytes]) -> None:
    assert fails(*cut).code == "STREAM_CLOSED"


def test_a_server_that_never_sends_it_can_be_configured() -> None:
    assert text_of(read(HELLO, STOP, needs_end=False)) == "Hello"
    assert fails(HELLO, needs_end=False).code == "STREAM_CLOSED"


def test_an_empty_stream_is_an_error_of_its_own() -> None:
    assert fails().code == "EMPTY_RESPONSE"
    assert fails(b"").code == "EMPTY_RESPONSE"


@pytest.mark.parametrize("finish", ["stop", "length", None])
def test_an_answer_with_nothing_in_it_is_an_error(finish: str | None) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 0}
    assert fails(event({"content": ""}, finish=finish), data({"usage": usage}), DONE).code == "EMPTY_RESPONSE"


def test_reasoning_alone_is_an_answer() -> None:
    got = read(event({"reasoning_content": "hm"}), STOP, DONE)
    assert (reasoning_of(got), got.finish) == ("hm", "stop")


def test_nothing_after_the_end_mark_counts() -> None:
    assert (
        text_of(read(HELLO, DONE, event({"content": "more"}), b"data: {", data({"error": "late"}))) == "Hello"
    )


# -- errors in the middle


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"error": {"message": "You exceeded your current quota", "type": "x"}}, "QUOTA"),
        (
            {
                "choices": [],
                "error": {"code": 502, "message": "Worker local total request limit reached (33/32)"},
            },
            "SERVER",
        ),
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, "SERVER"),
        ({"error": {"type": "rate_limit_error", "message": "slow down"}}, "RATE_LIMIT"),
        ({"error": {"type": "api_error", "message": "oops"}}, "SERVER"),
        ({"error": {"message": "x", "code": "context_length_exceeded"}}, "CONTEXT_WINDOW_EXCEEDED"),
        ({"error": {"message": "bad", "code": 400, "type": "BadRequestError"}}, "INVALID_REQUEST"),
        ({"error": {"message": "odd", "type": "x"}}, "UNKNOWN"),
        ({"error": "just text"}, "UNKNOWN"),
        ({"object": "error", "message": "no", "code": 503}, "SERVER"),
        ({"type": "error", "error": {"type": "timeout_error", "message": "no"}}, "TIMEOUT"),
        (
            {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "no"}}]},
            "RATE_LIMIT",
        ),
    ],
)
@pytest.mark.parametrize("after", [b"", DONE, STOP + DONE])
def test_an_error_wins_over_whatever_follows(error: dict[str, Any], code: str, after: bytes) -> None:
    assert fails(HELLO, data(error), after).code == code


def test_an_error_says_what_the_provider_said_and_not_200() -> None:
    error = fails(HELLO, data({"error": {"message": "the engine is gone", "code": 502}}))
    assert error.message == "mock broke off: the engine is gone"
    assert error.http_status == 502


def test_an_event_named_error_is_one() -> None:
    assert (
        fails(HELLO, b'event: error\ndata: {"message":"no","type":"server_error"}\n\n', DONE).code == "SERVER"
    )


def test_a_finish_reason_can_be_a_failure() -> None:
    assert fails(HELLO, event(finish="insufficient_system_resource"), DONE).code == "SERVER"


# -- text and reasoning


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_taken_under_both_names_and_beside_content(field: str) -> None:
    got = read(
        event({field: "because", "content": None}),
        event({field: " end.", "content": "Hel"}),
        event({"content": "lo"}),
        STOP,
        DONE,
    )
    assert (reasoning_of(got), text_of(got)) == ("because end.", "Hello")


def test_reasoning_under_both_names_at_once_counts_once() -> None:
    assert reasoning_of(read(event({"reasoning": "r", "reasoning_content": "r"}), HELLO, DONE)) == "r"


def test_content_may_be_a_list_of_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Hello"},
        7,
    ]
    got = read(event({"content": parts}), STOP, DONE)
    assert (reasoning_of(got), text_of(got)) == ("hm", "Hello")


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\U0001f600"])
def test_characters_that_some_take_for_line_ends_stay_in_the_text(char: str) -> None:
    raw = 'data: {"choices":[{"delta":{"content":"Hello' + char + 'World"}}]}\n\n'
    assert text_of(read(raw.encode(), DONE)) == f"Hello{char}World"


def test_half_a_surrogate_pair_waits_for_its_other_half() -> None:
    halves = [
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00b"}}]}\n\n',
    ]
    assert text_of(read(*halves, DONE)) == "a\U0001f600b"
    assert text_of(read(halves[0], DONE)) == "a\ufffd"
    assert text_of(read(halves[1], DONE)) == "\ufffdb"


# -- tool calls


A, B = '{"a":1}', '{"b":2}'


def whole(number: int, index: int | None) -> dict[str, Any]:
    return tool_delta(index, id=f"c{number}", name="f", arguments=(A, B)[number])


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                tool_delta(0, id="c1", name="f", arguments=""),
                tool_delta(0, arguments='{"a"'),
                tool_delta(0, arguments=":1}"),
            ],
            id="id only in the first",
        ),
        pytest.param(
            [
                tool_delta(0, id="c1", name="f", arguments='{"a"'),
                tool_delta(0, id="", name="", arguments=":1}"),
            ],
            id="empty id and name later",
        ),
        pytest.param(
            [
                tool_delta(0, id="c1", name="f", arguments='{"a"'),
                tool_delta(0, id=None, name=None, arguments=":1}"),
            ],
            id="null id and name later",
        ),
        pytest.param(
            [
                tool_delta(0, id="c1", name="f", arguments='{"a"'),
                tool_delta(0, id="c1", name="f", arguments=":1}"),
            ],
            id="id and name repeated",
        ),
        pytest.param([tool_delta(None, id="c1", name="f", arguments=A)], id="no index"),
        pytest.param(
            [tool_delta(None, id="c1", name="f", arguments='{"a"'), tool_delta(None, arguments=":1}")],
            id="no index, pieces",
        ),
        pytest.param(
            [tool_delta(0, id="c1", name="f", arguments=None), tool_delta(0, arguments=A)],
            id="null arguments first",
        ),
        pytest.param([tool_delta(0, id="c1", name="f"), tool_delta(0, arguments=A)], id="no arguments first"),
        pytest.param([tool_delta(0, name="f"), tool_delta(0, id="c1", arguments=A)], id="id later"),
        pytest.param([tool_delta(0, id="c1"), tool_delta(0, name="f", arguments=A)], id="name later"),
        pytest.param([tool_delta(5, id="c1", name="f", arguments=A)], id="index doesn't begin at 0"),
        pytest.param([{"content": None, **tool_delta(0, id="c1", name="f", arguments=A)}], id="null content"),
    ],
)
@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call", None])
def test_one_call_is_one_call_however_it_is_cut(deltas: list[dict[str, Any]], finish: str | None) -> None:
    got = read(event(*deltas), event(finish=finish), DONE)
    assert (calls_of(got), got.finish) == ([("c1", "f", A)], "tool-calls")


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([whole(0, 0), whole(1, 1)], id="by index"),
        pytest.param([whole(0, 0), whole(1, 0)], id="all at index 0"),
        pytest.param([whole(0, None), whole(1, None)], id="no index"),
        pytest.param(
            [{"tool_calls": [*whole(0, 0)["tool_calls"], *whole(1, 1)["tool_calls"]]}], id="both in one delta"
        ),
        pytest.param(
            [
                tool_delta(0, id="c0", name="f", arguments='{"a"'),
                tool_delta(1, id="c1", name="f", arguments='{"b"'),
                tool_delta(0, arguments=":1}"), tool_delta(1, arguments=":2}"),
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                tool_delta(0, id="c0", name="f", arguments='{"a"'), tool_delta(0, arguments=":1}"),
                tool_delta(0, id="c1", name="f", arguments='{"b"'), tool_delta(0, id="", arguments=":2}"),
            ],
            id="all at index 0, pieces",
        ),
    ],
)  # fmt: skip
def test_two_calls_are_two_calls(deltas: list[dict[str, Any]]) -> None:
    got = read(event(*deltas, finish="tool_calls"), DONE)
    assert calls_of(got) == [("c0", "f", A), ("c1", "f", B)]


def test_calls_without_any_id_are_told_apart_by_complete_arguments_and_a_new_name() -> None:
    got = read(event(tool_delta(0, name="f", arguments=A), tool_delta(0, name="g", arguments=B)), DONE)
    assert [call[1:] for call in calls_of(got)] == [("f", A), ("g", B)]
    assert len({call[0] for call in calls_of(got)}) == 2


def test_two_calls_under_one_id_stay_two() -> None:
    got = read(
        event(tool_delta(0, id="dup", name="f", arguments=A), tool_delta(1, id="dup", name="f", arguments=B)),
        DONE,
    )
    assert [call[2] for call in calls_of(got)] == [A, B]
    got = read(
        event(
            tool_delta(None, id="dup", name="f", arguments=A),
            tool_delta(None, id="dup", name="f", arguments=B),
        ),
        DONE,
    )
    assert [call[2] for call in calls_of(got)] == [A, B]


def test_arguments_may_be_an_object() -> None:
    got = read(event(tool_delta(0, id="c1", name="f", arguments={"city": "Zürich"}), finish="stop"), DONE)
    assert json.loads(calls_of(got)[0][2]) == {"city": "Zürich"}
    assert got.finish == "tool-calls"


@pytest.mark.parametrize("nothing", [None, "", " "])
def test_arguments_that_never_came_are_an_empty_object(nothing: str | None) -> None:
    got = read(event(tool_delta(0, id="c1", name="f", arguments=nothing)), DONE)
    assert calls_of(got)[0][2].strip() == "{}"


def test_the_old_function_call_is_a_call() -> None:
    deltas = [{"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": A}}]
    assert [call[1:] for call in calls_of(read(event(*deltas, finish="function_call"), DONE))] == [("f", A)]


def test_a_signature_of_a_call_is_kept() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    got = read(event(tool_delta(0, id="c1", name="f", arguments=A, extra_content=extra)), DONE)
    assert got.content[0]["extra_content"] == extra


@pytest.mark.parametrize("arguments", ['{"path":"a"}', '{"path":"a'])
def test_at_the_limit_no_call_runs_even_one_that_looks_complete(arguments: str) -> None:
    got = read(event(tool_delta(0, id="c1", name="f", arguments=arguments), finish="length"), DONE)
    assert (got.finish, got.content, got.dropped) == ("max-tokens", [], ("f",))


def test_a_cut_call_at_the_limit_is_one_whatever_reason_is_given() -> None:
    cut = [event(tool_delta(0, id="c1", name="f", arguments='{"path":"a'), finish="tool_calls")]
    usage = data({"choices": [], "usage": {"completion_tokens": 100}})
    assert read(*cut, usage, DONE, max_tokens=100).finish == "max-tokens"
    below = read(*cut, usage, DONE, max_tokens=200)
    assert (below.finish, calls_of(below)) == ("tool-calls", [("c1", "f", '{"path":"a')])


def test_a_content_filter_is_its_own_finish() -> None:
    assert read(HELLO, event(finish="content_filter"), DONE).finish == "content-filter"
    assert read(event(finish="content_filter"), DONE).finish == "content-filter"


# -- whole answers


def test_an_answer_in_one_piece_is_read_like_a_stream() -> None:
    message = {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": A}}]}  # fmt: skip
    whole = {
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"completion_tokens": 3},
    }
    assembler = Assembler()
    for chunk in Reader("mock").whole(whole):
        assembler.feed(chunk)
    got = assembler.result()
    assert (reasoning_of(got), text_of(got), calls_of(got)) == ("hm", "Hello", [("c1", "f", A)])
    assert got.usage is not None
    assert got.usage["output"] == 3


# -- any splitting


deltas = st.one_of(
    st.builds(lambda t: {"content": t}, st.text(max_size=4)),
    st.builds(lambda t: {"reasoning_content": t}, st.text(max_size=4)),
    st.builds(
        tool_delta,
        st.sampled_from([0, 1, None]),
        id=st.sampled_from(["", "c1", "c2", None]),
        name=st.sampled_from(["", "f", None]),
        arguments=st.sampled_from(["", "{", "}", '{"a":1}', None, "\u2028"]),
    ),
    st.just({}),
)
parts = st.one_of(
    st.builds(event, deltas),
    st.sampled_from(
        [b": ping\n\n", b"\r\n", b"data: x\r\r", b"event: ping\n", data({"usage": {"completion_tokens": 1}})]
    ),
    st.sampled_from([DONE, STOP, event(finish="length"), data({"error": {"message": "no", "code": 502}})]),
)


def outcome(*pieces: bytes) -> tuple[list[Chunk], str | None]:
    """Chunks as far as they came, and the code of the error that ended them."""
    reader, out = Reader("mock"), []
    try:
        for piece in pieces:
            for chunk in reader.feed(piece):
                out.append(chunk)
        for chunk in reader.close():
            out.append(chunk)
    except ModelError as error:
        return out, error.code
    return out, None


@given(st.lists(parts, max_size=8).map(b"".join), st.lists(st.integers(0, 2000)))
def test_any_splitting_of_the_bytes_gives_the_same_chunks(stream: bytes, cuts: list[int]) -> None:
    at = sorted({cut for cut in cuts if 0 < cut < len(stream)})
    pieces = [stream[a:b] for a, b in zip([0, *at], [*at, len(stream)], strict=True)]
    whole = outcome(stream)
    assert outcome(*pieces) == whole
    assert outcome(*(bytes([byte]) for byte in stream)) == whole


@given(st.lists(parts, max_size=8).map(b"".join))
def test_whatever_comes_the_chunks_are_legal(stream: bytes) -> None:
    """The assembler takes all of them, and the last of a whole answer is its finish."""
    assembler = Assembler()
    chunks, error = outcome(stream)
    for chunk in chunks:
        assembler.feed(chunk)
    if error is None:
        with suppress(ModelError):  # a call without a name is refused, not misread
            assembler.result()


@given(st.binary(max_size=200))
def test_garbage_is_an_error_and_nothing_worse(stream: bytes) -> None:
    assert outcome(stream)[1] in {"STREAM_CLOSED", "EMPTY_RESPONSE", "MALFORMED_RESPONSE"}
