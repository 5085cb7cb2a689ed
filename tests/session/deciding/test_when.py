"""When a schedule is due: in words that name the mistake, and right on the two odd days of the year."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from dshd.errors import Invalid
from dshd.session.deciding import when

BERLIN = "Europe/Berlin"
ZONE = ZoneInfo(BERLIN)
AUTUMN, SPRING = datetime(2026, 10, 24, 23, 59, tzinfo=ZONE), datetime(2026, 3, 28, 23, 59, tzinfo=ZONE)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, zone: str = BERLIN) -> int:
    return ms(datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(zone)))


def shown(line: str, after: datetime, most: int, zone: str = BERLIN) -> list[str]:
    """``25T02:30+02``, of the next instants."""
    dues = when.upcoming(when.cron(line, zone), ms(after), most)
    return [datetime.fromtimestamp(due / 1000, ZoneInfo(zone)).strftime("%dT%H:%M%z")[:11] for due in dues]


@pytest.mark.parametrize(
    ("line", "autumn", "spring"),
    [
        ("30 2 * * *", ["25T02:30+02", "26T02:30+01"], ["29T03:00+02", "30T02:30+02"]),
        ("*/30 2 * * *", ["25T02:00+02", "25T02:30+02", "26T02:00+01"], ["29T03:00+02", "30T02:00+02"]),
        ("0 */2 * * *", ["25T00:00+02", "25T02:00+02", "25T04:00+01"],
         ["29T00:00+01", "29T03:00+02", "29T04:00+02"]),
        ("30 * * * *", ["25T00:30+02", "25T01:30+02", "25T02:30+02", "25T02:30+01", "25T03:30+01"],
         ["29T00:30+01", "29T01:30+01", "29T03:30+02"]),
        ("0 3 * * *", ["25T03:00+01", "26T03:00+01"], ["29T03:00+02", "30T03:00+02"]),
    ],
)  # fmt: skip
def test_a_time_on_the_clock_is_due_once_when_it_comes_twice_and_when_it_is_left_out(
    line: str, autumn: list[str], spring: list[str]
) -> None:
    assert shown(line, AUTUMN, len(autumn)) == autumn
    assert shown(line, SPRING, len(spring)) == spring


def test_in_the_hour_that_comes_again_what_it_had_is_over() -> None:
    nightly = when.cron("30 2 * * *", BERLIN)
    again = ms(datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=ZONE))
    assert when.next_after(nightly, again) == at(2026, 10, 26, 2, 30)


def test_each_zone_has_its_own_days() -> None:
    nightly = {zone: when.next_after(when.cron("0 2 * * *", zone), at(2026, 7, 1, zone="UTC"))
               for zone in ("UTC", "America/New_York", "Asia/Kathmandu")}  # fmt: skip
    assert len(set(nightly.values())) == 3


def test_every_counts_real_time_whatever_the_clocks_show() -> None:
    start = at(2026, 10, 25, 1, 0)
    hourly = when.every(7_200_000, start, BERLIN)
    assert when.upcoming(hourly, start, 3) == [start + n * 7_200_000 for n in (1, 2, 3)]
    assert (
        when.next_after(hourly, start - 3 * 7_200_000 - 1) == start - 3 * 7_200_000
    )  # the clock was set back


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("61 2 * * *", '"61" is no minute (0-59)'),
        ("0 25 * * *", '"25" is no hour (0-23)'),
        ("0 0 32 * *", '"32" is no day of the month (1-31)'),
        ("0 0 * MAY-XYZ *", '"MAY-XYZ" is no month (1-12 or jan-dec)'),
        ("0 0 * * 9", '"9" is no day of the week (0-7 or sun-sat)'),
        ("*/0 * * * *", '"*/0" is no minute (0-59)'),
        ("0 2 * *", '"0 2 * *" has 4 fields'),
        ("0 0 2 * * *", "has 6 fields"),
        ("", "has 0 fields"),
        ("0 0 31 2 *", "due on no day"),
        ("@reboot", "is none of @hourly"),
        ("@nightly", '"@nightly" is none of'),
    ],
)
def test_what_is_no_line_of_cron_is_told_with_its_field_and_an_example(line: str, named: str) -> None:
    with pytest.raises(Invalid, match=r"is|has") as refused:
        when.cron(line, BERLIN)
    assert named in refused.value.message
    assert refused.value.hint.startswith("dshctl schedule add")


def test_no_zone_too_often_and_too_late_are_told() -> None:
    with pytest.raises(Invalid, match="no time zone"):
        when.cron("0 2 * * *", "Mars/Base")
    with pytest.raises(Invalid, match="too often"):
        when.every(59_000, 0, "UTC")


def test_daily_and_rarer_is_told_from_more_often() -> None:
    def daily(line: str) -> bool:
        return when.is_daily(when.cron(line, BERLIN), ms(SPRING))

    assert [daily(line) for line in ("@daily", "0 2 * * 1-5", "@weekly", "@yearly")] == [True] * 4
    assert [daily(line) for line in ("@hourly", "0 2,14 * * *", "0 2 * * 1,2", "* * * * *")] == [
        False, False, True, False,
    ]  # fmt: skip


def test_what_passed_is_counted_and_only_the_last_is_told() -> None:
    nightly, minutely = when.cron("30 2 * * *", BERLIN), when.cron("* * * * *", BERLIN)
    first = at(2026, 3, 1, 2, 30)
    assert when.passed(nightly, first, first) == (first, 1)
    assert when.passed(nightly, first, at(2026, 3, 4, 2, 29)) == (at(2026, 3, 3, 2, 30), 3)
    assert when.passed(minutely, first, at(2026, 3, 1, 2, 40)) == (at(2026, 3, 1, 2, 40), 11)
    last = at(2027, 3, 1, 12, 0)
    assert when.passed(minutely, first, last + 30_000) == (last, when.MOST_COUNTED)
    every = when.every(60_000, first, BERLIN)
    assert when.passed(every, first, last + 1) == (last, when.MOST_COUNTED)
