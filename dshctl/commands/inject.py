"""`dshctl inject`: slip a fact in."""

from __future__ import annotations

from typing import Any

import click

from dshctl import exits, options, sending
from dshctl.base import Cli, command
from dshd.errors import NotFound


@command(
    "inject",
    short_help="Slip a fact in; wakes nobody.",
    examples=[
        "dshctl inject 'main is frozen today'",
        'dshctl inject --if-exists "HEAD is now $(git log -1 --oneline)"',
    ],
)
@options.SEND
@options.DIRECTORY
@click.option("--if-exists", is_flag=True, help="If there is no session, do nothing, silently; exit 0.")
def COMMAND(cli: Cli, words: tuple[str, ...], files: tuple[str, ...], refs: tuple[str, ...], if_exists: bool,
            **given: Any) -> int:  # fmt: skip
    """Slip a fact in. It rides along with the next step, whenever that is, and wakes nobody."""
    message = sending.said(words, files, refs)
    given["if_exists"] = if_exists
    try:
        return sending.deliver(
            cli, sending.send_params(cli, "inject", given, message), given, message.replaced
        )
    except NotFound:
        if if_exists:
            return exits.DONE
        raise
