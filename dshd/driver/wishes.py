"""That somebody wants the conversation compacted: asked for at any time, done when there is a place for it.

One wish at a time is open; who asks while it is shares it and what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

Json = dict[str, Any]


@attrs.frozen(slots=True, kw_only=True)
class Outcome:
    """What became of a compaction. ``reason``: done, nothing (there was nothing to compact), failed or
    aborted; ``number``: its own, None if none was begun. ``before`` and ``after``: tokens of the whole
    request; ``hidden``: events that the summary stands for; ``pruned``: results that were cut short."""

    reason: str
    number: int | None = None
    turn: int | None = None
    before: int | None = None
    after: int | None = None
    window: int | None = None
    hidden: int = 0
    pruned: int = 0
    error: Mapping[str, Any] | None = None

    @property
    def changed(self) -> bool:
        """Whether what is sent is another thing now."""
        return self.reason == "done" or self.pruned > 0


@attrs.define(eq=False)
class Wish:
    """``by``: the source of who asked; ``outcome`` once it is over."""

    by: Mapping[str, Any]
    outcome: Outcome | None = None


class Wishes:
    """A driver's: the wish that waits, and the one that is being done."""

    def __init__(self) -> None:
        self.waiting: Wish | None = None
        self._doing: Wish | None = None

    def ask(self, by: Mapping[str, Any]) -> Wish:
        wish = self.waiting or self._doing
        if wish is None:
            wish = self.waiting = Wish(by)
        return wish

    def take(self) -> Wish | None:
        self._doing, self.waiting = self.waiting, None
        return self._doing

    def settle(self, wish: Wish, outcome: Outcome) -> None:
        wish.outcome, self._doing = outcome, None

    def drop(self) -> None:
        """Nobody waits for it any more, or nothing can be done."""
        self.waiting = None
