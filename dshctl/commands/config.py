"""`dshctl config`: check or show the configuration."""

from __future__ import annotations

import os
from typing import Any

from dshctl.base import Cli, Group, command
from dshctl.output import dump
from dshd import paths

Json = dict[str, Any]

COMMAND = Group("config", short_help="Check or show the configuration.",
                help="The configuration, as the daemon would read it now.")  # fmt: skip


def _load(cli: Cli) -> tuple[paths.Places, Any]:
    from dshd import config

    places = paths.find_places(os.environ, socket=cli.socket)
    return places, config.load(places)


def _item(places: paths.Places, config: Any, settings: Json | None) -> Json:
    return {
        "type": "config",
        "path": places.config,
        "exists": os.path.exists(places.config),
        "routes": sorted(config.routes),
        "model": config.model.default,
        "settings": settings,
    }


@command("check", short_help="Is it right?", examples=["dshctl config check && dshctl daemon reload"])
def check(cli: Cli) -> None:
    """Read the configuration as the daemon would, and say what is wrong (exit 9)."""
    places, config = _load(cli)
    found = _item(places, config, None)
    cli.out.item(found)
    if found["exists"]:
        cli.out.line(f"{places.config}: right. {_routes(found['routes'])}")
    else:
        cli.out.line(f"no config at {places.config}; the defaults are right.")


def _routes(routes: list[str]) -> str:
    return f"Routes: {', '.join(routes)}." if routes else "It names no routes; the built-in ones are used."


@command("show", short_help="What holds now.")
def show(cli: Cli) -> None:
    """Every setting with the value that holds, as TOML-like lines. Keys are never shown."""
    import attrs

    places, config = _load(cli)
    values: Json = attrs.asdict(config)
    cli.out.item(_item(places, config, values))
    for name, value in flat(values):
        cli.out.line(f"{name} = {dump(value)}")


def flat(values: Json, prefix: str = "") -> list[tuple[str, Any]]:
    """``[("driver.max_running", 8), ...]``."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found += flat(value, f"{prefix}{name}.")
        elif value not in (None, {}, []):
            found.append((f"{prefix}{name}", value))
    return found


for _command in (check, show):
    COMMAND.add_command(_command)
