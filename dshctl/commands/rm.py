"""`dshctl rm`: delete a session."""

from __future__ import annotations

import sys
from typing import Any

import click

from dshctl import exits, sentences
from dshctl.base import SESSION, Cli, Mistake, command
from dshctl.output import one_line
from dshd import wire
from dshd.errors import NotFound

Json = dict[str, Any]


@command("rm", short_help="Delete a session.", examples=["dshctl rm old", "dshctl rm --force --yes old"])
@click.argument("names", nargs=-1, metavar="SESSION...")
@SESSION
@click.option("--force", is_flag=True, help="Abort what runs and clear what is queued first.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask. Needed where nobody can be asked.")
def COMMAND(cli: Cli, names: tuple[str, ...], session: str | None, force: bool, yes: bool) -> int:
    """Delete sessions, for good, with all that is kept of them. Takes exact names or ids."""
    names = (*names, session) if session else names
    if not names:
        raise Mistake("say which session to delete", "dshctl rm SESSION")
    if not yes and not cli.terminal:
        flags = "--force --yes" if force else "--yes"
        raise Mistake(
            "rm deletes for good, and nobody can be asked here", f"dshctl rm {flags} {' '.join(names)}"
        )
    for name in names:
        if not yes and not _sure(cli, name):
            return exits.FAILURE
        gone: Json = cli.ask(wire.DeleteParams(session=name, force=force), repeat=False)
        cli.out.item({"type": "deleted", **gone})
        cli.out.tell(f"{name}: deleted.")
    return exits.DONE


def _sure(cli: Cli, name: str) -> bool:
    """Ask on the terminal, having said what would be lost."""
    session: Json = cli.ask(wire.ShowParams(session=name))
    if name not in (session["name"], session["id"]):
        raise NotFound(f'no session "{name}"', hint=f"dshctl rm {sentences.name_of(session)}")
    title = f" ({one_line(str(session['title']))})" if session.get("title") else ""
    cli.out.err.write(f"Delete {sentences.name_of(session)}{title} for good? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
