"""Budgets: the table of them, amounts as they are typed, and the words for both.

A budget is a limit on what is spent: by one turn, by a session, or on one day by all sessions. What
counts to which is the daemon's to decide (`dshd.session.deciding.budget`); this module says which there are.

| budget         | counts                                                        | unit     | ``--add`` |
|----------------|---------------------------------------------------------------|----------|-----------|
| turn_steps     | steps                                                         | steps    | steps     |
| turn_time      | time of work; waiting for a provider or a person is none      | seconds  | time      |
| turn_tokens    | what the provider reports: input, cached, output              | tokens   | tokens    |
| turn_cost      | that, at the route's price at the time                        | money    | cost      |
| turn_errors    | tool results in a row that are errors                         | errors   | errors    |
| session_cost   | the cost of all the session's turns                           | money    | cost      |
| day_cost       | the cost of all sessions on one day, from midnight, local time | money    | cost      |

A *stop* is what the log, a parking and a result say of a budget that was reached: ``{what, limit, spent,
currency}``, in the budget's unit.

Light on purpose: dshctl imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor, log10
from typing import Any, Final, NamedTuple

from dshd.errors import Invalid
from dshd.wire import parse_count, parse_duration, parse_money

Json = dict[str, Any]


class Budget(NamedTuple):
    """``of``: turn, session or day; ``setting``: what a session calls its own limit, if it may have one."""

    name: str
    of: str
    kind: str
    setting: str | None


TABLE: Final = (
    Budget("turn_steps", "turn", "steps", "max_steps"),
    Budget("turn_time", "turn", "time", "max_time"),
    Budget("turn_tokens", "turn", "tokens", "max_tokens"),
    Budget("turn_cost", "turn", "cost", "max_cost"),
    Budget("turn_errors", "turn", "errors", "max_errors"),
    Budget("session_cost", "session", "cost", "session_cost"),
    Budget("day_cost", "day", "cost", None),
)
NAMED: Final = {budget.name: budget for budget in TABLE}
KINDS: Final = tuple(dict.fromkeys(budget.kind for budget in TABLE))


# --- amounts as typed ------------------------------------------------------------------------------

READERS: Final[Mapping[str, Callable[[str], float]]] = {
    "steps": parse_count, "time": parse_duration, "tokens": parse_count, "cost": parse_money,
    "errors": parse_count,
}  # fmt: skip


def added(text: str) -> tuple[str, float]:
    """``cost=2`` as a kind and an amount of more than 0. Raises `Invalid`."""
    kind, equals, amount = text.partition("=")
    if kind not in READERS or not equals:
        raise Invalid(f'"{text}" is not what can be added; write cost=2, steps=50, time=1h, tokens=100k '
                      "or errors=5")  # fmt: skip
    value = READERS[kind](amount)
    if value <= 0:
        raise Invalid(f"{kind}={amount} adds nothing")
    return kind, value


# --- words -----------------------------------------------------------------------------------------


def shown(kind: str, value: float, currency: str | None = None) -> str:
    """An amount: ``$5.00``, ``200 steps``, ``2 h``, ``100 k tokens``, ``10 errors``."""
    if kind == "cost":
        return price(value, currency)
    if kind == "time":
        return lasts(value)
    if kind == "tokens":
        return f"{thousands(value)} tokens"
    return f"{round(value)} {kind if round(value) != 1 else kind.removesuffix('s')}"


def price(value: float, currency: str | None) -> str:
    """``$5.00``; as many places as it needs to be more than nothing."""
    places = 2 if value == 0 or value >= 0.01 else min(9, 1 - floor(log10(value)))
    figure = f"{value:.{places}f}"
    return f"${figure}" if currency in (None, "USD") else f"{figure} {currency}"


def thousands(value: float) -> str:
    """``950``, ``41 k``, ``1.9 M``."""
    if value < 1000:
        return f"{int(value)}"
    return f"{round(value / 1000)} k" if value < 999_500 else f"{value / 1_000_000:.1f} M"


KI: Final = 8192  # windows that are multiples of it are counted in 1024s by who makes models


def window(tokens: float) -> str:
    """A model's window: ``64 k`` of 65,536, ``200 k`` of 200,000, ``1.0 M``."""
    return in_window(tokens, tokens)


