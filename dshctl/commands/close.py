"""`dshctl close`: put a session away."""

from __future__ import annotations

import click

from dshctl import sentences
from dshctl.base import SESSION, Cli, command, one_session, session_argument
from dshd import wire


@command("close", short_help="Put a session away.", examples=["dshctl close", "dshctl close api --clear"])
@session_argument()
@SESSION
@click.option("--clear", is_flag=True, help="Abort what runs and clear what is queued first.")
def COMMAND(cli: Cli, which: str | None, session: str | None, clear: bool) -> None:
    """Put a session away; sending to it takes it up again. Refused (5) while it has work."""
    closed = cli.ask(wire.CloseParams(**cli.where(one_session(session, which)), clear=clear), repeat=True)
    cli.out.item({"type": "session", **closed})
    cli.out.tell(f"{sentences.name_of(closed)}: closed.")
