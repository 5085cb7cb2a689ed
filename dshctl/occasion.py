"""WHEN, as it is typed: a line of cron, ``every D``, ``at TIME``; and where the text behind it begins.

Quoted, it is one word. Unquoted, ``every`` and ``at`` take what can only be theirs; a line of cron has
asterisks, of which a shell makes file names, and must be quoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from dshd import wire
from dshd.errors import Invalid

HINT = "dshctl schedule add '30 2 * * 1-5' 'TEXT'     or: every 2h, at 18:00"
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?([+-]\d{2}:?\d{2}|Z)?\Z", re.ASCII)
_DAY = re.compile(r"(today|tomorrow|yesterday|\d{4}-\d{2}-\d{2})\Z", re.ASCII)
_FIELD = re.compile(r"[\d*,/LW#-]+\Z|[\d*a-zA-Z,/#-]*\b(?:MON|TUE|WED|THU|FRI|SAT|SUN|JAN|DEC)", re.I)


class Occasion(NamedTuple):
    """``fields`` of `wire.ScheduleAddParams`; ``rest``: the words of the text."""

    typed: str
    fields: dict[str, Any]
    rest: tuple[str, ...]


def read(words: Sequence[str], now_ms: int, zone: tzinfo | None = None) -> Occasion:
    """Raises `Invalid`."""
    if not words:
        raise Invalid("schedule add needs WHEN and TEXT", hint=HINT)
    typed, rest = _parted(tuple(words))
    return Occasion(typed, _fields(typed, now_ms, zone), rest)


def _parted(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    first = words[0].strip()
    if first in ("every", "at") and len(words) > 1:
        long = first == "at" and len(words) > 2 and _DAY.match(words[1]) and _CLOCK.match(words[2])
        end = 3 if long else 2
        return " ".join(words[:end]), words[end:]
    if len(words) > 5 and all(_FIELD.match(word) for word in words[:5]):
        return " ".join(words[:5]), words[5:]
    return first, words[1:]


def _fields(typed: str, now_ms: int, zone: tzinfo | None) -> dict[str, Any]:
    kind, _, what = typed.partition(" ")
    if kind == "every":
        return {"every": wire.parse_duration(what.strip())}
    if kind == "at":
        return {"at": wire.parse_time(what, now_ms, zone)}
    if typed.startswith("@") and not typed[1:2].isdigit():
        return {"cron": typed}
    if len(typed.split()) > 1:
        return {"cron": typed}
    raise Invalid(f'"{typed}" is no WHEN: a line of cron in quotes, every D, or at TIME', hint=HINT)
