"""The assembler: two tables and what they mean."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.model.believed import Bounds
from dshd.model.blocks import BLOCKS, STREAM, Assembler, Event, State, Stream, StreamEvent
from dshd.model.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    chunk_from_json,
    chunk_to_json,
)
from dshd.model.errors import ModelError

USAGE = {"input": 1, "cached": 0, "output": 2, "reasoning": 0}
STOP = Finish("stop")

indexes = st.integers(0, 3)
texts = st.text(max_size=5)
names = st.one_of(st.none(), st.sampled_from(["bash", ""]))
chunks: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(BlockStart, indexes, st.sampled_from(["text", "reasoning", "tool-call"]), names, names),
    st.builds(TextDelta, indexes, texts),
    st.builds(ReasoningDelta, indexes, texts),
    st.builds(ToolCallDelta, indexes, texts, names, names),
    st.builds(BlockEnd, indexes, st.one_of(st.none(), st.just({"signature": "s"}))),
    st.just(Usage(USAGE)),
    st.builds(Finish, st.sampled_from(["stop", "tool-calls", "max-tokens", "content-filter"])),
)


def assemble(*given_chunks: Chunk) -> Assembler:
    assembler = Assembler()
    for chunk in given_chunks:
        assembler.feed(chunk)
    return assembler


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def reached(table: dict[Any, dict[Any, Any]], start: Enum) -> set[Any]:
    seen: set[Any] = set()
    todo = [start]
    while todo:
        state = todo.pop()
        if state not in seen:
            seen.add(state)
            todo.extend(table[state].values())
    return seen


def test_every_state_is_in_its_table_and_can_be_reached() -> None:
    assert reached(BLOCKS, State.ABSENT) == set(State) == set(BLOCKS)
    assert reached(STREAM, Stream.OPEN) == set(Stream) == set(STREAM)


def test_every_state_that_is_not_the_end_has_an_exit_for_abort() -> None:
    assert all(StreamEvent.ABORT in exits for exits in STREAM.values() if exits)
    assert {state for state, exits in STREAM.items() if not exits} == {Stream.FINISHED, Stream.ABORTED}


def test_every_open_block_can_be_closed_once() -> None:
    assert {s for s, exits in BLOCKS.items() if exits.get(Event.END) is State.CLOSED} == set(State) - {
        State.ABSENT
    }
    assert set(BLOCKS[State.CLOSED].values()) == {State.CLOSED}


@given(chunks)
def test_a_chunk_comes_back_from_the_log_as_it_was(chunk: Chunk) -> None:
    assert chunk_from_json(chunk_to_json(chunk)) == chunk


@given(st.lists(chunks, max_size=12))
def test_an_illegal_chunk_raises_and_changes_nothing(sequence: list[Chunk]) -> None:
    """Those that were refused might as well not have come."""
    assembler, taken = Assembler(), []
    for chunk in sequence:
        with suppress(ModelError):
            assembler.feed(chunk)
            taken.append(chunk)
    assert assembler.interrupted() == assemble(*taken).interrupted()
    assert (assembler.stream, assembler.usage) == (assemble(*taken).stream, assemble(*taken).usage)


def test_blocks_stand_in_the_order_in_which_they_were_first_seen() -> None:
    got = assemble(TextDelta(7, "a"), ReasoningDelta(2, "b"), TextDelta(7, "c"), STOP).result()
    assert got.content == [text("ac"), {"type": "reasoning", "text": "b"}]


def test_starts_and_ends_may_be_missing_or_doubled() -> None:
    got = assemble(
        BlockStart(0, "text"), BlockStart(0, "text"), TextDelta(0, "a"), BlockEnd(0), BlockEnd(0), STOP
    )
    assert got.result().content == assemble(TextDelta(0, "a"), STOP).result().content == [text("a")]


def test_the_first_end_of_a_block_wins() -> None:
    got = assemble(
        ReasoningDelta(0, "a"), BlockEnd(0, {"signature": "x"}), BlockEnd(0, {"signature": "y"}),
        ReasoningDelta(0, "late"), TextDelta(0, "later"), STOP,
    ).result()  # fmt: skip
    assert got.content == [{"type": "reasoning", "text": "a", "signature": "x"}]


def test_a_block_does_not_change_its_kind() -> None:
    with pytest.raises(ModelError, match="block 0, which is text"):
        assemble(TextDelta(0, "a"), ReasoningDelta(0, "b"))


@pytest.mark.parametrize("late", [TextDelta(0, "x"), Usage(USAGE), STOP, BlockEnd(0)])
def test_nothing_comes_after_the_finish(late: Chunk) -> None:
    with pytest.raises(ModelError):
        assemble(TextDelta(0, "a"), STOP, late)


def test_usage_comes_after_the_blocks() -> None:
    assert assemble(TextDelta(0, "a"), Usage(USAGE), STOP).result().usage == USAGE
    with pytest.raises(ModelError):
        assemble(Usage(USAGE), TextDelta(0, "a"))


def test_an_answer_without_a_finish_is_cut() -> None:
    with pytest.raises(ModelError) as caught:
        assemble(TextDelta(0, "a")).result()
    assert caught.value.code == "STREAM_CLOSED"


def test_a_call_keeps_its_arguments_as_they_came() -> None:
    got = assemble(
        BlockStart(0, "tool-call", "c1", "bash"), ToolCallDelta(0, '{"a'), ToolCallDelta(0, '":1', "", ""),
        ToolCallDelta(0, " }"), Finish("tool-calls"),
    ).result()  # fmt: skip
    assert got.content == [{"type": "tool-call", "id": "c1", "name": "bash", "arguments": '{"a":1 }'}]


def test_at_the_limit_no_call_of_the_answer_runs() -> None:
    got = assemble(
        TextDelta(0, "a"), BlockStart(1, "tool-call", "c1", "bash"), ToolCallDelta(1, "{}"), BlockEnd(1),
        BlockStart(2, "tool-call", "c2", "read"), ToolCallDelta(2, '{"pa'), Finish("max-tokens"),
    ).result()  # fmt: skip
    assert (got.content, got.dropped) == ([text("a")], ("bash", "read"))


def test_a_call_without_an_id_gets_one_and_that_is_said() -> None:
    got = assemble(ToolCallDelta(3, "{}", None, "bash"), Finish("tool-calls")).result()
    assert got.content[0]["id"] == "call-3"
    assert "no id" in got.problems[0]


def test_a_call_without_a_name_is_refused() -> None:
    with pytest.raises(ModelError, match="no name"):
        assemble(ToolCallDelta(0, "{}", "c1"), Finish("tool-calls")).result()


def test_empty_blocks_are_left_out_but_opaque_ones_are_kept() -> None:
    got = assemble(
        BlockStart(0, "text"),
        BlockStart(1, "reasoning"),
        BlockStart(2, "reasoning"),
        BlockEnd(2, {"data": "x"}),
        STOP,
    ).result()
    assert got.content == [{"type": "reasoning", "text": "", "data": "x"}]


def test_of_a_cut_answer_text_and_reasoning_stay_and_no_call() -> None:
    assembler = assemble(
        ReasoningDelta(0, "whole"), BlockEnd(0, {"signature": "s"}), ReasoningDelta(1, "half"),
        TextDelta(2, "some"), TextDelta(3, " \n"), ToolCallDelta(4, '{"comm', "c1", "bash"),
    )  # fmt: skip
    assembler.abort()
    assert assembler.interrupted() == [
        {"type": "reasoning", "text": "whole", "signature": "s"},
        {"type": "reasoning", "text": "half", "incomplete": True},
        text("some"),
    ]


def test_a_count_that_no_provider_can_mean_is_not_counted() -> None:
    assembler = Assembler()
    odd: Any = {"input": float("nan"), "output": 2**60, "cached": -1, "reasoning": 1e300, "x": "7", "more": 5}
    assembler.feed(Usage(odd))
    assert assembler.usage == {"more": 5}


WINDOW = Bounds(window=1000, sent=100)


@pytest.mark.parametrize(
    ("reported", "counted"),
    [
        ({"input": 2**53 - 1, "output": 5}, {"input": 100, "cached": 0, "output": 5}),
        ({"input": 600, "cached": 501, "output": 5}, {"input": 100, "cached": 0, "output": 5}),
        ({"input": 600, "cached": 500, "output": 5}, {"input": 600, "cached": 500, "output": 5}),
        ({"input": 5, "output": 2**53 - 1}, {"input": 5, "output": 3, "reasoning": 0}),
        ({"input": 5, "output": 1, "reasoning": 2**52}, {"input": 5, "output": 3, "reasoning": 0}),
        ({"input": 5, "other": 2**52}, {"input": 5}),
    ],
)
def test_more_tokens_than_can_be_are_not_believed(reported: Any, counted: Any) -> None:
    assembler = Assembler(WINDOW)
    assembler.feed(TextDelta(0, "12345678 9"))
    assembler.feed(Usage(reported))
    assert assembler.usage == counted
    assert assembler.unbelieved == (reported if counted != reported else None)


def test_where_the_window_is_not_known_it_is_that_of_any_model() -> None:
    assembler = Assembler(Bounds(sent=7))
    assembler.feed(Usage({"input": 3_000_000, "output": 2**53 - 1}))
    assert assembler.usage == {"input": 3_000_000, "output": 1, "reasoning": 0}
