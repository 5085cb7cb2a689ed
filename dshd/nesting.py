"""JSON of others, and how deep it may be nested. Light: both programs read what a model wrote.

Whoever walks a value calls itself for each level, here and in every library: text that a model, a server or a
hook wrote is refused where it is read, before it trips up who reads on. No log holds a deeper value.
"""

from __future__ import annotations

import json
from typing import Any, Final

MAX_DEPTH: Final = 100


class TooDeep(ValueError):
    """``str()`` says so."""

    def __init__(self) -> None:
        super().__init__("it is nested too deeply")


def loads(text: str | bytes, **how: Any) -> Any:
    """As `json.loads`, with its arguments. Raises ValueError, `TooDeep` among them."""
    try:
        value = json.loads(text, **how)
    except RecursionError:
        raise TooDeep from None
    return shallow(value)


def shallow(value: Any) -> Any:
    """The value. Raises `TooDeep` if it has more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return value
        level = below
    raise TooDeep
