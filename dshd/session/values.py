"""Changing values that can't change: `evolve`, as `attrs.evolve`, for the fold's many thousands a second.

attrs looks its fields up by name at each call and goes through ``__init__``. Here a function is made once
per class that copies slot by slot. Measured on an open turn (20 fields): 2.2 µs against 7.0. Only for
classes with slots, without validators and converters, as all of the fold's are.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def evolve(value: T, **changes: Any) -> T:
    """A copy of an attrs object with these fields changed."""
    kind: Any = type(value)
    return _evolver(kind)(value, changes)  # type: ignore[no-any-return]


@cache
def _evolver(kind: type) -> Any:
    names = [field.name for field in attrs.fields(kind)]
    scope: dict[str, Any] = {"new": object.__new__, "kind": kind}
    scope |= {f"set_{name}": getattr(kind, name).__set__ for name in names}
    lines = [
        "def evolver(old, changes):",
        "    fresh = new(kind)",
        *(f"    set_{name}(fresh, old.{name})" for name in names),
        "    for name, value in changes.items():",
        "        setters[name](fresh, value)",
        "    return fresh",
    ]
    scope["setters"] = {name: scope[f"set_{name}"] for name in names}
    exec("\n".join(lines), scope)  # noqa: S102 - the names are our own
    return scope["evolver"]
