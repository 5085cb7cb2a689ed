from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.model.errors import ModelError
from dshd.model.request import ToolSpec
from dshd.prompt.tokens import estimate, estimate_message, estimate_request, estimate_tools, fits
from dshd.session.fold.compactions import Correction


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2)])
def test_four_bytes_are_a_token(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one: str, two: str) -> None:
    assert estimate(one) <= estimate(one + two) <= estimate(one) + estimate(two)


def test_a_lone_surrogate_is_counted_not_fatal() -> None:
    assert estimate("\ud83d") == 1


def test_every_kind_of_block_counts() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "x" * 40},
        {"type": "reasoning", "text": "x" * 40},
        {"type": "tool-call", "id": "c", "name": "read", "arguments": "x" * 40},
        {"type": "image", "hash": "h"},
        {"type": "x-unknown", "data": "x" * 40},
    ]
    for block in blocks:
        assert estimate_message({"role": "user", "content": [block]}) >= 10
    assert estimate_tools([ToolSpec("read", "x" * 40, {"type": "object"})]) >= 10


def test_a_request_that_fits_tells_its_size() -> None:
    messages = [user("x" * 4000)]
    assert fits("s" * 400, messages, [], 8192, 1024) == estimate_request("s" * 400, messages)


def test_a_full_window_is_a_clear_error_with_a_way_out() -> None:
    with pytest.raises(ModelError) as caught:
        fits("", [user("x" * 40_000)], [], 8192, 1024)
    assert caught.value.code == "CONTEXT_WINDOW_EXCEEDED"
    assert "it needs about 10,008 tokens, and the model takes 8,192, 1,024 of them for the answer" in str(
        caught.value
    )
    assert "Start a new session" in str(caught.value)


def test_an_unknown_window_always_fits() -> None:
    assert fits("", [user("x" * 400_000)], [], None, None) > 100_000


def test_a_large_answer_limit_does_not_fill_a_small_window_by_itself() -> None:
    fits("", [user("hello")], [], 4096, 32_000)


def test_estimates_are_corrected_by_reported_usage_within_bounds() -> None:
    assert Correction().learn(1000, 1300).apply(1000) == 1300
    assert Correction().learn(1000, 300).factor == 0.5
    assert Correction().learn(1000, 3000).factor == 2.0
    assert Correction(1.2).learn(1000, 10).factor == 1.2, "a server that doesn't count"
    assert Correction(1.2).learn(1000, 9000).factor == 1.2
    assert Correction(1.2).learn(0, 10).factor == 1.2
    with pytest.raises(ModelError):
        fits("", [user("x" * 20_000)], [], 8192, 0, Correction(2.0))
