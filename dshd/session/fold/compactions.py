"""The fold's part of compaction: the one that is open, what it cost, and how large the conversation is.

A compaction is open from its `compaction/start` to its `compaction/end`. What it changes of the surface is
done by the events that replace a range there (a `user/message` with a summary, a `tool/result` that was cut
short); such an event changes nothing else of the state but what is remembered of the hidden ones. So at every
instant the surface is as it was before, or as it is after, and what a crash leaves open needs no repair but
its end.

How large a request really was is learned from what providers report: a `Correction` for each model, kept as
long as the session is. What events do to all this is in `applied.compactions`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

LEAST: Final = 1_000  # tokens: what a small request is reported as says more of what the wire adds
BELIEVED: Final = (0.25, 4.0)  # of the estimate; a report beyond that is a server's that doesn't count


@attrs.frozen(slots=True)
class Correction:
    """What estimates are multiplied with, learned from reported usage; kept between a half and double."""

    factor: float = 1.0

    def learn(self, estimated: int, reported: int) -> Correction:
        """The correction after a request of ``estimated`` tokens was reported as ``reported``."""
        if estimated < LEAST or not BELIEVED[0] <= reported / estimated <= BELIEVED[1]:
            return self
        return Correction(min(2.0, max(0.5, reported / estimated)))

    def apply(self, tokens: int) -> int:
        return round(tokens * self.factor)


@attrs.frozen(slots=True)
class Compaction:
    """One that is open. ``turn``: the turn that it is part of, None in maintenance; ``cause``: threshold,
    overflow or asked; ``at``: Unix ms."""

    number: int
    turn: int | None
    cause: str
    at: int


def model_of(context: Mapping[str, Any] | None) -> str:
    """What a correction is kept for: the route and model of a `request/context`."""
    return f"{(context or {}).get('route')} {(context or {}).get('model')}"


def correction(factors: Mapping[str, float], context: Mapping[str, Any] | None) -> Correction:
    """The correction of estimates for the model of that context. ``factors``: of the state."""
    return Correction(factors.get(model_of(context), 1.0))
