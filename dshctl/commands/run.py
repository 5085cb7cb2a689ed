"""`dshctl run`: a new session, one piece of work, the answer."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from dshctl import exits, fates, options, sending, sentences, settling
from dshctl.base import WORDS, Cli, Mistake, command
from dshd import wire

Json = dict[str, Any]
REHEARSAL: Final = "rehearsal"  # the route


@command(
    "run",
    short_help="New session: do this, show the answer.",
    examples=[
        "dshctl run 'what is in this directory?'",
        "git diff | dshctl run 'review this:' -",
        "dshctl run --key 'triage:{date}' --timeout 30m 'triage new issues'",
    ],
)
@options.together(WORDS, *options.ATTACH, options.KEY, options.RETRY, options.AS, options.TIED)
@click.option("--rm", is_flag=True, help="Delete the session after exit 0.")
@click.option("--schema", metavar="F", help="The answer has to be JSON that fits this JSON schema.")
@click.option("--stay", is_flag=True, help="Wait on, also where only a person can move it.")
@options.together(*options.SETTINGS)
def COMMAND(cli: Cli, words: tuple[str, ...], files: tuple[str, ...], refs: tuple[str, ...], rm: bool,
            schema: str | None, stay: bool, **given: Any) -> int:  # fmt: skip
    """Do one piece of work in a new session.

    Progress goes to standard error, the answer alone to standard output.
    """
    from dshctl.follow import Place, to_the_end

    message = sending.said(words, files, refs)
    if given["retry"] and given["key"] is None:
        raise Mistake("--retry needs --key, to say what")
    params = settling.create_params(cli, given, run=True).replace(
        **message.fields, key=sending.key_of(given["key"]), retry=given["retry"], tied=given["tied"],
        as_=given["as_"], schema=None if schema is None else read_schema(schema),
    )  # fmt: skip
    made = cli.ask(params, repeat=params.key is not None)
    receipt = sending.complete(made["receipt"], message.replaced)
    introduce(cli, receipt)
    cli.out.item(receipt, hold=False)
    if made.get("result") is not None:
        return tell_gone(cli, made["result"])
    code = to_the_end(cli, receipt, progress=True, stay=stay, place=Place(), tied=given["tied"])
    leave(cli, receipt, code, rm, rehearsal=made["session"]["model"] == REHEARSAL)
    return code


def read_schema(path: str) -> Json:
    """A JSON schema from a file; whether it is one that can be used the daemon says."""
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except OSError as error:
        raise Mistake(f"--schema {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise Mistake(f"--schema {path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Mistake(f"--schema {path}: a schema is an object, like {{\"type\": \"object\"}}")
    return found


def introduce(cli: Cli, receipt: Json) -> None:
    """Which session; its log's first line then tells which model and why (see `follow.Progress`)."""
    out = cli.out
    if receipt.get("duplicate"):
        out.say(f"dshctl: {fates.receipt(receipt)}")
    else:
        out.say(f"dshctl: new session {sentences.name_of(receipt)}.")
    if receipt.get("replaced"):
        out.say(f"dshctl: {sentences.count(receipt['replaced'], 'character')} replaced: not UTF-8, or NUL.")
    if receipt.get("warning"):
        out.say(f"dshctl: {fates.warning(receipt['warning'])}")


def tell_gone(cli: Cli, result: Json) -> int:
    """The session of this key was removed: how it ended is all that is left."""
    code = exits.of_result(result)
    cli.out.item({"type": "result", **result, "exit": code})
    cli.out.fail("dshctl: its session was removed, and its answer with it; nothing was run.")
    return code


def leave(cli: Cli, receipt: Json, code: int, rm: bool, rehearsal: bool = False) -> None:
    """What to do with the session now. ``rehearsal``: its model does what it is told in words of its own."""
    name = sentences.name_of(receipt)
    if rm and code == exits.DONE:
        cli.ask(wire.DeleteParams(session=receipt["session"], force=True))
        return
    if not cli.json:
        say = "run: make test" if rehearsal else "TEXT"
        cli.out.say(f"dshctl: session {name}. Go on: dshctl followup -s {name} '{say}'")
