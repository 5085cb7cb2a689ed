"""Reading a plugin's own table, with errors that know their path."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from dshd.errors import NotConfigured


def wrong(plugin: str, key: str, expected: str) -> NotConfigured:
    """The error for one key of ``[plugins.NAME]``."""
    return NotConfigured(f"expected {expected} @ $.plugins.{plugin}.{key}", hint="dshctl config check")


def only(plugin: str, config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse keys that the plugin doesn't know, naming the nearest that it does."""
    names = list(known)
    for key in config:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1, 0.5)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise NotConfigured(f"unknown key{guess} @ $.plugins.{plugin}.{key}", hint="dshctl config check")
