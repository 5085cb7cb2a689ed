"""What was spent, as the fold keeps it: of a turn, of a session, of the last day. Pure.

*Usage* is a mapping of numbers: tokens as the provider reports them (``input``, ``cached``, ``output``,
``reasoning``), and, where the route had a price, ``cost`` with its ``currency``. The cost is reckoned once,
when it was spent, and stands in the event: a price that changes later changes no past. Sums of different
currencies are kept apart: ``cost`` is in the newest one, what was spent in others is in ``earlier``.

Of the last day the fold keeps *quarters*: usage by quarters of an hour since 1970. All zones are whole
quarters away from each other, so that whoever knows the zone can say what was spent on a local day, and the
fold needs none. A day's limit that was raised is in there too (``raised``), because that holds for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

Usage = Mapping[str, Any]
Quarters = Mapping[int, Usage]

QUARTER_MS: Final = 15 * 60 * 1000
KEPT: Final = 104  # quarters: 26 hours, for the longest day has 25
_MOST: Final = 2**53 - 1  # what JSON keeps exact; no server that counts so far is to keep a turn from ending
_PLACES: Final = 9  # of money: sums of floats stay what a person would write


def add(total: Usage, more: Usage | None) -> Usage:
    """The sum; what a provider doesn't report is not invented."""
    if not more:
        return total
    numbers = {k: v for k, v in more.items() if type(v) in (int, float) and k != "cost"}
    sums: Usage = {**total, **{k: min(total.get(k, 0) + v, _MOST) for k, v in numbers.items()}}
    for currency, cost in costs(more).items():
        sums = _add_cost(sums, currency, cost)
    return sums


def _add_cost(total: Usage, currency: str, cost: float) -> Usage:
    known = costs(total)
    mine = min(round(known.pop(currency, 0.0) + cost, _PLACES), _MOST)
    rest = {"earlier": known} if known else {}
    return {**{k: v for k, v in total.items() if k != "earlier"}, "cost": mine, "currency": currency, **rest}


def costs(usage: Usage) -> dict[str, float]:
    """``{currency: cost}``, the newest currency last."""
    if usage.get("cost") is None:
        return {}
    return {**usage.get("earlier", {}), str(usage.get("currency")): usage["cost"]}


def tokens(usage: Usage) -> int:
    """All that the provider counted."""
    return int(usage.get("input", 0) + usage.get("cached", 0) + usage.get("output", 0))


def priced(usage: Usage | None, price: Mapping[str, Any] | None) -> Usage | None:
    """Usage with what it cost at ``price`` (per million tokens), if there is one."""
    if not usage or not price:
        return usage
    cached = price.get("cached")
    parts = ("input", price["input"]), ("cached", price["input"] if cached is None else cached)
    counted = (*parts, ("output", price["output"]))
    cost = sum(usage.get(name, 0) * each for name, each in counted) / 1_000_000
    return {
        **usage,
        "cost": round(min(cost, _MOST), _PLACES),
        "currency": str(price.get("currency") or "USD"),
    }


# --- a turn ----------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Spending:
    """What a turn has used, with the attempts before it that it goes on from: steps, ms of work, tool
    errors in a row, usage."""

    steps: int = 0
    worked: int = 0
    errors: int = 0
    usage: Usage = attrs.field(factory=dict)


NOTHING: Final = Spending()


# --- the last day ----------------------------------------------------------------------------------


def noted(quarters: Quarters, at: int, usage: Usage) -> Quarters:
    """With ``usage`` spent at ``at`` (Unix ms); what is too old to be of any day's is let go of."""
    now = at // QUARTER_MS
    kept = {q: u for q, u in quarters.items() if q > now - KEPT}
    return {**kept, now: add(kept.get(now, {}), of_day(usage))}


def of_day(usage: Usage) -> Usage:
    """What counts of it to a day."""
    money = {k: usage[k] for k in ("cost", "currency", "earlier", "raised") if k in usage}
    return {"tokens": tokens(usage), **money}


def total(quarters: Quarters, begin: int, end: int) -> Usage:
    """The sum of those that begin within ``[begin, end)``, Unix ms."""
    found: Usage = {}
    for quarter, usage in quarters.items():
        if begin <= quarter * QUARTER_MS < end:
            found = add(found, usage)
    return found


def to_json(lately: Quarters) -> list[Any]:
    return [[quarter, usage] for quarter, usage in lately.items()]


def from_json(data: Any) -> Quarters:
    """Raises ``TypeError``, ``ValueError`` for what `to_json` didn't make."""
    return {int(quarter): dict(usage) for quarter, usage in data or ()}
