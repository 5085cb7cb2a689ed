"""`dshctl steer`: correct the turn that is running."""

from __future__ import annotations

from typing import Any

import click

from dshctl import options, sending, settling
from dshctl.base import Cli, command


@command(
    "steer",
    short_help="Correct the turn that is running.",
    examples=[
        "dshctl steer 'use the new fixture'",
        "dshctl steer --now 'leave the tests, fix the build first'",
        "dshctl steer -s api --if-turn 12 'leave the README alone'",
    ],
)
@click.option("--now", is_flag=True, help="Cut the step that runs short: commands go on in the background.")
@options.SEND
@options.DIRECTORY
def COMMAND(
    cli: Cli, words: tuple[str, ...], files: tuple[str, ...], refs: tuple[str, ...], **given: Any
) -> int:
    """Correct the turn that is running, at its next step, without throwing its work away.

    If nothing runs it starts a turn. With --now the next step comes at once: running commands go on in the
    background (dshctl jobs), other calls are stopped, and each says so in its result.
    """
    message = sending.said(words, files, refs)
    given["to_create"] = settling.to_create(cli, given["session"], False, {"directory": given["directory"]})
    return sending.deliver(cli, sending.send_params(cli, "steer", given, message), given, message.replaced)
