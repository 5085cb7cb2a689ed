"""Refusals and named times: what providers say, and what it means to the retry policy."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.log import codec
from dshd.model.errors import CODES, LATEST_MS, LONGEST_S
from dshd.model.failures import broke_off, refused, retry_hint
from dshd.model.retry import Fail, Later, Quick, decide

DATE = "Mon, 30 Nov 2026 12:00:00 GMT"
AT = 1_796_040_000_000


def code(status: int, message: str = "", **error: Any) -> str:
    body = orjson.dumps({"error": {"message": message, **error}})
    return refused(status, {}, body, "mock").code


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "the request exceeds the available context size, try increasing it",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Invalid request: Your request exceeded model token limit: 131072",
        "input length exceeds the context length",
        "Your input exceeds the context window of this model.",
        "Requested token count exceeds the model's maximum context length of 32768 tokens.",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    ],
)
def test_a_full_context_is_known_by_its_wording(message: str) -> None:
    assert code(400, message) == "CONTEXT_WINDOW_EXCEEDED"
    assert code(400, message, type="invalid_request_error") == "CONTEXT_WINDOW_EXCEEDED"
    assert broke_off({"message": message}, "mock").code == "CONTEXT_WINDOW_EXCEEDED"


@pytest.mark.parametrize(
    "message",
    [
        "input too long",
        "String too long. Expected a string with maximum length 1048576",
        "tools[3].function.description is too long",
        "context must be a string",
    ],
)
def test_a_field_that_is_too_long_is_not_a_full_context(message: str) -> None:
    assert code(400, message) == "INVALID_REQUEST"


def test_a_rate_limit_that_speaks_of_size_stays_a_rate_limit() -> None:
    message = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000."
    assert code(429, message, type="tokens", code="rate_limit_exceeded") == "RATE_LIMIT"


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (402, {}, "QUOTA"),
        (402, {"type": "invalid_request_error"}, "QUOTA"),
        (429, {"code": "insufficient_quota"}, "QUOTA"),
        (429, {"message": "You exceeded your current quota, check your billing details"}, "QUOTA"),
        (400, {"message": "Your credit balance is too low"}, "QUOTA"),
        (429, {"message": "Rate limit reached for requests"}, "RATE_LIMIT"),
        (500, {"type": "invalid_request_error"}, "SERVER"),
        (401, {"type": "invalid_request_error"}, "AUTH"),
        (404, {"type": "invalid_request_error", "code": "model_not_found"}, "INVALID_REQUEST"),
        (400, {"code": "content_filter"}, "CONTENT_FILTERED"),
        (200, {}, "INVALID_REQUEST"),
        (529, {"type": "overloaded_error"}, "SERVER"),
    ],
)
def test_names_wording_and_status_decide_in_that_order(
    status: int, error: dict[str, Any], expected: str
) -> None:
    assert code(status, **{"message": "x", **error}) == expected


def test_a_quota_that_fills_up_again_in_a_minute_is_a_rate_limit() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]
    error = refused(
        429, {}, orjson.dumps({"error": {"message": "exceeded your quota", "details": details}}), "m"
    )
    assert (error.code, error.retry_after) == ("RATE_LIMIT", 34.0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error":{"message":"no"}}', "no"),
        (b'{"error":"no"}', "no"),
        (b'[{"error":{"message":"no"}}]', "no"),
        (b'{"message":"no"}', "no"),
        (b'{"detail":"no"}', "no"),
        (b'{"detail":[{"msg":"no"}]}', "no"),
        (b'{"error":{"message":"Provider returned error","metadata":{"raw":"the cause"}}}', "the cause"),
        (b"plain\n words", "plain words"),
        (b"<!doctype html><title>x", "web page"),
        (b"", "answered 400"),
        (b"\xff", "answered 400"),
    ],
)
def test_what_the_provider_said_is_found(body: bytes, said: str) -> None:
    assert said in refused(400, {}, body, "mock").message


MEMBERS = st.sampled_from(
    ["error", "message", "code", "type", "detail", "details", "metadata", "raw", "status"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=8,
)


@given(st.integers(300, 599), st.binary(max_size=50) | VALUES.map(orjson.dumps))
def test_any_body_gives_a_code_and_a_sentence(status: int, body: bytes) -> None:
    error = refused(status, {}, body, "mock")
    assert error.code in CODES
    assert error.message


# -- when to come back


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "5"}, (5.0, None)),
        ({"retry-after": " 0.5 "}, (0.5, None)),
        ({"retry-after": "3600"}, (3600.0, None)),
        ({"retry-after-ms": "1500"}, (1.5, None)),
        ({"retry-after-ms": "1500", "retry-after": "7"}, (1.5, None)),
        ({"retry-after": DATE}, (None, AT)),
        ({"retry-after": "Monday, 30-Nov-26 12:00:00 GMT"}, (None, AT)),
        ({"retry-after": "Mon Nov 30 12:00:00 2026"}, (None, AT)),
        ({"retry-after": DATE, "date": "Mon, 30 Nov 2026 11:59:00 GMT"}, (60.0, None)),
        ({"retry-after": DATE, "date": DATE}, (None, None)),
        ({"retry-after": DATE, "date": "whenever"}, (None, AT)),
        ({"retry-after": str(AT // 1000)}, (None, AT)),
        ({"retry-after": str(AT)}, (None, AT)),
        ({"x-ratelimit-reset": str(AT), "x-ratelimit-remaining": "0"}, (None, AT)),
        ({"x-ratelimit-reset": "30", "x-ratelimit-remaining": "0"}, (30.0, None)),
        ({"x-ratelimit-reset": "6m0s", "x-ratelimit-remaining": "0"}, (360.0, None)),
        ({"x-ratelimit-reset": "30"}, (None, None)),
        ({"x-ratelimit-reset": "30", "x-ratelimit-remaining": "7"}, (None, None)),
        ({"x-ratelimit-reset": "30", "retry-after": "2"}, (2.0, None)),
        ({"x-ratelimit-reset": "tomorrow", "x-ratelimit-remaining": "0"}, (None, None)),
        ({"retry-after": "0"}, (None, None)),
        ({"retry-after": "-5"}, (None, None)),
        ({"retry-after": "nan"}, (None, None)),
        ({"retry-after": "inf"}, (None, None)),
        ({"retry-after": "soon"}, (None, None)),
        ({"retry-after": ""}, (None, None)),
        ({"retry-after": "Mon, 99 Nov 99999 99:00:00 GMT"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], expected: tuple[Any, Any]) -> None:
    assert retry_hint(headers, None) == expected


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ({"retry_after": 12}, 12.0),
        ({"retryAfter": "12"}, 12.0),
        ({"retry_after_ms": 1500}, 1.5),
        ({"metadata": {"retry_after_seconds": 7}}, 7.0),
        ({"metadata": {"headers": {"X-RateLimit-Reset": "30", "X-RateLimit-Remaining": "0"}}}, 30.0),
        ({"metadata": {"headers": None}}, None),
        ({"details": [{}, {"retryDelay": "34.5s"}]}, 34.5),
        ({"message": "Rate limit reached. Please try again in 20s. Visit"}, 20.0),
        ({"message": "Please try again in 1m2.5s."}, 62.5),
        ({"message": "Please try again in 6ms."}, 0.006),
        ({"message": "try again in a while"}, None),
        ({"details": "none", "retry_after": True}, None),
        ("text", None),
    ],
)
def test_a_body_may_name_the_time_too(error: Any, seconds: float | None) -> None:
    assert retry_hint({}, error) == (seconds, None)


NEVER = ["99999999999999999999", "1e308", "1e400", "nan", "inf", "-5", "-1e308", "0", "1" * 400, 10**30,
         1e300, -1, float("nan"), float("inf"), True, [5], {"a": 5}]  # fmt: skip
DATES = ["Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT"]


@pytest.mark.parametrize("value", [*NEVER, *DATES])
def test_a_time_that_is_none_is_not_heeded_wherever_it_stands(value: Any) -> None:
    said = str(value)
    headers: list[dict[str, str]] = [
        {"retry-after": said}, {"retry-after-ms": said},
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": said},
    ]  # fmt: skip
    names = ("retry_after", "retryAfter", "retry_after_seconds", "retry_after_ms")
    errors = [{name: value} for name in names]
    found = [refused(429, one, b"{}", "mock") for one in headers]
    found += [broke_off(one, "mock") for one in errors]
    found += [broke_off({"details": [{"retryDelay": said + "s"}]}, "mock"),
              broke_off({"message": f"try again in {said}s"}, "mock")]  # fmt: skip
    for error in found:
        at = error.retry_at
        assert error.retry_after is None or 0 < error.retry_after <= LONGEST_S
        assert at is None or 0 < at <= LATEST_MS
        codec.lossless(error.to_json())
        plan = decide(1, error, now_ms=AT, patience_s=1e12, rng=random.Random(1))
        assert isinstance(plan, Quick | Later | Fail)
        assert not isinstance(plan, Later) or plan.until_ms <= AT + LONGEST_S * 1000


@pytest.mark.parametrize("levels", [90, 500, 1000, 5000])
def test_a_refusal_that_is_nested_as_deep_as_a_server_likes_is_told(levels: int) -> None:
    body = b'{"error": {"message": ' + b"[" * levels + b"]" * levels + b"}}"
    assert refused(400, {}, body, "mock").code == "INVALID_REQUEST"