def in_window(tokens: float, window: float) -> str:
    """So many tokens of a window, in the unit that it is counted in: ``41 k`` of 41,984 of 65,536."""
    if window % KI or window >= 999_500 or tokens < 1000:
        return thousands(tokens)
    return f"{round(tokens / 1024)} k"


def lasts(seconds: float) -> str:
    """``40 s``, ``10 min``, ``2 h``, ``1 h 30 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole if seconds == whole or whole > 9 else round(seconds, 1)} s"
    hours, minutes = divmod(round(whole / 60), 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min {whole % 60} s" if whole < 600 and whole % 60 else f"{max(1, whole // 60)} min"


def limit(stop: Mapping[str, Any]) -> str:
    """Which limit it was, in a list: ``turn cost $5.00``."""
    budget = NAMED.get(str(stop["what"]))
    if budget is None:
        return str(stop["what"]).replace("_", " ")
    said = shown(budget.kind, stop["limit"], stop.get("currency"))
    if budget.kind in ("cost", "time"):
        return f"{budget.of} {budget.kind} {said}"
    return f"{said} a {budget.of}" if budget.kind != "errors" else f"{said} in a row"


def rate(stop: Mapping[str, Any]) -> str:
    """The same in a sentence: ``$5.00 a turn``."""
    budget = NAMED.get(str(stop["what"]))
    if budget is None or budget.kind == "errors":
        return limit(stop)
    return f"{shown(budget.kind, stop['limit'], stop.get('currency'))} a {budget.of}"


def used(stop: Mapping[str, Any]) -> str:
    """``turn cost $5.02 of $5.00``: how far it got."""
    name, spent, most = _parts(stop)
    return f"{name} {spent} of {most}"


def fraction(stop: Mapping[str, Any]) -> str:
    """``turn cost $5.02/$5.00``: the same, in a list."""
    name, spent, most = _parts(stop)
    return f"{name} {spent}/{most}"


def _parts(stop: Mapping[str, Any]) -> tuple[str, str, str]:
    what = str(stop["what"])
    kind = NAMED[what].kind if what in NAMED else ""
    spent, most = (shown(kind, stop[name], stop.get("currency")) for name in ("spent", "limit"))
    if kind not in ("cost", "time"):
        spent, most = spent.rpartition(" ")[0], most.rpartition(" ")[0]
    return what.replace("_", " "), spent, most


# --- more ------------------------------------------------------------------------------------------


def enough(stop: Mapping[str, Any]) -> str:
    """What to add so that it goes on for a good while: ``cost=2`` to a limit of 5."""
    kind = NAMED[str(stop["what"])].kind
    over = max(0.0, stop["spent"] - stop["limit"])
    amount = _one_figure(stop["limit"] * 0.4, round)
    if amount <= over:
        amount = _one_figure(over * 1.01 + stop["limit"] * 0.4, ceil)
    return f"{kind}={_typed(kind, amount)}"


def _one_figure(amount: float, to_whole: Callable[[float], int]) -> float:
    if amount <= 0:
        return 0
    unit = 10.0 ** floor(log10(amount))
    return to_whole(amount / unit) * unit


def _typed(kind: str, amount: float) -> str:
    if kind == "cost":
        return f"{amount:.9f}".rstrip("0").rstrip(".")
    if kind == "time":
        return _typed_time(amount)
    whole = max(1, round(amount))
    for scale, letter in ((1_000_000, "M"), (1_000, "k")):
        if whole >= scale and whole % scale == 0 and kind == "tokens":
            return f"{whole // scale}{letter}"
    return str(whole)


def _typed_time(seconds: float) -> str:
    for scale, letter in ((3600, "h"), (60, "m")):
        if seconds >= scale:
            return f"{max(1, round(seconds / scale))}{letter}"
    return f"{max(1, round(seconds))}s"
