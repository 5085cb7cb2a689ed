"""`dshctl completion`: what a shell asks when somebody presses Tab, and the script that asks it."""

from __future__ import annotations

import click

from dshctl import completing, pages
from dshctl.base import Cli, Mistake, command
from dshd.errors import DshError

PATIENCE_S = 2.0  # somebody waits at a prompt


@command(
    "completion",
    short_help="Completion for bash, zsh or fish.",
    examples=['eval "$(dshctl completion bash)"', "dshctl setup     (puts them where shells look)"],
)
@click.argument("shell", required=False, type=click.Choice(sorted(pages.COMPLETIONS)), metavar="SHELL")
@click.option("--line", metavar="LINE", help="What may come at the end of this line: word, tab, what it is.")
def COMMAND(cli: Cli, shell: str | None, line: str | None) -> None:
    """Print the script that completes dshctl's commands, options, sessions and messages in bash, zsh or fish.
    Never starts a daemon."""
    if line is not None:
        cli.timeout = cli.timeout or PATIENCE_S
        cli.out.quiet = True
        _complete(cli, line)
    elif shell is None:
        raise Mistake("completion for which shell? bash, fish or zsh", "dshctl completion bash")
    else:
        text = pages.read(pages.COMPLETIONS[shell])
        if not cli.json:
            cli.out.raw(text.removesuffix("\n"))
        cli.out.item({"type": "completion", "shell": shell, "script": text})


def _complete(cli: Cli, line: str) -> None:
    found: dict[str, str] = {}
    try:
        root = click.get_current_context().find_root().command
        assert isinstance(root, click.Group)
        for word, what in completing.candidates(cli, root, line):
            found.setdefault(word, what)
    except (DshError, OSError):  # what was found by then is what there is
        pass
    cli.out.lines([f"{word}\t{what}" for word, what in found.items()])
    words = [{"word": word, "what": what} for word, what in found.items()]
    cli.out.item({"type": "candidates", "candidates": words})
