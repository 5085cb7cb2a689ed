"""`dshctl models`: the models that can be used."""

from __future__ import annotations

from typing import Any

from dshctl.base import Cli, command
from dshctl.chat import tokens_text
from dshctl.output import table
from dshd import wire

Json = dict[str, Any]
HEAD = ("", "ROUTE", "ADAPTER", "MODEL", "WINDOW", "KEY")


@command(
    "models",
    short_help="The models that can be used.",
    examples=["dshctl models", "dshctl run --model fast TEXT"],
)
def COMMAND(cli: Cli) -> None:
    """The routes that can be used, built in or configured; * is what a new session gets."""
    answer = cli.ask(wire.ModelListParams())
    default = answer.get("default")
    models = [{**model, "default": model.get("route") == default} for model in answer["models"]]
    for model in models:
        cli.out.item({"type": "model", **model})
    if not cli.json:
        limit = cli.out.columns - 1 if cli.out.out.tty else None
        rows = [HEAD, *(row(model) for model in models)]
        cli.out.lines(table(rows, limit=limit, ellipsis=cli.out.ellipsis))
        cli.out.lines(notes(models))


def notes(models: list[Json]) -> list[str]:
    """What in the table needs a word more, or a command."""
    missing = [str(model["route"]) for model in models if key_word(model) == "MISSING" and model["default"]]
    return [f"{route} has no key:  dshctl key {route}" for route in missing]


def key_word(model: Json) -> str:
    """Whether there is a key, where one is needed or given."""
    if model.get("key"):
        return "yes"
    return "MISSING" if model.get("key_required", True) and model.get("key") is False else "-"


def row(model: Json) -> tuple[str, ...]:
    window = model.get("window")
    return (
        "*" if model.get("default") else " ",
        str(model.get("route") or model.get("name") or "?"),
        str(model.get("adapter") or "?"),
        str(model.get("model") or "-"),
        tokens_text(window) if window else "-",
        key_word(model),
    )
