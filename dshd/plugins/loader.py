"""From ``[plugins.NAME]`` tables to plugins, in the order of the config."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from dshd.errors import DshError, NotConfigured, one_line
from dshd.plugins import CHAINS, Plugin

GROUP = "dshd.plugins"
BUILT_IN = {
    "rate_limit": ("dshd.plugins.rate_limit", "RateLimit"),
    "content_filter": ("dshd.plugins.content_filter", "ContentFilter"),
}


Tables = Mapping[str, Mapping[str, Any]]


def load_plugins(tables: Tables, was: Tables | None = None, made: Sequence[Plugin] = ()) -> list[Plugin]:
    """Make each configured plugin. Raises `NotConfigured` for an unknown name or a config it refuses.

    ``was`` and ``made`` are the tables before and what came of them: a plugin whose table has not changed
    stays, with what it remembers.
    """
    old = {name: (table, plugin) for (name, table), plugin in zip((was or {}).items(), made, strict=True)}
    return [
        old[name][1] if name in old and old[name][0] == table else _make(name, table)
        for name, table in tables.items()
    ]


def _make(name: str, table: Mapping[str, Any]) -> Plugin:
    kind = _find(name)
    try:
        plugin: Plugin = kind(dict(table))
    except DshError:
        raise
    except Exception as error:
        raise NotConfigured(
            f"plugin {name} refused its settings: {one_line(error)} @ $.plugins.{name}"
        ) from error
    in_a_chain = any(callable(getattr(plugin, chain, None)) for chain in CHAINS)
    if not in_a_chain or not isinstance(getattr(plugin, "name", None), str):
        what = "it has no name, or no method of a chain"
        raise NotConfigured(f"{kind!r} is not a plugin: {what} @ $.plugins.{name}")
    return plugin


def _find(name: str) -> Callable[[dict[str, Any]], Plugin]:
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name]
        found: Callable[[dict[str, Any]], Plugin] = getattr(import_module(module), attribute)
        return found
    return _installed(name)


def _installed(name: str) -> Callable[[dict[str, Any]], Plugin]:
    from importlib.metadata import entry_points  # 20 ms, and most configs need none

    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        near = difflib.get_close_matches(name, [*points, *BUILT_IN], 1, 0.5)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise NotConfigured(
            f"no plugin is named {name}{guess} @ $.plugins.{name}", hint="dshctl config check"
        )
    try:
        found: Callable[[dict[str, Any]], Plugin] = points[name].load()
    except Exception as error:
        raise NotConfigured(f"plugin {name} can't be loaded: {one_line(error)} @ $.plugins.{name}") from error
    return found
