"""The time zone that a person here means: its name, for a daemon that may live in another."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dshd.errors import Invalid

LOCALTIME = "/etc/localtime"
TIMEZONE = "/etc/timezone"
_ROOTS = ("/zoneinfo/", "/zoneinfo.default/")


def name(environ: Mapping[str, str], localtime: str = LOCALTIME, timezone: str = TIMEZONE) -> str:
    """``Europe/Berlin``. Raises `Invalid` where there is only a rule without a name."""
    given = environ.get("TZ")
    if given is not None:
        return _of_variable(given)
    return _of_path(os.path.realpath(localtime)) or _of_file(timezone) or _none(localtime)


def _of_variable(text: str) -> str:
    text = text.removeprefix(":")
    if not text:
        return "UTC"
    if text.startswith("/"):
        return _of_path(os.path.realpath(text)) or _none(f"TZ={text}")
    return text


def _of_path(path: str) -> str | None:
    for root in _ROOTS:
        if root in path:
            found = path.rpartition(root)[2]
            return found.removeprefix("posix/").removeprefix("right/")
    return None


def _of_file(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip() or None
    except OSError:
        return None if os.path.exists(LOCALTIME) else "UTC"


def _none(where: str) -> str:
    raise Invalid(f"{where} says no time zone's name", hint="dshctl schedule add --zone Europe/Berlin ...")
