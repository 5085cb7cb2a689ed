"""`dshctl retry`: the last turn once more."""

from __future__ import annotations

from typing import Any

import click

from dshctl import exits, fates, options, sentences
from dshctl.base import SESSION, Cli, Mistake, command
from dshd import wire

Json = dict[str, Any]


@command(
    "retry",
    short_help="The last turn once more.",
    examples=["dshctl retry -s nightly --wait", "dshctl retry s4h8w2c1.17 --follow"],
)
@click.argument("message", required=False, metavar="[MESSAGE]")
@options.together(SESSION, *options.ENDS)
def COMMAND(cli: Cli, message: str | None, session: str | None, **given: Any) -> int:
    """Try the last turn again, if it failed: nothing new is said, and what is parked stays parked.

    It goes on from where it had come to. With MESSAGE only if that is what the turn was about.
    """
    if given["tied"] and not (given["wait"] or given["follow"]):
        raise Mistake("--tied needs --wait or --follow")
    done: Json = cli.ask(_params(cli, message, session, given["tied"]), repeat=False)
    cli.out.item({"type": "retrying", **done}, hold=not (given["wait"] or given["follow"]))
    _say(cli, done)
    if not (given["wait"] or given["follow"]):
        if not cli.out.quiet:
            cli.out.line(str(done["message"]))
        return exits.DONE
    from dshctl.follow import to_the_end

    return to_the_end(cli, done, progress=given["follow"], stay=given["stay"], tied=given["tied"])


def _params(cli: Cli, message: str | None, session: str | None, tied: bool) -> wire.RetryParams:
    if message is None:
        return wire.RetryParams(**cli.where(session), tied=tied)
    if not wire.MESSAGE_ID.match(message):
        raise Mistake(f'"{message}" is not the id of a message', f"dshctl retry -s {message}")
    return wire.RetryParams(session=wire.session_of(message), message=message, tied=tied)


def _say(cli: Cli, done: Json) -> None:
    if done.get("reopened"):
        cli.out.say(f"dshctl: {sentences.name_of(done)} was closed and is open again.")
    if done.get("warning"):
        cli.out.say(f"dshctl: {fates.warning(done['warning'])}")
    cli.out.tell(sentences.retrying(done))
