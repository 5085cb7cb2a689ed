"""`dshctl rename`: give a session a name."""

from __future__ import annotations

import click

from dshctl import sentences
from dshctl.base import SESSION, Cli, Mistake, command, one_session
from dshd import wire


@command(
    "rename", short_help="Give a session a name.", examples=["dshctl rename api", "dshctl rename old new"]
)
@click.argument("words", nargs=-1, required=True, metavar="[SESSION] NAME")
@SESSION
def COMMAND(cli: Cli, words: tuple[str, ...], session: str | None) -> None:
    """Give a session a name: 1 to 64 letters, digits and . _ - / : (unique among open ones)."""
    if len(words) > 2:
        raise Mistake("rename takes a session and a name", "dshctl rename OLD NEW")
    which = words[0] if len(words) == 2 else None
    params = wire.RenameParams(**cli.where(one_session(session, which)), name=wire.check_name(words[-1]))
    renamed = cli.ask(params, repeat=True)
    cli.out.item({"type": "session", **renamed})
    cli.out.tell(f"{sentences.name_of(renamed)}: renamed.")
