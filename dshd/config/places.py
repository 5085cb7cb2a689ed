"""Where in a text a table or a key stands."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from dshd.strict import Path


def find_line(text: str, path: Path) -> int | None:
    """The line (from 1) on which the longest known beginning of ``path`` stands; None for none of it.

    tomllib keeps no positions. Headers and the left sides of ``=`` are read here, with tomllib itself for
    the keys, so that quoted and dotted ones come out right. Lines inside multi-line values may look like
    keys; they count only if they spell the very path.
    """
    best, found = 0, None
    for number, place in _places(text):
        shared = len(place) if path[: len(place)] == place else 0
        if shared > best:
            best, found = shared, number
    return found


def _places(text: str) -> Iterator[tuple[int, Path]]:
    """``(line number, path)`` of each header and key, in order; elements of ``[[x]]`` are counted."""
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("[["):
            name = _key_path(line[2:].partition("]]")[0])
            table = (*name, counts.get(name, 0))
            counts[name] = counts.get(name, 0) + 1
            yield number, table
        elif line.startswith("["):
            table = _key_path(line[1:].partition("]")[0])
            yield number, table
        elif "=" in line and (key := _key_path(line.partition("=")[0])):
            yield number, (*table, *key)


def _key_path(key: str) -> Path:
    try:
        table: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(table, dict) and table:
        name = next(iter(table))
        path.append(name)
        table = table[name]
    return tuple(path)
