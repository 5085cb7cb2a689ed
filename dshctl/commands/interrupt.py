"""`dshctl interrupt`: stop what runs and do this instead."""

from __future__ import annotations

from typing import Any

import click

from dshctl import options, sending, settling
from dshctl.base import SESSION, WORDS, Cli, command
from dshd import wire


@command(
    "interrupt",
    short_help="Stop what runs and do this instead.",
    examples=["dshctl interrupt 'leave that; the build is broken, look at it first'"],
)
@options.together(
    WORDS, SESSION, options.DIRECTORY, *options.ATTACH, options.KEY, options.TAG, options.AS, *options.ENDS
)
@click.option("--keep", is_flag=True, help="Park after it, instead of going on with the queue.")
@click.option("--reason", metavar="T", help="Why; kept in the log.")
def COMMAND(cli: Cli, words: tuple[str, ...], files: tuple[str, ...], refs: tuple[str, ...], keep: bool,
            reason: str | None, **given: Any) -> int:  # fmt: skip
    """Abort the turn that is running and do this next; then the rest of the queue."""
    message = sending.said(words, files, refs)
    params = wire.InterruptParams(
        **settling.where(cli, given["session"], given), **message.fields,
        key=sending.key_of(given["key"]), tag=given["tag"],
        keep=keep, reason=reason, as_=given["as_"],
    )  # fmt: skip
    return sending.deliver(cli, params, given, message.replaced)
