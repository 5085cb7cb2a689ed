"""The files that come with the programs (pages, completions, units, schemas): where they are, and where a
user's own programs look for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

Json = dict[str, Any]
TOP: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE: Final = os.path.join("man", "man1", "dshctl.1")


def data_home(environ: Mapping[str, str]) -> str:
    """``~/.local/share``."""
    said = environ.get("XDG_DATA_HOME", "")
    return said if os.path.isabs(said) else os.path.join(environ.get("HOME") or "/", ".local", "share")


def checks(environ: Mapping[str, str]) -> Iterator[Json]:
    """Whether ``man dshctl`` finds its page."""
    link = os.path.join(data_home(environ), PAGE)
    if os.path.lexists(link) and not os.path.exists(link):
        yield _check("warn", "their links lead nowhere any more")
    elif os.path.exists(link) or any(os.path.exists(os.path.join(p, PAGE)) for p in _system()):
        yield _check("ok", "manual pages are where man looks")
    else:
        yield _check("warn", "manual pages are not where man looks")


def _system() -> Iterator[str]:
    """Where man looks by itself, beside a program's directory on PATH."""
    yield from ("/usr/share", "/usr/local/share", "/usr/local")
    if sys.prefix == sys.base_prefix:
        yield os.path.join(sys.prefix, "share")


def _check(level: str, what: str) -> Json:
    fix = "dshctl setup" if level != "ok" else None
    return {"type": "check", "check": "pages", "level": level, "what": what, "fix": fix}
