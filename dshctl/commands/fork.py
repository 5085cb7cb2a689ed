"""`dshctl fork`: a session with the history of another."""

from __future__ import annotations

from typing import Any

import click

from dshctl import sentences
from dshctl.base import SESSION, Cli, Number, command, one_session, session_argument
from dshd import wire

Json = dict[str, Any]


@command(
    "fork",
    short_help="A new session with this one's history.",
    examples=["dshctl fork", "dshctl fork --at 389 api", "dshctl fork --name api-idea"],
)
@session_argument()
@SESSION
@click.option("--at", type=Number(0), metavar="SEQ", help="Up to this event, outside a turn.")
@click.option("--name", metavar="NAME", help="What it is called.")
def COMMAND(cli: Cli, which: str | None, session: str | None, at: int | None, name: str | None) -> None:
    """Make a session that remembers what this one does, and say its id. What is queued, parked or running
    stays where it is."""
    where = cli.where(one_session(session, which))
    if name is not None:
        wire.check_name(name)
    made: Json = cli.ask(wire.ForkParams(**where, at=at, name=name), repeat=False)
    cli.out.item({"type": "forked", **made})
    cli.out.tell(sentence(made))
    if not cli.out.quiet:
        cli.out.line(str(made["session"]))


def sentence(made: Json) -> str:
    """``api-2: forked from api after turn 11; turn 12 goes on there.   say more: ...``"""
    name, turn = sentences.name_of(made), made.get("turn")
    after = f"after turn {turn}" if turn else "before its first turn"
    runs = f"; turn {made['runs']} goes on there" if made.get("runs") else ""
    say_more = f"dshctl followup -s {name} 'TEXT'"
    return f"{name}: forked from {made.get('parent_name') or made['parent']} {after}{runs}.   {say_more}"
