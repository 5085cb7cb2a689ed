"""When a failed call is tried again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.model.errors import CODES, RETRIED, ModelError
from dshd.model.retry import Fail, Later, Quick, RetryPolicy, decide

NOW = 1_796_040_000_000


def plan(
    failures: int, code: str = "SERVER", *, after: float | None = None, at: int | None = None,
    patience: float = 6 * 3600.0, waited: float = 0.0, seed: int = 0,
) -> Quick | Later | Fail:  # fmt: skip
    error = ModelError(code, "x", retry_after=after, retry_at=at)
    rng = random.Random(seed)
    return decide(failures, error, now_ms=NOW, patience_s=patience, rng=rng, waited_s=waited)


@pytest.mark.parametrize(("failures", "delay"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0)])
@pytest.mark.parametrize("seed", range(5))
def test_five_quick_ones_doubling_from_half_a_second_give_or_take_a_tenth(
    failures: int, delay: float, seed: int
) -> None:
    got = plan(failures, seed=seed)
    assert isinstance(got, Quick)
    assert 0.9 * delay <= got.delay_s <= 1.1 * delay


def test_no_quick_one_is_longer_than_ten_seconds_and_a_tenth() -> None:
    error = ModelError("SERVER", "x")
    rng = random.Random(1)
    got = decide(20, error, now_ms=NOW, patience_s=1.0, rng=rng, policy=RetryPolicy(quick=99))
    assert isinstance(got, Quick)
    assert 9.0 <= got.delay_s <= 11.0


@pytest.mark.parametrize(
    ("failures", "minutes"), [(6, 1), (7, 2), (8, 5), (9, 10), (10, 15), (11, 15), (50, 15)]
)
def test_then_the_step_waits_longer_and_longer(failures: int, minutes: int) -> None:
    assert plan(failures) == Later(NOW + minutes * 60_000)


def test_it_waits_as_long_as_patience_lasts() -> None:
    assert plan(6, patience=59.0) == Fail()
    assert plan(6, patience=3600.0, waited=3580.0) == Fail()
    assert plan(6, patience=3600.0, waited=3540.0) == Later(NOW + 60_000)


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_without_patience_nothing_is_tried_again(code: str) -> None:
    assert plan(1, code, patience=0.0) == Fail()
    assert plan(1, code, after=2.0, patience=0.0) == Fail(NOW + 2000)


@pytest.mark.parametrize("code", sorted(CODES - RETRIED))
def test_what_cannot_get_better_is_not_tried_again(code: str) -> None:
    assert plan(1, code) == Fail()


@pytest.mark.parametrize("code", sorted(RETRIED))
def test_what_can_is(code: str) -> None:
    assert isinstance(plan(1, code), Quick)


@pytest.mark.parametrize("after", [1.0, 5.0, 10.0])
def test_a_named_delay_is_waited_for_at_least(after: float) -> None:
    got = plan(1, "RATE_LIMIT", after=after)
    assert isinstance(got, Quick)
    assert got.delay_s >= after


def test_a_later_time_makes_the_step_wait_at_once_without_a_quick_one() -> None:
    assert plan(1, "RATE_LIMIT", after=120.0) == Later(NOW + 120_000, named=True)
    assert plan(1, "SERVER", at=NOW + 120_000) == Later(NOW + 120_000, named=True)


def test_a_time_beyond_patience_fails_at_once_and_says_when() -> None:
    assert plan(1, "RATE_LIMIT", after=3600.0, patience=600.0) == Fail(NOW + 3_600_000)
    assert plan(1, "RATE_LIMIT", after=3600.0, patience=0.0) == Fail(NOW + 3_600_000)
    assert plan(1, "RATE_LIMIT", at=NOW + 3_600_000, patience=0.0) == Fail(NOW + 3_600_000)


def test_a_time_that_has_passed_is_no_wish() -> None:
    assert isinstance(plan(1, "RATE_LIMIT", at=NOW - 5000), Quick)
    assert isinstance(plan(1, "RATE_LIMIT", after=-1.0), Quick)


@given(
    st.integers(1, 100),
    st.sampled_from(sorted(CODES)),
    st.none() | st.floats(0, 1e6),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
)
def test_it_never_waits_past_patience_nor_before_the_named_time(
    failures: int, code: str, after: float | None, patience: float, waited: float
) -> None:
    got = plan(failures, code, after=after, patience=patience, waited=waited)
    if isinstance(got, Later):
        assert waited + (got.until_ms - NOW) / 1000 <= patience + 0.001
        assert after is None or got.until_ms - NOW >= min(after, 900) * 1000 - 1
    if isinstance(got, Quick) and after:
        assert got.delay_s >= after
