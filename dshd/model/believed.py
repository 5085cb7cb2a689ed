"""What of a provider's usage can be believed. Sans-IO.

Budgets and the day's cost stand on what a provider counts, so that one that counts nonsense would stop all
work. A request can't have taken in more than the window holds and what was sent, and no answer is larger than
that; where the window is not known, than that of any model. What is more is not believed, and what we count
ourselves, which is about right, stands in its place:

| reported                      | instead                                   |
|-------------------------------|-------------------------------------------|
| ``input`` and ``cached``      | ``input``: of what was sent; not cached   |
| ``output`` with ``reasoning`` | ``output``: of what has come              |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

ANY_WINDOW: Final = 10_000_000  # tokens; no model's is larger


@attrs.frozen
class Bounds:
    """Of one request. ``window`` in tokens, None if not known; ``sent``: tokens of the request, about."""

    window: int | None = None
    sent: int = 0

    @property
    def most(self) -> int:
        return (self.window or ANY_WINDOW) + self.sent


def believed(usage: Mapping[str, int], bounds: Bounds, said: int) -> dict[str, int]:
    """Usage without what can't be. ``said``: tokens of the answer, about."""
    kept = dict(usage)
    if kept.get("input", 0) + kept.get("cached", 0) > bounds.most:
        kept.update(input=bounds.sent, cached=0)
    if max(kept.get("output", 0), kept.get("reasoning", 0)) > bounds.most:
        kept.update(output=said, reasoning=0)
    return {name: count for name, count in kept.items() if count <= bounds.most}
