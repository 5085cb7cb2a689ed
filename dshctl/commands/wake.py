"""`dshctl wake`: go on after a park; release a held message."""

from __future__ import annotations

from typing import Any

import click

from dshctl import sentences
from dshctl.base import SESSION, Cli, Mistake, command
from dshd import wire

Json = dict[str, Any]


@command(
    "wake",
    short_help="Go on after a park; release a held message.",
    examples=["dshctl wake -s nightly", "dshctl wake s4h8w2c1.20", "dshctl wake --all"],
)
@click.argument("messages", nargs=-1, metavar="[MESSAGE...]")
@SESSION
@click.option("--all", "everything", is_flag=True, help="Every session.")
def COMMAND(cli: Cli, messages: tuple[str, ...], session: str | None, everything: bool) -> None:
    """Unpark a session and go on with its queue; or release held messages."""
    if everything and (messages or session):
        raise Mistake("--all goes with neither a session nor a message")
    for params in _requests(cli, messages, session, everything):
        answer: Json = cli.ask(params, repeat=True)
        woken = answer["sessions"] if everything else [answer]
        for one in woken:
            cli.out.item({"type": "woken", **one})
        if not cli.out.quiet:
            cli.out.lines([sentences.woken(one) for one in woken] or ["nothing was parked."])


def _requests(
    cli: Cli, messages: tuple[str, ...], session: str | None, everything: bool
) -> list[wire.WakeParams]:
    if everything:
        return [wire.WakeParams(all=True)]
    if not messages:
        return [wire.WakeParams(**cli.where(session))]
    return [wire.WakeParams(session=wire.session_of(message), message=message) for message in messages]
