"""What can be undone: what took messages out of the inbox, each removal as a whole. Sans-IO.

| what                        | is one removal                                            |
|-----------------------------|-----------------------------------------------------------|
| `queue rm`, `clear`, expiry | the event                                                 |
| a supersession              | the event; what replaced the old ones stays               |
| a reject                    | the event, with all the messages that it names            |
| an abort                    | what ended before it entered; with ``--clear``, what was  |
|                             | cleared at once and at the turn's end together            |

The state keeps the newest `MOST`; how one is taken back is in `undoing`.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

MOST: Final = 1000
CAUSES: Final = ("remove", "clear", "expire", "supersede")  # of `inbox/spliced`; also reject and abort


@attrs.frozen(slots=True)
class Removal:
    """Messages that left together. ``at`` is Unix ms; ``turn``: the one whose abort asked for it."""

    seq: int
    cause: str
    at: int
    by: Any
    ids: tuple[str, ...]
    turn: int | None = None


Removals = tuple[Removal, ...]


def noted(removals: Removals, new: Removal) -> Removals:
    """With one more; what an abort clears at its turn's end joins what it cleared at once."""
    if not new.ids:
        return removals
    newest = removals[-1] if removals else None
    if new.turn is not None and newest is not None and newest.turn == new.turn:
        return (*removals[:-1], attrs.evolve(newest, ids=new.ids + newest.ids))
    return (*removals[-MOST + 1 :], new)


def undone(removals: Removals, seq: int) -> Removals:
    return tuple(removal for removal in removals if removal.seq != seq)
