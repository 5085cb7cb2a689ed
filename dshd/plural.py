"""Numbers of things, and durations, in words. Light: both programs say them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(number: int, thing: str, plural: str = "") -> str:
    """``1 message``, ``3 messages``; with both given also what the things do: ``1 waits``, ``3 wait``."""
    return f"{number} {thing}" if number == 1 else f"{number} {plural or thing + 's'}"


def age(ms: float) -> str:
    """A duration, at most two units: ``0 s``, ``38 s``, ``41 min``, ``5 h 48 min``, ``3 d 4 h``.

    Minutes are never shown with seconds: nobody acts on them.
    """
    seconds = max(0, int(ms // 1000))
    for at, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            return f"{seconds // size} {unit}{_rest(seconds % size, at)}"
    return "0 s"


def _rest(seconds: int, at: int) -> str:
    if at >= 2:
        return ""
    size, unit = _UNITS[at + 1]
    return f" {seconds // size} {unit}" if seconds >= size else ""
