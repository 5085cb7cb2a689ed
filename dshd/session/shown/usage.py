"""What was spent, summed up by session, by day or by model. Pure.

A row is ``{type: "usage", by, what, session, calls, input, cached, output, reasoning, tokens, cost, currency,
earlier}``: tokens as the provider counted them; ``cost`` None where no price was known; ``earlier`` what was
spent in other currencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from dshd.session.fold import spending
from dshd.session.fold.spending import Usage

Json = dict[str, Any]
By = Literal["session", "day", "model"]
KINDS: Final = ("input", "cached", "output", "reasoning")


class Spent(NamedTuple):
    """One call, or the attempts of one that gave nothing. ``time``: Unix ms; ``route``: the reference to the
    model that was asked."""

    time: int
    route: str
    usage: dict[str, Any]


class Sums:
    """Add what sessions spent, then ask for `rows`. ``day`` gives the local day of a moment in Unix ms."""

    def __init__(self, by: By, day: Callable[[int], str]) -> None:
        self._by: By = by
        self._day = day
        self._sums: dict[str, tuple[int, Usage]] = {}
        self._names: dict[str, str] = {}
        self._all: tuple[int, Usage] = (0, {})

    def add(self, session: Json, spent: Iterable[Spent]) -> None:
        """``session``: its view."""
        self._names[session["id"]] = session.get("name") or session["id"]
        for one in spent:
            key = {"session": session["id"], "day": self._day(one.time), "model": one.route}[self._by]
            self._sums[key] = _more(self._sums.get(key, (0, {})), one.usage)
            self._all = _more(self._all, one.usage)

    def rows(self) -> list[Json]:
        """Days in their order, else what spent most first."""
        keys = sorted(self._sums) if self._by == "day" else sorted(self._sums, key=self._weight)
        return [self._row(key) for key in keys]

    def total(self) -> Json:
        return row("total", "total", None, *self._all)

    def _weight(self, key: str) -> tuple[float, int, str]:
        _, usage = self._sums[key]
        return -float(usage.get("cost") or 0), -spending.tokens(usage), key

    def _row(self, key: str) -> Json:
        session = key if self._by == "session" else None
        return row(self._by, self._names.get(key, key) if session else key, session, *self._sums[key])


def _more(sum: tuple[int, Usage], usage: Usage) -> tuple[int, Usage]:
    return sum[0] + 1, spending.add(sum[1], usage)


def row(by: str, what: str, session: str | None, calls: int, usage: Usage) -> Json:
    return {
        "type": "usage",
        "by": by,
        "what": what,
        "session": session,
        "calls": calls,
        **{kind: int(usage.get(kind, 0)) for kind in KINDS},
        "tokens": spending.tokens(usage),
        "cost": usage.get("cost"),
        "currency": usage.get("currency"),
        "earlier": dict(usage.get("earlier") or {}),
    }


def local_day(at: int) -> str:
    """``2026-11-30``, in this process's zone."""
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d")


def active(sessions: Iterable[Json], since: int) -> Iterator[Json]:
    """Those that may have spent anything since then."""
    return (view for view in sessions if (view.get("active_at") or since) >= since)
