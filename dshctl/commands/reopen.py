"""`dshctl reopen`: take a closed or faulted session up again."""

from __future__ import annotations

from dshctl import sentences
from dshctl.base import SESSION, Cli, command, one_session, session_argument
from dshd import wire


@command("reopen", short_help="Take a closed or faulted session up again.", examples=["dshctl reopen api"])
@session_argument()
@SESSION
def COMMAND(cli: Cli, which: str | None, session: str | None) -> None:
    """Take a closed session up again, or one under which the disk failed."""
    opened = cli.ask(wire.ReopenParams(**cli.where(one_session(session, which))), repeat=True)
    cli.out.item({"type": "session", **opened})
    cli.out.tell(f"{sentences.name_of(opened)}: open.")
