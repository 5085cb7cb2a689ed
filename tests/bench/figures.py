"""Figures: a measured value, the floor measured in the same run, and the limit its ratio must keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """``ratio`` is value to floor (or floor to value where more is better); ``limit`` is the most it may be.

    Where there is no floor the value itself is held against the limit.
    """

    name: str
    value: float
    unit: str
    floor: float | None = None
    limit: float | None = None
    at_least: bool = False  # more is better: the limit is the least

    @property
    def ratio(self) -> float | None:
        return None if not self.floor else self.value / self.floor

    @property
    def met(self) -> bool | None:
        if self.limit is None:
            return None
        held = self.value if self.ratio is None else self.ratio
        return held >= self.limit if self.at_least else held <= self.limit

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}

    def __str__(self) -> str:
        verdict = {True: "ok", False: "MISSED", None: ""}[self.met]
        against = "" if self.ratio is None else f"{self.ratio:8.2f} x {self.floor:.4g}"
        bound = "" if self.limit is None else f"{'>=' if self.at_least else '<='} {self.limit:g}"
        return f"{self.name:44} {self.value:10.4g} {self.unit:6} {against:20} {bound:10} {verdict}"


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def p50(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def timed(call: Callable[[], object], n: int) -> list[float]:
    """Seconds of each of ``n`` calls."""
    taken = []
    for _ in range(n):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return taken


def in_turn(calls: dict[str, Callable[[], object]], n: int) -> dict[str, float]:
    """The median of each, measured in turn, so that the machine's moods hit all alike."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(n):
        for name, call in calls.items():
            taken[name] += timed(call, 1)
    return {name: p50(values) for name, values in taken.items()}
