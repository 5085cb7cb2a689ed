"""`dshctl setup`: puts pages, completions and units where the user's programs look for them."""

from __future__ import annotations

import os

import click

from dshctl import exits, installing, pages
from dshctl.base import Cli, command
from dshctl.sentences import count
from dshctl.text import short
from dshd.errors import NotConfigured
from dshd.paths import find_places


@command("setup", short_help="Pages, completions and units for you.", examples=["dshctl setup", "man dshctl"])
@click.option("--remove", is_flag=True, help="Take away what it put there, and nothing else.")
def COMMAND(cli: Cli, remove: bool) -> int:
    """Link the manual pages and the completions, and write the systemd user units with the path of this dshd,
    below ~/.local/share. What starts them is printed and not run. Twice is like once."""
    if not os.environ.get("HOME") and not os.environ.get("XDG_DATA_HOME"):
        raise NotConfigured(
            "there is no HOME, so there is no place to put anything", hint="HOME=/home/you dshctl setup"
        )
    installer = installing.Installer(os.environ, find_places(os.environ, socket=cli.socket))
    installer.remove() if remove else installer.install()
    done = installer.done
    todo = installing.commands(done, running=cli.client().is_running(), removing=remove)
    cli.out.item({"type": "setup", **done._asdict(), "commands": todo})
    cli.out.lines(_lines(done, todo, remove))
    return exits.CONFLICT if done.foreign and not remove else exits.DONE


def _lines(done: installing.Done, todo: list[str], remove: bool) -> list[str]:
    share = pages.data_home(os.environ)
    lines = [f"{'removed' if remove else 'put'} {short(path)}" for path in (*done.made, *done.removed)]
    lines += [f"left alone, for it is not ours: {short(path)}" for path in done.foreign]
    if done.same:
        lines.append(
            f"{count(len(done.same), 'file')} below {short(share)} {_are(len(done.same))} as they should be."
        )
    head = "To let go of the units:" if remove else "To have systemd start it, also after a reboot:"
    lines += ["", head, *(f"  {line}" for line in todo)]
    return lines if remove else [*lines, *installing.shell_lines(share)]


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
