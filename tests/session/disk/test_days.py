"""What was spent, and on which day: sums, prices, quarters, and what is kept of deleted sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.log.memory import MemoryDisk
from dshd.log.store import Store
from dshd.session.disk import days
from dshd.session.disk.days import Days
from dshd.session.fold import spending
from dshd.session.fold.spending import QUARTER_MS

BERLIN = ZoneInfo("Europe/Berlin")
NEPAL = timezone(timedelta(hours=5, minutes=45))


def ms(zone: object, *at: int) -> int:
    return round(datetime(*at, tzinfo=zone).timestamp() * 1000)  # type: ignore[arg-type, misc]


def spent(at: int, cost: float, tokens: int = 10) -> dict[int, spending.Usage]:
    usage = {"input": tokens, "output": 0, "cost": cost, "currency": "USD"}
    return dict(spending.noted({}, at, usage))


# --- usage ----------------------------------------------------------------------------------------------


def test_currencies_are_never_added_to_each_other() -> None:
    total: spending.Usage = {}
    for cost, currency in ((1.0, "USD"), (7.0, "CNY"), (0.5, "USD")):
        total = spending.add(total, {"input": 1, "cost": cost, "currency": currency})
    assert total["input"] == 3
    assert spending.costs(total) == {"CNY": 7.0, "USD": 1.5}
    assert (total["cost"], total["currency"], total["earlier"]) == (1.5, "USD", {"CNY": 7.0})


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from(["USD", "CNY", "EUR"])), max_size=12), st.data())
def test_a_sum_of_sums_is_the_sum_of_all(parts: list[tuple[float, str]], data: st.DataObject) -> None:
    usages = [{"output": 1, "cost": cost, "currency": currency} for cost, currency in parts]
    cut = data.draw(st.integers(0, len(usages)))
    left: spending.Usage = {}
    right: spending.Usage = {}
    every: spending.Usage = {}
    for n, usage in enumerate(usages):
        every = spending.add(every, usage)
        left, right = (spending.add(left, usage), right) if n < cut else (left, spending.add(right, usage))
    both = spending.add(left, right)
    assert spending.costs(both) == pytest.approx(spending.costs(every), abs=1e-6)
    assert both.get("output") == every.get("output")


def test_a_price_counts_what_was_cached_apart() -> None:
    usage = {"input": 100_000, "cached": 900_000, "output": 500_000, "reasoning": 400_000}
    price = {"input": 1.0, "cached": 0.1, "output": 2.0, "currency": "USD"}
    assert spending.priced(usage, price) == {**usage, "cost": 1.19, "currency": "USD"}
    assert (spending.priced(usage, {**price, "cached": None}) or {})["cost"] == 2.0
    assert spending.priced(usage, None) == usage
    assert spending.priced(None, price) is None
    assert spending.tokens(usage) == 1_500_000


def test_counts_that_no_json_holds_are_held_at_the_most_it_does() -> None:
    huge = {"output": 2**53 - 1, "cost": 2.0**53, "currency": "USD"}
    total = spending.add(spending.add({}, huge), huge)
    assert total["output"] == 2**53 - 1
    assert total["cost"] <= 2**53 - 1


def test_only_the_last_day_is_kept() -> None:
    quarters: spending.Quarters = {}
    for hour in range(100):
        quarters = spending.noted(quarters, hour * 3_600_000, {"output": 1})
    assert min(quarters) * QUARTER_MS >= (99 - 26) * 3_600_000
    assert sum(usage["tokens"] for usage in quarters.values()) == 26


# --- days -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", [UTC, BERLIN, NEPAL])
def test_a_day_is_from_midnight_to_midnight_where_the_user_is(zone: object) -> None:
    all = Days(zone)  # type: ignore[arg-type]
    midnight = ms(zone, 2026, 11, 30)
    all.note("a", spent(midnight - 1, 1.0))
    all.note("b", spent(midnight, 2.0))
    all.note("c", spent(midnight + 86_400_000 - 1, 4.0))
    assert all.today(midnight - 1)["cost"] == 1.0
    assert all.today(midnight)["cost"] == 6.0
    assert all.today(midnight + 86_400_000) == {}


@pytest.mark.parametrize(("date", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25)])
def test_a_day_of_a_clock_change_is_as_long_as_it_is(date: tuple[int, int, int], hours: int) -> None:
    all = Days(BERLIN)
    midnight = ms(BERLIN, *date)
    for hour in range(-1, 26):
        all.note(f"s{hour}", spent(midnight + hour * 3_600_000 + 1, 1.0))
    assert all.today(midnight + 3 * 3_600_000)["cost"] == hours


def test_what_a_session_spends_more_replaces_what_was_known_of_it() -> None:
    all, now = Days(UTC), ms(UTC, 2026, 11, 30, 12)
    first = spent(now, 1.0)
    second = spending.noted(first, now + QUARTER_MS, {"cost": 2.0, "currency": "USD"})
    for lately in (first, second, second):
        all.note("a", lately)
    all.note("b", spent(now, 5.0))
    assert all.today(now)["cost"] == 8.0
    all.note("a", {})  # withdrawn with what the disk lost
    assert all.today(now)["cost"] == 5.0


def test_what_was_deleted_is_kept_for_its_day_and_no_longer() -> None:
    disk, state, now = MemoryDisk(), Path("/state"), ms(UTC, 2026, 11, 30, 12)
    Store(disk, state).prepare()
    all = Days(UTC)
    for id in ("gone", "stays"):
        all.note(id, spent(now, 1.5))
    all.delete("gone")
    days.write(disk, state, all.deleted(now))
    kept = days.read(disk, state)
    assert kept == {"gone": spent(now, 1.5)}
    again = Days(UTC)
    again.restore(kept)
    assert again.today(now)["cost"] == 1.5
    assert again.deleted(now) == kept
    assert again.deleted(now + 27 * 3_600_000) == {}


def test_another_session_of_a_deleted_ones_id_adds_to_what_that_spent_however_often() -> None:
    disk, state, now = MemoryDisk(), Path("/state"), ms(UTC, 2026, 11, 30, 12)
    Store(disk, state).prepare()
    all = Days(UTC)
    assert not all.part("a")
    for times in (1, 2, 3):
        all.note("a", spent(now + times * QUARTER_MS // 2, 1.5))
        assert all.today(now)["cost"] == 1.5 * times
        all.delete("a")
        assert all.part("a")
        assert not all.part("a")
        all.note("a", {})
        assert all.today(now)["cost"] == 1.5 * times
        days.write(disk, state, all.deleted(now))
        again = Days(UTC)
        again.restore({id: lately for id, lately in days.read(disk, state).items() if id != "a"})
        assert again.today(now)["cost"] == 1.5 * times
    assert all.deleted(now + 28 * 3_600_000) == {}


def test_a_file_that_is_not_whole_counts_for_nothing() -> None:
    disk, state, now = MemoryDisk(), Path("/state"), ms(UTC, 2026, 11, 30, 12)
    Store(disk, state).prepare()
    assert days.read(disk, state) == {}
    days.write(disk, state, {"a": spent(now, 1.0)})
    whole = disk.read_bytes(state / days.NAME)
    for damaged in (whole[:-5], whole.replace(b"1.0", b"9.0"), b"", b"{}"):
        disk.write_atomic(state / days.NAME, [damaged])
        assert days.read(disk, state) == {}
