"""`dshctl queue`: what is still to be done, and changing that."""

from __future__ import annotations

from typing import Any

import click

from dshctl import broken, exits, queues, sending, sentences
from dshctl.base import NUMBER, SESSION, WORDS, Cli, Group, command
from dshctl.times import now_ms
from dshd import wire

Json = dict[str, Any]

QUEUE = click.option("--queue", type=click.Choice(["next-turn", "next-step", "held"]), metavar="Q",
                     help="Only next-turn, next-step or held.")  # fmt: skip
MESSAGES = click.argument("messages", nargs=-1, required=True, metavar="MESSAGE...")

COMMAND = Group(
    "queue",
    default="ls",
    otherwise="-s {}",
    short_help="What is still to be done.",
    help="What waits in a session: for the next step, the next turn, or held. Alone: ls.",
    near={
        "list": "ls",
        "remove": "rm",
        "delete": "rm",
        "drop": "rm",
        "up": "first",
        "top": "first",
        "move": "first",
    },
)


@command(
    "ls",
    short_help="What waits (the default).",
    examples=["dshctl queue", "dshctl queue -s api --queue held"],
)
@SESSION
@QUEUE
def ls(cli: Cli, session: str | None, queue: Any) -> int:
    """What waits in a session."""
    listing = cli.ask(wire.QueueLsParams(**cli.where(session), queue=queue))
    messages = queues.queued(listing)
    for message in messages:
        cli.out.item({"type": "message", **message})
    if not cli.json:
        cli.out.lines(list(queues.lines(cli.out, listing, messages, now_ms())))
    return _broken(cli, listing["session"])


def _broken(cli: Cli, session: Json) -> int:
    """Of a session that can't be driven, what is known is shown, and what helps is said."""
    if not broken.of_view(cli.out, session):
        return exits.DONE
    return exits.DAMAGED


@command("show", short_help="A waiting message, whole.")
@click.argument("message", metavar="MESSAGE")
def show(cli: Cli, message: str) -> None:
    """A waiting message with its version, which `edit --version` guards."""
    found = cli.ask(wire.QueueShowParams(message=message))
    cli.out.item({"type": "message", **found})
    if not cli.json:
        version = f", version {found['version']}" if found.get("version") else ""
        cli.out.line(
            f"{found.get('verb')} in {found.get('queue')}, from {sentences.you(found.get('source'))}{version}"
        )
        cli.out.line(str(found.get("text") or "").rstrip("\n"))


@command(
    "edit", short_help="Put another text in its place.", examples=["dshctl queue edit s4h8w2c1.17 'new text'"]
)
@click.argument("message", metavar="MESSAGE")
@WORDS
@click.option("--version", "version", type=NUMBER, metavar="N",
              help="Only if nobody else has edited it since.")  # fmt: skip
def edit(cli: Cli, message: str, words: tuple[str, ...], version: int | None) -> None:
    """Replace a waiting message's text; its place and id stay."""
    said = sending.said(words)
    params = wire.QueueEditParams(message=message, text=said.text, version=version)
    _changed(cli, cli.ask(params, repeat=version is not None), "edited", (message,))


@command(
    "clear", short_help="Remove all that waits.", examples=["dshctl queue clear -s api --queue next-turn"]
)
@SESSION
@QUEUE
def clear(cli: Cli, session: str | None, queue: Any) -> None:
    """Remove all that waits, or one queue of it."""
    done = cli.ask(wire.QueueClearParams(**cli.where(session), queue=queue), repeat=True)
    number = len(done["messages"])
    cli.out.item({"type": "queue", **done})
    if not cli.out.quiet:
        cli.out.line(f"{sentences.count(number, 'message')} cleared." if number else "nothing was queued.")


@command("undo", short_help="Take the last removal back.", examples=["dshctl queue undo -s api"])
@SESSION
def undo(cli: Cli, session: str | None) -> None:
    """Take back the newest removal, clearing, expiry, supersession, rejection or aborted message.

    Once and as a whole; the one before it is next. What comes back no longer expires.
    """
    done = cli.ask(wire.QueueUndoParams(**cli.where(session)))
    cli.out.item({"type": "undone", **done})
    if not cli.out.quiet:
        cli.out.line(sentences.undone(done, now_ms()))


MOVES: dict[str, tuple[type[wire.OfMessages], str, str]] = {
    "first": (wire.QueueFirstParams, "To the head of its queue.", "moved to the head"),
    "last": (wire.QueueLastParams, "To the end of its queue.", "moved to the end"),
    "promote": (wire.QueuePromoteParams, "Into the turn that runs: to next-step.", "moved to the next step"),
    "demote": (wire.QueueDemoteParams, "Into a turn of its own: to next-turn.", "moved to a turn of its own"),
    "rm": (wire.QueueRmParams, "Remove it.", "removed"),
}


def _mover(name: str) -> click.Command:
    params, does, done = MOVES[name]

    @command(name, short_help=does, help=does, examples=[f"dshctl queue {name} s4h8w2c1.19"])
    @MESSAGES
    def move(cli: Cli, messages: tuple[str, ...]) -> None:
        for message in messages:
            wire.session_of(message)
        _changed(cli, cli.ask(params(messages=messages), repeat=name != "rm"), done, messages)

    return move


def _changed(cli: Cli, result: Any, done: str, messages: tuple[str, ...]) -> None:
    body = result if isinstance(result, dict) else {}
    cli.out.item({"type": "queue", **body})
    if not cli.out.quiet:
        cli.out.line(f"{', '.join(messages)}: {done}.")


for _command in (ls, show, edit, *map(_mover, MOVES), clear, undo):
    COMMAND.add_command(_command)
