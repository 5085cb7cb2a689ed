"""`dshctl compact`: make room in a session's conversation."""

from __future__ import annotations

from dshctl import sentences
from dshctl.base import SESSION, Cli, command, one_session, session_argument
from dshd import wire


@command(
    "compact",
    short_help="Make room in a conversation.",
    examples=["dshctl compact", "dshctl compact api"],
)
@session_argument()
@SESSION
def COMMAND(cli: Cli, which: str | None, session: str | None) -> int:
    """Sum up the older part of the conversation, so that the model has room again.

    The log keeps everything. While a turn runs it is done at its next step. It is done without being
    asked when four fifths of the model's window are full.
    """
    where = cli.where(one_session(session, which))
    if not cli.out.quiet and (turn := _running(cli, where)) is not None:
        cli.out.say(f"dshctl: turn {turn} runs; it is done at its next step.")
    done = cli.ask(wire.CompactParams(**where), repeat=False)
    cli.out.item({"type": "compacted", **done})
    if not cli.out.quiet:
        cli.out.lines([sentences.compacted(done)])
    return int(done["exit"])


def _running(cli: Cli, where: dict[str, str | None]) -> int | None:
    shown = cli.ask(wire.ShowParams(**where))
    return shown.get("turn") if shown.get("phase") == "running" else None
