"""A session's settings, checked as `wire.setting` would have read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import trio

from dshd import wire
from dshd.control.calls import Call, Json
from dshd.errors import Denied, Invalid, NotFound


async def change(call: Call) -> Json:
    values = await _checked(call)
    async with call.link.in_order:
        session = await call.session()
    return await session.change(values, call.peer)


async def _checked(call: Call) -> Json:
    """The values, checked as `wire.setting` would have read them."""
    values = call.params.values
    if not values:
        raise Invalid("nothing to set", hint="dshctl set mode=workspace")
    for name, value in values.items():
        if value is None:
            wire.check_unset(name)
        else:
            _check(call, name, value)
    if values.get("dir") is not None:
        await _check_directory(values["dir"])
    if values.get("model") is not None:
        values = {**values, **await _model(call, values["model"])}
    return dict(values)


def _check(call: Call, name: str, value: Any) -> None:
    if name.startswith("env.") and len(name) > len("env."):
        kind = "variable"
    elif name in wire.SETTINGS:
        kind = wire.SETTINGS[name]
    else:
        raise wire.no_setting(name)
    if not _KINDS[kind](value):
        raise Invalid(f"expected {kind}, got {value!r} @ $.values.{name}")
    if kind == "variable":
        wire.check_variables({name[4:]: value})
    if name == "mode" and call.registry.services.config().within_policy(value) != value:
        raise Denied(f"the policy allows no mode above {call.registry.services.config().policy.max_mode}.")


async def _check_directory(path: str) -> None:
    if not await trio.to_thread.run_sync(os.path.isdir, path):
        raise NotFound(f"no directory {path}.")


_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "text": lambda value: isinstance(value, str) and value != "",
    "variable": lambda value: isinstance(value, str),
    "directory": lambda value: isinstance(value, str) and value.startswith("/"),
    "mode": lambda value: value in wire.MODES,
    "ask": lambda value: value in ("wait", "deny"),
    "bool": lambda value: isinstance(value, bool),
    "duration": lambda value: type(value) in (int, float) and value >= 0,
    "money": lambda value: type(value) in (int, float) and value >= 0,
    "count": lambda value: type(value) is int and value >= 0,
}


async def _model(call: Call, ref: str) -> Json:
    models = call.registry.services.models
    choice = await models.choose(ref, client_is_terminal=True)
    return {"model": choice.ref, "model_why": choice.why, "adapter": models.adapter_name(choice.ref)}
