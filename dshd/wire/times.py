"""Moments, as people type them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dshd.errors import Invalid
from dshd.wire.quantities import DIGITS

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

_CLOCK: Final = re.compile(r"(?:(yesterday|today|tomorrow)[ T])?(\d{1,2}):(\d{2})(?::(\d{2}))?\Z", re.ASCII)
_UNIX: Final = re.compile(rf"@({DIGITS}(?:\.{DIGITS})?)\Z", re.ASCII)
_LAST_MOMENT: Final = 253_402_300_799_000  # Unix ms; the last second of 9999


def parse_time(text: str, now_ms: int, tz: tzinfo | None = None, *, past: bool = False) -> int:
    """Unix ms of a TIME: ``18:00`` (next), ``tomorrow 06:00``, ``2026-12-01 06:00``, ISO 8601, ``@UNIX``.

    ``tz`` is the zone of times that name none (None: the system's). With ``past`` (for ``--since``) a
    clock time is the last one, and ``yesterday 06:00`` is one, too; what lies in the future raises `Invalid`;
    without, what lies in the past does.
    """
    moment = _parse_moment(text.strip(), now_ms, tz, past)
    if moment is None:
        forms = "2h, 18:00, yesterday 06:00" if past else "18:00, tomorrow 06:00"
        raise Invalid(f'"{text}" is not a time; write {forms}, 2026-12-01 06:00 or @UNIX')
    if moment > _LAST_MOMENT:
        raise Invalid(f'"{text}" is after the year 9999')
    if moment < now_ms and not past:
        raise Invalid(f'"{text}" is in the past')
    if moment > now_ms and past:
        raise Invalid(f'"{text}" is still to come; write 2h, 18:00 or yesterday 06:00')
    return moment


def _parse_moment(text: str, now_ms: int, tz: tzinfo | None, past: bool) -> int | None:
    if match := _UNIX.match(text):
        return round(float(match[1]) * 1000)
    if match := _CLOCK.match(text):
        return _clock_moment(match, now_ms, tz, past)
    from datetime import datetime

    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None and not past:
            at = _next(at, now_ms, tz) or at
        return _unix_ms(at, tz)
    except (ValueError, OverflowError):
        return None


def _clock_moment(match: re.Match[str], now_ms: int, tz: tzinfo | None, past: bool) -> int | None:
    from datetime import datetime, timedelta

    day, hour, minute, second = match[1], int(match[2]), int(match[3]), int(match[4] or 0)
    today = datetime.fromtimestamp(now_ms / 1000, tz)
    try:
        at = today.replace(tzinfo=None, hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None
    at = at.replace(fold=0)
    if day in ("tomorrow", "yesterday"):
        at += timedelta(days=1 if day == "tomorrow" else -1)
    elif past:
        at = _last(at, now_ms, tz) or (at if day else _last(at - timedelta(days=1), now_ms, tz) or at)
    else:
        at = _next(at, now_ms, tz) or (at if day else at + timedelta(days=1))
    return _unix_ms(at, tz)


def _next(at: datetime, now_ms: int, tz: tzinfo | None) -> datetime | None:
    """This wall time, if it is still to come. In the hour that autumn has twice, the second one counts
    once the first is over."""
    return next((one for one in (at, at.replace(fold=1)) if _unix_ms(one, tz) > now_ms), None)


def _last(at: datetime, now_ms: int, tz: tzinfo | None) -> datetime | None:
    return next((one for one in (at.replace(fold=1), at) if _unix_ms(one, tz) <= now_ms), None)


def _unix_ms(moment: datetime, tz: tzinfo | None) -> int:
    """Days are added to the wall clock before this, so that a clock change moves no appointment."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=tz) if tz is not None else moment
    return round(moment.timestamp() * 1000)
