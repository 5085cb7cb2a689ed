"""`dshctl models`: the models that can be used."""

from __future__ import annotations

from typing import Any

from dshctl.base import Cli, command
from dshctl.output import table
from dshd import budgets, wire

Json = dict[str, Any]
HEAD = ("", "ROUTE", "ADAPTER", "MODEL", "WINDOW", "PRICE", "KEY")


@command(
    "models",
    short_help="The models that can be used.",
    examples=["dshctl models", "dshctl run --model fast TEXT"],
)
def COMMAND(cli: Cli) -> None:
    """The routes that can be used, built in or configured; * is what a new session gets."""
    answer = cli.ask(wire.ModelListParams())
    default = str(answer.get("default") or "")
    models = [
        {**model, "default": model.get("route") == default.partition("/")[0]} for model in answer["models"]
    ]
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
    lines = [f"{route} has no key:  dshctl key {route}" for route in missing]
    if not any(model["default"] for model in models):
        lines.append("New sessions get a local Ollama's, if there is one.  dshctl key deepseek")
    return lines


def key_word(model: Json) -> str:
    """Whether there is a key, where one is needed or given."""
    if model.get("key"):
        return "yes"
    return "MISSING" if model.get("key_required", True) and model.get("key") is False else "-"


def price(table: Json | None) -> str:
    """``0.3/1.2 USD``: per million tokens in and out."""
    if not table:
        return "-"
    return f"{table['input']:g}/{table['output']:g} {table.get('currency') or 'USD'}"


def row(model: Json) -> tuple[str, ...]:
    window = model.get("window")
    return (
        "*" if model.get("default") else " ",
        str(model.get("route") or model.get("name") or "?"),
        str(model.get("adapter") or "?"),
        str(model.get("model") or "-"),
        budgets.window(window) if window else "-",
        price(model.get("price")),
        key_word(model),
    )
