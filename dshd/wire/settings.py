"""The settings of a session: their names, and how their values are typed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from dshd.errors import Invalid
from dshd.wire.params import check_variables
from dshd.wire.quantities import parse_count, parse_duration, parse_money
from dshd.wire.spelling import did_you_mean
from dshd.wire.terms import MODES

# What `set` and the session options know: {name: how its value is read}. `env.NAME` is text too.
SETTINGS: Final[dict[str, str]] = {
    "dir": "directory",
    "model": "text",
    "mode": "mode",
    "net": "bool",
    "ask": "ask",
    "patience": "duration",
    "max_cost": "money",
    "max_steps": "count",
    "max_time": "duration",
    "max_tokens": "count",
    "max_errors": "count",
    "session_cost": "money",
}
# What else they may be called: as the options are, and as the budgets that they set.
_CALLED: Final = {f"turn_{kind}": f"max_{kind}" for kind in ("cost", "steps", "time", "tokens", "errors")}
# Settings that always have a value, and what may be one: they can't be unset.
NEEDED: Final[dict[str, str]] = {
    "dir": "a directory",
    "model": "a route: dshctl models",
    "mode": ", ".join(MODES),
    "net": "on, off",
    "ask": "wait, deny",
}


def setting_name(name: str) -> str:
    """A setting's own name: ``max-cost`` and ``turn_cost`` are ``max_cost``."""
    if name.startswith("env."):
        return name
    name = name.replace("-", "_")
    return _CALLED.get(name, name)


_BOOLS: Final = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


def setting(name: str, text: str) -> Any:
    """The value of ``NAME=TEXT`` for `SetParams.values`. Raises `Invalid`."""
    if name.startswith("env.") and len(name) > len("env."):
        check_variables({name[4:]: text})
        return text
    name = setting_name(name)
    if name not in SETTINGS:
        raise no_setting(name)
    return _SETTING_READERS[SETTINGS[name]](name, text)


def no_setting(name: str) -> Invalid:
    if name == "day_cost":
        return Invalid("day_cost is of all sessions together: [budget] day_cost in the config",
                       hint="man dshd-config")  # fmt: skip
    return Invalid(f'no setting "{name}"{did_you_mean(name, SETTINGS)}')


def check_unset(name: str) -> None:
    """Whether ``NAME=`` means something. Raises `Invalid`, naming the choices, for what has no "none"."""
    if name in NEEDED:
        raise Invalid(f"{name} can't be empty: {NEEDED[name]}")
    setting(name, "") if name not in SETTINGS else None


def _one_of(*words: str) -> Any:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise Invalid(f"{name} is one of {', '.join(words)}, not {text!r}")
        return text

    return read


def _bool(name: str, text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise Invalid(f"{name} is on or off, not {text!r}")
    return _BOOLS[text.lower()]


_SETTING_READERS: Final[Mapping[str, Any]] = {
    "text": lambda name, text: text,
    "directory": lambda name, text: os.path.abspath(text),
    "mode": _one_of(*MODES),
    "ask": _one_of("wait", "deny"),
    "bool": _bool,
    "duration": lambda name, text: parse_duration(text),
    "money": lambda name, text: parse_money(text),
    "count": lambda name, text: parse_count(text),
}
