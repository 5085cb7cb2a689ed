"""Long queues grow at their end without a copy, and never change for who holds a shorter one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.session.disk.freeze import freeze, thaw
from dshd.session.fold.layer import SHORT, Line, grown


@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(), max_size=5))))
def test_whoever_goes_on_from_whichever_each_holds_what_it_held(steps: list[tuple[int, list[int]]]) -> None:
    lines = [Line([1, 2, 3])]
    tuples: list[tuple[int, ...]] = [(1, 2, 3)]
    for at, more in steps:
        place = at % len(lines)
        lines.append(lines[place].plus(more))
        tuples.append((*tuples[place], *more))
    assert [tuple(line) for line in lines] == tuples
    assert [len(line) for line in lines] == [len(items) for items in tuples]


@pytest.mark.parametrize("index", [0, 2, -1, slice(1), slice(1, 3), slice(None, None, -1), slice(-2, None)])
def test_an_item_or_a_slice_is_that_of_the_tuple(index: int | slice) -> None:
    short = Line([1, 2, 3])
    short.plus([4])
    assert short[index] == (1, 2, 3)[index]
    assert repr(short) == repr((1, 2, 3))
    assert (short == (1, 2, 3), short == (1, 2, 3, 4), short == 5) == (True, False, False)


def test_there_is_no_item_behind_its_end() -> None:
    short = Line([1, 2, 3])
    short.plus([4])
    with pytest.raises(IndexError):
        short[3]
    assert 4 not in short


def test_a_long_queue_is_not_copied_for_one_more_and_a_short_one_is_a_tuple() -> None:
    assert grown((), [1]) == (1,)
    long = grown(tuple(range(SHORT)), [SHORT])
    longer = grown(long, [SHORT + 1])
    assert isinstance(long, Line)
    assert isinstance(longer, Line)
    assert longer._items is long._items
    assert tuple(longer) == tuple(range(SHORT + 2))


def test_it_is_frozen_as_a_tuple() -> None:
    assert thaw(freeze(Line([1, 2]).plus([3]))) == (1, 2, 3)
