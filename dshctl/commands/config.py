"""`dshctl config`: check or show the configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dshctl.base import Cli, Group, command
from dshctl.output import dump
from dshd import paths

if TYPE_CHECKING:
    from dshd.model.models import Models

Json = dict[str, Any]

COMMAND = Group("config", short_help="Check or show the configuration.",
                help="The configuration, as the daemon would read it now.")  # fmt: skip


def _item(places: paths.Places, config: Any, settings: Json | None) -> Json:
    from dshd.vet import warnings

    return {
        "type": "config",
        "path": places.config,
        "exists": os.path.exists(places.config),
        "routes": sorted(config.routes),
        "model": config.model.default,
        "settings": settings,
        "warnings": warnings(config, places, os.environ),
    }


@command("check", short_help="Is it right?", examples=["dshctl config check && dshctl daemon reload"])
def check(cli: Cli) -> None:
    """Read the configuration as the daemon would, and say what is wrong (exit 9), and which model new
    sessions get."""
    from dshd.vet import vet

    places = paths.find_places(os.environ, socket=cli.socket)
    config, models = vet(places, os.environ)
    found = _item(places, config, None)
    cli.out.item(found)
    if found["exists"]:
        cli.out.line(f"{places.config}: right. {_routes(found['routes'])}")
    else:
        cli.out.line(f"no config at {places.config}; the defaults are right.")
    cli.out.lines([*(f"{warning}." for warning in found["warnings"]), *model_lines(models)])


def _routes(routes: list[str]) -> str:
    return f"Routes: {', '.join(routes)}." if routes else "It names no routes; the built-in ones are used."


def model_lines(models: Models) -> list[str]:
    """Which model a new session gets, as far as that can be said without asking a server; and what to type
    if it would get none."""
    from dshd.model.routes import Choice, choose_route

    choice = choose_route(None, models.default, models.routes, has_key=models.has_key)
    if isinstance(choice, Choice):
        return _key_lines(models, choice.ref) or [f"New sessions get {choice.ref} ({choice.why})."]
    if models.default or choice.what != "ollama":
        from dshd.model.transport import shown

        return [f"New sessions get the first model that {shown(models.routes[choice.what].base_url)} offers."]
    return ["No model is set up: new sessions get a local Ollama's, if there is one.", *NO_MODEL]


NO_MODEL = [
    "  dshctl key deepseek                      (or anthropic, openai: asks for the key)",
    "  dshctl run --model rehearsal 'TEXT'      (to try without a model)",
]


def _key_lines(models: Models, ref: str) -> list[str]:
    from dshd.model.routes import find

    route = find(ref, models.routes)
    if route is None or not route.key_required or models.has_key(route):
        return []
    needs = route.api_key_env or route.api_key_file or "a key"
    return [f"New sessions get {ref}, which needs {needs}, and there is none.", f"  dshctl key {route.name}"]


@command("show", short_help="What holds now.")
def show(cli: Cli) -> None:
    """Every setting with the value that holds, as TOML-like lines. Keys are never shown."""
    import attrs

    from dshd.config import load
    from dshd.model.transport import shown

    places = paths.find_places(os.environ, socket=cli.socket)
    config = load(places)
    values: Json = attrs.asdict(config)
    for route in values["routes"].values():
        route["base_url"] = route["base_url"] and shown(route["base_url"])
    cli.out.item(_item(places, config, values))
    for warning in config.warnings():
        cli.out.line(f"# {warning}")
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
