"""Durations, money and counts, as people type them."""

from __future__ import annotations

import operator
import re
from typing import Final

from dshd.errors import Invalid

# Of more digits than these nothing is a duration or a time, and Python refuses to read thousands of them.
DIGITS: Final = r"\d{1,15}"
_N: Final = DIGITS
_DURATION: Final = re.compile(rf"(?=\d)(?:({_N})d)?(?:({_N})h)?(?:({_N})m)?(?:({_N})s)?\Z", re.ASCII)
_BARE: Final = re.compile(rf"{_N}(?:\.{_N})?\Z", re.ASCII)
_SECONDS: Final = (86400, 3600, 60, 1)
_MAX_SECONDS: Final = 100 * 366 * 86400


def parse_duration(text: str) -> float:
    """Seconds in a D: ``90s 10m 2h 1d 1h30m``; a bare number is seconds. Raises `Invalid`."""
    if _BARE.match(text):
        seconds = float(text)
    elif match := _DURATION.match(text):
        counts = [int(part or 0) for part in match.groups()]
        seconds = float(sum(map(operator.mul, counts, _SECONDS)))
    else:
        raise Invalid(f'"{text}" is not a duration; write 90s, 10m, 2h, 1d or 1h30m')
    if seconds > _MAX_SECONDS:
        raise Invalid(f'"{text}" is longer than 100 years')
    return seconds


_MONEY: Final = re.compile(r"\$?(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})\Z", re.ASCII)
_COUNT: Final = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)([kM]?)\Z", re.ASCII)
_SCALE: Final = {"": 1, "k": 1_000, "M": 1_000_000}


def parse_money(text: str) -> float:
    """``2``, ``0.50``, ``$5``. Raises `Invalid`."""
    match = _MONEY.match(text)
    if match is None:
        raise Invalid(f'"{text}" is not an amount of money; write 2 or 0.50')
    return float(match[1])


def parse_count(text: str) -> int:
    """``50``, ``100k``, ``1.5M``; not ``1m``, which are minutes. Raises `Invalid`."""
    match = _COUNT.match(text)
    count = round(float(match[1]) * _SCALE[match[2]], 3) if match else 0.5
    if count != int(count):
        minutes = "; m is minutes" if text.endswith("m") else ""
        raise Invalid(f'"{text}" is not a number of them{minutes}; write 50, 100k or 2M')
    return int(count)
