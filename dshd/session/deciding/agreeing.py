"""The settings that a send asks for, and the session it goes to: one that is there already has them, or it
is not sent.

Who writes ``followup --mode read-only`` means to have it done like that; a session that may do more, or asks
another model, is not what was meant. A session made for the send is made so. Asked in the step in which the
message is put in, for settings change and sessions are made at the same time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from dshd import paths
from dshd.errors import Conflict
from dshd.session.fold.state import State
from dshd.wire import MODES

Json = dict[str, Any]


class House(Protocol):
    """Who knows what settings come to here: the driver's `Services`."""

    @property
    def models(self) -> Any: ...

    @property
    def config(self) -> Callable[[], Any]: ...

    @property
    def environment(self) -> Callable[[State], Mapping[str, str]]: ...


def meant(wanted: Mapping[str, Any], state: State, house: House) -> Json:
    """``wanted`` as a session's log would have it: what the policy and the routes make of it at once, and
    without the secrets that the session has (they are beside its log, and never change)."""
    settings, kept = dict(wanted), house.environment(state)
    if settings.get("mode") in MODES:
        settings["mode"] = house.config().within_policy(settings["mode"])
    if isinstance(settings.get("model"), str):
        settings["model"] = house.models.meant(settings["model"], str(state.settings.get("model")))
    for name in [name for name in settings if _is_secret(name)]:
        if kept.get(name[4:]) == settings[name]:
            del settings[name]
    return settings


def check(wanted: Mapping[str, Any], state: State, refused: str = "not sent:", hint: str = "") -> None:
    """Raises `Conflict` that names what differs, and the command that changes it (else ``hint``)."""
    other = [name for name, value in wanted.items() if _has(state, name) != value]
    if other:
        what = ", ".join(_difference(state, name, wanted[name]) for name in other)
        raise Conflict(f"{refused} {state.name} has {what}.", hint=hint or _hint(state, wanted, other),
                       outcome="not-written", data={"differs": other})  # fmt: skip


def _has(state: State, name: str) -> Any:
    if name == "name":
        return state.name
    settings = state.settings
    if name.startswith("env.") and settings.get(name) is None:
        return (settings.get("env") or {}).get(name[4:])
    return settings.get(name)


def _is_secret(name: str) -> bool:
    return name.startswith("env.") and paths.looks_secret(name[4:])


def _difference(state: State, name: str, value: Any) -> str:
    """``mode workspace, not read-only``; the values of variables are nobody's business."""
    if name.startswith("env."):
        return f"another {name[4:]}"
    has = _has(state, name)
    return f"{_option(name)} {'unset' if has is None else _typed(name, has)}, not {_typed(name, value)}"


def _option(name: str) -> str:
    return name.replace("_", "-")


def _typed(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if name in ("patience", "max_time"):
        return f"{value:g}s"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _hint(state: State, wanted: Mapping[str, Any], other: list[str]) -> str:
    if "name" in other:
        return f"dshctl followup -s {shlex.quote(str(wanted['name']))} --create 'TEXT'"
    pairs = list(_pairs(wanted, other))
    return f"dshctl set {state.name} {' '.join(pairs)}" if pairs else f"dshctl show {state.name}"


def _pairs(wanted: Mapping[str, Any], other: list[str]) -> Iterator[str]:
    for name in other:
        if not name.startswith("env."):
            yield f"{_option(name)}={shlex.quote(_typed(name, wanted[name]))}"
        elif not _is_secret(name):
            yield f"{name}=VALUE"
