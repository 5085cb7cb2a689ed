"""`dshctl followup`: the next piece of work, in a turn of its own."""

from __future__ import annotations

from typing import Any

import click

from dshctl import options, sending, settling
from dshctl.base import Cli, command


@command(
    "followup",
    short_help="The next piece of work, in its own turn.",
    examples=[
        "dshctl followup 'now add tests'",
        "git diff | dshctl followup 'review this:' -",
        "dshctl followup -s nightly --create --key 'triage:{date}' 'triage new issues'",
    ],
)
@options.SEND
@click.option("--create", is_flag=True, help="Make the session -s NAME if there is none.")
@options.together(*options.SETTINGS)
def COMMAND(cli: Cli, words: tuple[str, ...], files: tuple[str, ...], refs: tuple[str, ...], create: bool,
            **given: Any) -> int:  # fmt: skip
    """The next piece of work: queued, and done in a turn of its own. Wakes an idle agent.

    Without -s it goes to the session of this directory, which is made if there is none.
    """
    message = sending.said(words, files, refs)
    given["to_create"] = settling.to_create(cli, given["session"], create, given)
    return sending.deliver(cli, sending.send_params(cli, "followup", given, message), given, message.replaced)
