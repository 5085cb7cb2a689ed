"""Numbers of things, in words. Light: both programs say them."""

from __future__ import annotations


def count(number: int, thing: str, plural: str = "") -> str:
    """``1 message``, ``3 messages``; with both given also what the things do: ``1 waits``, ``3 wait``."""
    return f"{number} {thing}" if number == 1 else f"{number} {plural or thing + 's'}"
