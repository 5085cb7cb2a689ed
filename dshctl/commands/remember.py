"""`dshctl remember`: what every later turn is to know."""

from __future__ import annotations

import os

import click

from dshctl import settling, text
from dshctl.base import WORDS, Cli, Mistake, command
from dshctl.sentences import count
from dshd import memory, paths


@command(
    "remember",
    short_help="What every later turn is to know.",
    examples=["dshctl remember 'tests run with make check'", "dshctl remember --user 'answer in German'"],
)
@WORDS
@click.option("--user", "everywhere", is_flag=True, help="For all projects, not only this one.")
@click.option("-C", "directory", metavar="DIR", help="The project that this directory is in.")
@click.option("--list", "listing", is_flag=True, help="What is remembered.")
def COMMAND(cli: Cli, words: tuple[str, ...], everywhere: bool, directory: str | None, listing: bool) -> None:
    """Keep a note for this project's sessions; each turn's system prompt has it, under "Memory".

    The notes are lines of a file that you may edit; its name is told. Works without a daemon.
    """
    state = paths.find_places(os.environ, socket=cli.socket).state
    if everywhere and directory is not None:
        raise Mistake("--user is for all projects, and -C for one")
    project = None if everywhere else memory.project_of(settling.directory(directory))
    if listing:
        if words:
            raise Mistake("--list takes no text")
        return _list(cli, state, project)
    said = text.gather(words, *text.standard_input(), typed="dshctl remember")
    path = memory.remember(state, project, said.text)
    known = memory.notes(state, project)
    cli.out.item({"type": "remembered", "project": project, "path": path, "notes": known})
    whom = "all projects" if project is None else text.short(project)
    cli.out.say(f"remembered for {whom} ({count(len(known), 'note')}): {text.short(path)}")


def _list(cli: Cli, state: str, project: str | None) -> None:
    for place in dict.fromkeys((None, project)):
        known, path = memory.notes(state, place), memory.file_of(state, place)
        cli.out.item({"type": "remembered", "project": place, "path": path, "notes": known})
        if known and not cli.json:
            whom = "all projects" if place is None else text.short(place)
            cli.out.line(f"{whom}  ({text.short(path)})")
            cli.out.lines(["  - " + note.replace("\n", "\n    ") for note in known])
    if not cli.json and not any(memory.notes(state, place) for place in (None, project)):
        cli.out.say("nothing is remembered here.   dshctl remember 'TEXT'")
