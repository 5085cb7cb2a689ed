"""`--key` and its placeholders.

A cron line that fires twice in one period must make the same key twice: ``{date}`` is the local
day, ``{hour}`` the day and hour, ``{minute}`` the day, hour and minute, ``{boot}`` this boot of
the machine. Everything else in braces is a mistake, so that a typing error never becomes a key.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dshd.errors import Invalid
from dshd.wire import MAX_LABEL

_PLACE = re.compile(r"\{([^{}]*)\}")
_FORMATS: Final = {"date": "%Y-%m-%d", "hour": "%Y-%m-%dT%H", "minute": "%Y-%m-%dT%H:%M"}


def boot_id() -> str:
    """What tells this boot from the last; Linux keeps it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def expand(key: str, now: float | None = None, boot: Callable[[], str] = boot_id) -> str:
    """The key with its placeholders filled in, in local time. Raises Invalid for unknown ones."""
    local = time.localtime(now)

    def fill(match: re.Match[str]) -> str:
        word = match[1]
        if word == "boot":
            return boot()
        if word not in _FORMATS:
            raise Invalid(f"--key: {{{word}}} is none of {{date}}, {{hour}}, {{minute}}, {{boot}}")
        return time.strftime(_FORMATS[word], local)

    expanded = _PLACE.sub(fill, key)
    if not expanded.strip():
        raise Invalid("--key: the key is empty")
    if len(expanded) > MAX_LABEL:
        raise Invalid(f"--key: a key has 1 to {MAX_LABEL} characters, not {len(expanded)}")
    return expanded
