"""The surface: the ordered events that the model can see.

An event with ``surface: "append"`` goes to the end; one with ``{"replace": [first, last]}`` takes
the place of the inclusive range between those seqs. The history sent to the model is derived
from this (see `prompt`), never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dshd.session.fold.layer import Rows


@attrs.frozen(slots=True)
class Entry:
    seq: int
    type: str
    data: Mapping[str, Any]


class IllegalReplace(ValueError):
    """The range to replace isn't on the surface."""


def place(rows: Rows[Entry], entry: Entry, surface: Any, sources: Iterable[int] | None = None) -> None:
    """Put ``entry`` where its ``surface`` member says. ``sources``: behind a gap, where an end of the range
    may be lost, the seqs that it hides: it stands where the first of those stood that are there."""
    if surface == "append":
        rows.append(entry)
    elif surface is not None and sources is not None:
        rows.replace_all(_instead(rows, entry, frozenset(sources)))
    elif surface is not None:
        first, last = surface["replace"]
        rows.replace_all(replaced(rows, entry, first, last))


def _instead(rows: Iterable[Entry], entry: Entry, hidden: frozenset[int]) -> list[Entry]:
    items = list(rows)
    at = next((i for i, e in enumerate(items) if e.seq in hidden), 0)
    return [*items[:at], entry, *(e for e in items[at:] if e.seq not in hidden)]


def replaced(rows: Iterable[Entry], entry: Entry, first: int, last: int) -> list[Entry]:
    items = list(rows)
    at = [i for i, e in enumerate(items) if e.seq in (first, last)]
    if not at or items[at[0]].seq != first or items[at[-1]].seq != last:
        raise IllegalReplace(f"{first}-{last} is not on the surface")
    return [*items[: at[0]], entry, *items[at[-1] + 1 :]]
