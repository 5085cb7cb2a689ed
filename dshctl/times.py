"""Times and durations as people read them: `12:04`, `Nov 28`, `6 min`, `3 d 4 h`.

All take Unix milliseconds (or milliseconds) and the moment that counts as now, so that they are
the same every time they are asked.
"""

from __future__ import annotations

import re
import time
from typing import Final

from dshd.plural import age as age

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def now_ms() -> int:
    """Unix time in ms."""
    return int(time.time() * 1000)


def clock(at: int, now: int) -> str:
    """``12:04`` if it is the same day as now, else ``Nov 28`` (with the year if it isn't this one's)."""
    then, today = time.localtime(at / 1000), time.localtime(now / 1000)
    if then[:3] == today[:3]:
        return f"{then.tm_hour:02}:{then.tm_min:02}"
    return _date(then, today)


def _date(then: time.struct_time, today: time.struct_time) -> str:
    day = f"{_MONTHS[then.tm_mon - 1]} {then.tm_mday}"
    return day if then.tm_year == today.tm_year else f"{day} {then.tm_year}"


def moment(at: int, now: int) -> str:
    """The day and the time: ``Nov 30 11:29``."""
    then = time.localtime(at / 1000)
    return f"{_date(then, time.localtime(now / 1000))} {then.tm_hour:02}:{then.tm_min:02}"


def coming(at: int, now: int) -> str:
    """``02:00`` if it is within a day, else the day too."""
    return moment(at, now)[-5:] if at - now < 86_400_000 else moment(at, now)


def until(at: int, now: int) -> str:
    """``in 13 h``."""
    return f"in {age(at - now)}" if at - now >= 1000 else "now"


def upcoming(at: int, now: int) -> str:
    """When something will be: ``18:00``, ``tomorrow 11:58``, ``Dec 2 11:58``."""
    day = 86_400_000
    today, then = time.localtime(now / 1000)[:3], time.localtime(at / 1000)
    if then[:3] == today:
        return clock(at, now)
    if time.localtime(at / 1000 - day / 1000)[:3] == today:
        return f"tomorrow {then.tm_hour:02}:{then.tm_min:02}"
    return moment(at, now)


def told_here(sentence: str) -> str:
    """A daemon's sentence, with its times (UTC, for it knows no zone of ours) as they are here; what stands
    in quotes is somebody's own words."""
    from calendar import timegm

    def here(found: re.Match[str]) -> str:
        at = timegm(time.strptime(found[0], "%Y-%m-%dT%H:%M:%SZ")) * 1000
        now = now_ms()
        today = clock(at, now)
        return today if ":" in today else moment(at, now)

    return _UTC.sub(here, sentence)


_UTC: Final = re.compile(r'(?<!["\w])\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(?!["\w])')


def exact(at: int) -> str:
    """``12:04:11``."""
    return time.strftime("%H:%M:%S", time.localtime(at / 1000))


def ago(at: int | None, now: int) -> str:
    """``now`` within a minute, an age within the hour, else the clock; ``-`` where nothing is known."""
    if not at:
        return "-"
    passed = now - at
    if passed < 60_000:
        return "now"
    return age(passed) if passed < 3_600_000 else clock(at, now)


def since(at: int | None, now: int) -> str:
    """The age of a moment, never negative."""
    return age(now - at) if at is not None else "?"
