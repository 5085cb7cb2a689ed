"""What grows from step to step is as if it were made anew each time, and costs what is new in it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshd.model.grown import HASHED_AGAIN, Grown, Hash, shared
from dshd.model.request import Memo, Message
from tests.amount import examples

cuts = st.lists(st.tuples(st.integers(0, 12), st.lists(st.integers(), max_size=4)), max_size=12)


@settings(max_examples=examples(100))
@given(cuts)
def test_one_that_has_grown_is_what_it_was_made_of_whatever_grew_from_it_since(
    cuts: list[tuple[int, list[int]]],
) -> None:
    made: list[tuple[Grown[int], list[int]]] = [(Grown(), [])]
    for cut, more in cuts:
        grown, plain = made[cut % len(made)]
        made.append((grown[: cut % 5].plus(more), plain[: cut % 5] + more))
        made.append((grown.plus(more), plain + more))
        made.append((grown[cut % 3 :], plain[cut % 3 :]))
    for grown, plain in made:
        assert list(grown) == plain == [grown[i] for i in range(len(grown))]
        assert [grown[i] for i in range(-len(plain), 0)] == plain
        assert len(grown) == len(plain)
        for other, _ in made:
            same = shared(grown, other)
            assert list(grown)[:same] == list(other)[:same]


def test_two_that_have_grown_apart_share_what_they_began_with() -> None:
    begin = Grown([object()])
    one, other = begin.plus([object()]), begin.plus([object()])
    assert shared(one, other) == shared(other, list(one)) == 1
    assert shared(one, one.plus([object()])) == 2


def test_to_grow_and_to_cut_copies_nothing() -> None:
    class Counted(list[int]):
        def __iter__(self) -> None:  # type: ignore[override]
            raise AssertionError("somebody looks at all of it")

    grown: Grown[int] = Grown()
    grown._items = Counted()
    for number in range(5):
        grown = grown[: len(grown)].plus([number])
    assert shared(grown, grown[:4]) == 4
    assert grown[-1] == 4
    assert grown[1:][0] == 1


@pytest.mark.parametrize("index", [5, -6])
def test_an_index_beyond_it_is_an_error(index: int) -> None:
    with pytest.raises(IndexError):
        Grown(range(9))[2:7][index]


def said(text: str) -> Message:
    return {"text": text}


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 6), st.lists(st.text(max_size=3), max_size=3)), max_size=8))
def test_a_memo_gives_for_each_history_what_it_would_give_for_the_first(
    cuts: list[tuple[int, list[str]]],
) -> None:
    memo, messages = Memo(), Grown[Message]()
    for cut, more in cuts:
        messages = messages[:cut].plus(map(said, more))
        asked: Sequence[Message] = messages if cut % 2 else list(messages)
        assert list(memo.each("each", asked, lambda m: m["text"])) == [m["text"] for m in messages]
        written = [m["text"].encode() + b"." for m in messages]
        assert memo.text("text", asked, lambda m: m["text"].encode() + b".") == b",".join(written)


def test_what_a_memo_could_not_write_is_not_in_the_next_text() -> None:
    memo, messages = Memo(), Grown([said("a"), said("b")])

    def write(message: Message) -> bytes:
        if message["text"] == "bad":
            raise ValueError("not this one")
        return bytes(message["text"], "ascii")

    assert memo.text("text", messages, write) == b"a,b"
    with pytest.raises(ValueError, match="not this one"):
        memo.text("text", messages.plus([said("c"), said("bad")]), write)
    assert memo.text("text", messages.plus([said("d")]), write) == b"a,b,d"


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(0, 5 * HASHED_AGAIN), st.integers(0, 3 * HASHED_AGAIN), st.binary())))
def test_a_hash_is_that_of_the_whole_text(texts: list[tuple[int, int, bytes]]) -> None:
    one, text = Hash(), b""
    for cut, more, end in texts:
        text = text[:cut] + b"x" * more + end
        assert one.of(text) == hashlib.sha256(text).hexdigest()
