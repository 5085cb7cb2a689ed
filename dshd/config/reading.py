"""Texts into a `Config`, and errors that say where."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.config.checks import CHECKS
from dshd.config.places import find_line
from dshd.config.whole import APPENDED, SYSTEMS_OWN, Config
from dshd.errors import NotConfigured
from dshd.strict import Path, Wrong, dotted, structure


@attrs.frozen(slots=True)
class Source:
    """One file: its text, and the name that errors call it by."""

    name: str
    text: str


def parse(user: Source | None, system: Source | None = None) -> Config:
    """The config that these texts mean. Raises `NotConfigured`: ``config.toml:7: routes.x.y: what``."""
    tables = [(source, _toml(source)) for source in (system, user) if source is not None]
    for source, table in tables:  # each on its own first, so that errors name the right file
        _structured(source, table)
    if user is not None and SYSTEMS_OWN in tables[-1][1]:
        raise _located(user, Wrong((SYSTEMS_OWN,), "only the system's file may hold it"))
    merged: dict[str, Any] = {}
    for _source, table in tables:
        merged = _merge(merged, table)
    last = user or system or Source("config.toml", "")
    config = _structured(last, merged)
    try:
        _check_whole(config)
    except Wrong as wrong:
        raise _located(next((s for s, t in tables[::-1] if _holds(t, wrong.path)), last), wrong) from None
    return config


def _toml(source: Source) -> dict[str, Any]:
    try:
        table = tomllib.loads(_both_models(source.text))
    except (ValueError, RecursionError) as error:  # the latter two: a number, or brackets, without end
        what = _syntax_error(source, str(error))
        raise NotConfigured(what, hint="dshctl config check") from None
    model = table.get("model", {})
    if _ROUTE in table and isinstance(model, dict):
        table["model"] = {"default": table.pop(_ROUTE), **model}
    elif isinstance(model, str):
        table["model"] = {"default": model}
    elif not isinstance(model, dict):
        raise _located(source, Wrong(("model",), "expected the name of a route"))
    return table


# Where the default route is put while there is a table beside it. No key of ours has a blank in it.
_ROUTE: Final = "model route"
_TOP: Final = re.compile(r"^(?=[ \t]*\[)", re.MULTILINE)
_MODEL: Final = re.compile(r"^([ \t]*)(?:model|\"model\")([ \t]*=)", re.MULTILINE)
_TABLE: Final = re.compile(r"^[ \t]*\[[ \t]*model[ \t]*\]", re.MULTILINE)


def _both_models(text: str) -> str:
    """``model = "fast"`` at the top and a table ``[model]`` are two things to people, and no TOML: there the
    first is called otherwise. Lines keep their places."""
    top = _TOP.split(text, maxsplit=1)[0]
    if not _TABLE.search(text) or not _MODEL.search(top):
        return text
    return _MODEL.sub(rf'\1"{_ROUTE}"\2', top, count=1) + text[len(top) :]


def _syntax_error(source: Source, text: str) -> str:
    what, _, place = text.partition(" (at ")
    line = place.partition("line ")[2].partition(",")[0]
    if place.startswith("end of document"):
        line = str(source.text.rstrip().count("\n") + 1)
    if what == "Cannot overwrite a value":
        what = "a name is a value or a table, not both"
    return f"{source.name}:{line}: {what}" if line.isdigit() else f"{source.name}: {text}"


def _structured(source: Source, table: dict[str, Any]) -> Config:
    try:
        return structure(table, Config)
    except Wrong as wrong:
        raise _located(source, wrong) from None


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _merge(below, value)
        elif key in APPENDED and isinstance(below, list):
            merged[key] = [*below, *value]
        else:
            merged[key] = value
    return merged


def _check_whole(config: Config) -> None:
    for check in CHECKS:
        check(config)


def _located(source: Source, wrong: Wrong) -> NotConfigured:
    line = find_line(source.text, wrong.path)
    where = f"{source.name}:{line}" if line else source.name
    at = f"{dotted(wrong.path)}: " if wrong.path else ""
    return NotConfigured(f"{where}: {at}{wrong.what}", hint="dshctl config check")


def _holds(table: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(table, dict) or part not in table:
            return isinstance(table, list)
        table = table[part]
    return True
