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
    examples=[
        "dshctl wake -s nightly",
        "dshctl wake -s nightly --add cost=2     (and tries that turn again)",
        "dshctl wake s4h8w2c1.20",
        "dshctl wake --all",
    ],
)
@click.argument("messages", nargs=-1, metavar="[MESSAGE...]")
@SESSION
@click.option("--all", "everything", is_flag=True, help="Every session.")
@click.option(
    "--add",
    multiple=True,
    metavar="WHAT=N",
    help="Raise the limit that stopped it: cost=2, steps=50, time=1h, tokens=100k, errors=5.",
)
def COMMAND(
    cli: Cli, messages: tuple[str, ...], session: str | None, everything: bool, add: tuple[str, ...]
) -> None:
    """Unpark a session and go on with its queue; or release held messages. With --add the limit that
    stopped it is raised, and the turn that it stopped is tried again first."""
    if everything and (messages or session):
        raise Mistake("--all goes with neither a session nor a message")
    if add and (everything or messages):
        raise Mistake("--add goes with one session: dshctl wake -s NAME --add cost=2")
    raised = _added(add)
    for params in _requests(cli, messages, session, everything):
        params = params.replace(add=raised)
        answer: Json = cli.ask(params, repeat=not raised)
        woken = answer["sessions"] if everything else [answer]
        for one in woken:
            cli.out.item({"type": "woken", **one})
        if not cli.out.quiet:
            nothing = "nothing was parked, and nothing waited for a provider."
            cli.out.lines([sentences.woken(one) for one in woken] or [nothing])


def _added(add: tuple[str, ...]) -> dict[str, float]:
    """``cost=2`` and ``steps=50`` as ``{"cost": 2.0, "steps": 50}``."""
    from dshd import budgets

    pairs = [budgets.added(each) for each in add]
    if len(dict(pairs)) != len(pairs):
        raise Mistake("--add: each thing once")
    return dict(pairs)


def _requests(
    cli: Cli, messages: tuple[str, ...], session: str | None, everything: bool
) -> list[wire.WakeParams]:
    if everything:
        return [wire.WakeParams(all=True)]
    if not messages:
        return [wire.WakeParams(**cli.where(session))]
    return [wire.WakeParams(session=wire.session_of(message), message=message) for message in messages]
