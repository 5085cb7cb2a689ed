"""The kinds of values that sections are made of."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from dshd.errors import Invalid
from dshd.strict import Path, Wrong
from dshd.wire import parse_duration


def _duration(value: Any, path: Path) -> float:
    if type(value) in (int, float) and 0 <= value <= sys.float_info.max:
        return float(value)
    if not isinstance(value, str):
        raise Wrong(path, "expected a duration, like 90s or 1h30m")
    try:
        return parse_duration(value)
    except Invalid as error:
        raise Wrong(path, error.message) from None


def _not_negative(value: Any, path: Path) -> Any:
    if value < 0:
        raise Wrong(path, "must not be negative")
    return value


def _positive(value: Any, path: Path) -> Any:
    if value <= 0:
        raise Wrong(path, "must be more than 0")
    return value


def _not_empty(value: Any, path: Path) -> Any:
    if not value:
        raise Wrong(path, "must not be empty")
    return value


Duration = Annotated[Any, _duration]
TimeLimit = Annotated[Any, _duration, _positive]
Count = Annotated[int, _positive]
Limit = Annotated[int, _not_negative]
Money = Annotated[float, _not_negative]
Text = Annotated[str, _not_empty]
Command = Annotated[str | list[str], _not_empty]
