"""When a schedule is due: a line of cron, every so often, or once. Instants are Unix ms.

A line of cron is read in the zone that the schedule was made in, and its instants are real ones:

| the hours of the line | on the day of a clock change                                              |
|-----------------------|---------------------------------------------------------------------------|
| all (``*``)           | what passes is real time: an hour that comes twice counts twice, one that |
|                       | is left out doesn't count                                                 |
| some (``2``, ``*/6``) | each time on the clock once: of two 02:30 the first; a 02:30 that is left |
|                       | out is due when the gap ends, at 03:00; several in the gap are due once   |

``every`` counts real time from the moment it was made, whatever the clocks say.

No disk, no clock; but that `zoneinfo` reads the zone's file, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from dshd.errors import Invalid
from dshd.session.fold.schedules import When

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

LEAST_EVERY_MS: Final = 60_000
DAILY_MS: Final = 23 * 3_600_000  # what is due this rarely is daily: one day in the year has 23 hours
MOST_COUNTED: Final = 1000
_LOOKED_BACK: Final = (3_600_000, 86_400_000, 32 * 86_400_000, 400 * 86_400_000)
_LONG: Final = 9 * 366 * 86_400_000  # a line that is due on no day of so many years is due on none

ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS: Final = (
    ("minute", "0-59"), ("hour", "0-23"), ("day of the month", "1-31"), ("month", "1-12 or jan-dec"),
    ("day of the week", "0-7 or sun-sat"),
)  # fmt: skip
EXAMPLE: Final = "dshctl schedule add '30 2 * * 1-5' 'TEXT'     (02:30, Monday to Friday)"
_START: Final = datetime(2024, 1, 1)  # any: whether a line can be read doesn't depend on it


def cron(line: str, zone: str) -> When:
    """Raises `Invalid`, which names the field."""
    zone_of(zone)
    when = When("cron", zone, line=_checked(line))
    if next_after(when, 0) is None:
        raise Invalid(f'"{line}" is due on no day at all', hint=EXAMPLE)
    return when


def every(ms: int, anchor: int, zone: str) -> When:
    zone_of(zone)
    if ms < LEAST_EVERY_MS:
        raise Invalid(
            f"every {ms / 1000:g}s is too often: 1m at least", hint="dshctl schedule add 'every 2h' 'TEXT'"
        )
    return When("every", zone, every=ms, anchor=anchor)


def at(moment: int, zone: str) -> When:
    zone_of(zone)
    return When("at", zone, at=moment)


def zone_of(name: str) -> ZoneInfo:
    """Raises `Invalid`."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise Invalid(f'"{name}" is no time zone that this system knows',
                      hint="dshctl schedule add --zone Europe/Berlin ...") from None  # fmt: skip


# --- the line


def _checked(line: str) -> str:
    typed = " ".join(line.split())
    if typed.startswith("@"):
        return _alias(typed)
    fields = typed.split()
    if len(fields) != len(FIELDS):
        names = ", ".join(name for name, _ in FIELDS)
        raise Invalid(
            f'"{typed}" has {len(fields)} fields, and a line of cron has five: {names}', hint=EXAMPLE
        )
    for number, field in enumerate(fields):
        _check_field(number, field)
    try:
        _dues(typed, _START)
    except ValueError:  # each field can be read: together they name no day
        raise Invalid(f'"{typed}" is due on no day: no such day in these months', hint=EXAMPLE) from None
    return typed


def _alias(typed: str) -> str:
    found = ALIASES.get(typed.lower())
    if found is None:
        reboot = "; at the start of dshd nothing is due" if typed.lower() == "@reboot" else ""
        raise Invalid(f'"{typed}" is none of {", ".join(ALIASES)}{reboot}', hint=EXAMPLE)
    return found


def _check_field(number: int, field: str) -> None:
    name, range = FIELDS[number]
    alone = ["*"] * len(FIELDS)
    alone[number] = field
    try:
        _dues(" ".join(alone), _START)
    except ValueError:
        raise Invalid(f'"{field}" is no {name} ({range})', hint=EXAMPLE) from None


# --- instants


def next_after(when: When, moment: int) -> int | None:
    """The first instant after ``moment``; None if there is none."""
    if when.kind == "at":
        return when.at if when.at is not None and when.at > moment else None
    if when.kind == "every":
        assert when.every is not None
        steps = (moment - when.anchor) // when.every + 1
        return when.anchor + steps * when.every
    return next(_of_line(when, moment), None)


def upcoming(when: When, moment: int, most: int) -> list[int]:
    """The next instants after ``moment``."""
    found: list[int] = []
    while len(found) < most and (due := next_after(when, moment)) is not None:
        found.append(due)
        moment = due
    return found


def passed(when: When, first: int, now: int) -> tuple[int, int]:
    """Of the instants from ``first``, which is one, to ``now``: the last, and how many they are; counted
    to `MOST_COUNTED`."""
    if when.kind == "at":
        return first, 1
    if when.kind == "every":
        assert when.every is not None
        more = max(0, (now - first) // when.every)
        return first + more * when.every, min(MOST_COUNTED, more + 1)
    last, count = first, 1
    for due in _of_line(when, first):
        if due > now:
            return last, count
        if count == MOST_COUNTED:
            return max(last, _last_until(when, now)), count
        last, count = due, count + 1
    return last, count


def _last_until(when: When, now: int) -> int:
    for back in _LOOKED_BACK:
        found = 0
        for due in _of_line(when, now - back):
            if due > now:
                break
            found = due
        if found:
            return found
    return 0


def is_daily(when: When, moment: int) -> bool:
    """Whether it is due once a day, or more rarely."""
    if when.kind == "at":
        return True
    dues = upcoming(when, moment, 9)
    return all(b - a >= DAILY_MS for a, b in itertools.pairwise(dues))


def _of_line(when: When, moment: int) -> Iterator[int]:
    assert when.line is not None
    zone = zone_of(when.zone)
    here = datetime.fromtimestamp(moment / 1000, zone)
    instants = _in_real_time if when.line.split()[1] == "*" else _on_the_clock
    latest = moment
    for due in instants(when.line, here, zone):
        if due - moment > _LONG:
            return
        if due > latest:
            latest = due
            yield due


def _in_real_time(line: str, here: datetime, zone: ZoneInfo) -> Iterator[int]:
    for due in _safely(_dues(line, here)):
        yield _ms(due)


def _on_the_clock(line: str, here: datetime, zone: ZoneInfo) -> Iterator[int]:
    """What the clock on the wall shows, and when it shows that first."""
    for shown in _safely(_dues(line, here.replace(tzinfo=None, fold=0))):
        yield _ms(_there(shown.replace(tzinfo=zone)))


def _there(shown: datetime) -> datetime:
    """The same, or the end of the gap that it is in."""
    while shown.astimezone(UTC).astimezone(shown.tzinfo).replace(fold=0) != shown:
        shown += timedelta(minutes=1)
    return shown


def _dues(line: str, start: datetime) -> Iterator[datetime]:
    """What cronsim makes of it; imported here, for few daemons have schedules. Raises ``ValueError``."""
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(line, start)
    except (CronSimError, TypeError, AssertionError, IndexError) as error:
        raise ValueError(str(error)) from error


def _safely(dues: Iterator[datetime]) -> Iterator[datetime]:
    try:
        yield from dues
    except OverflowError:  # the last year that there is
        return


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
