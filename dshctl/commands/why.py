"""`dshctl why`: what a message waits for."""

from __future__ import annotations

from typing import Any

import click

from dshctl import sentences
from dshctl.base import SESSION, Cli, command
from dshctl.times import now_ms
from dshd import wire

Json = dict[str, Any]


@command(
    "why",
    short_help="What a message waits for, in one sentence.",
    examples=["dshctl why s4h8w2c1.19", "dshctl why"],
)
@click.argument("message", required=False, metavar="[MESSAGE]")
@SESSION
def COMMAND(cli: Cli, message: str | None, session: str | None) -> None:
    """What a message waits for, and the command that would change that.

    Without a message: the first one of the session's queue, else what the turn that runs is about.
    """
    found: Json = cli.ask(_params(cli, message, session))
    found = {**found, "sentence": sentences.why(found, now_ms())}
    cli.out.item({"type": "why", **found})
    if not cli.json:
        cli.out.line(found["sentence"])
        if found.get("hint"):
            cli.out.line(f"  {_label(found)}{found['hint']}")


def _label(found: Json) -> str:
    return f"{found['label']}: " if found.get("label") else ""


def _params(cli: Cli, message: str | None, session: str | None) -> wire.MessageWhyParams:
    if message is not None:
        return wire.MessageWhyParams(message=message)
    return wire.MessageWhyParams(**cli.where(session))
