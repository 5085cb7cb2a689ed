"""`dshctl new`: make a session."""

from __future__ import annotations

from typing import Any

import click

from dshctl import options, sending, sentences, settling, text
from dshctl.base import Cli, Mistake, command


@command(
    "new",
    short_help="Make a session.",
    examples=["dshctl new", "dshctl new --name nightly -C ~/src/api --mode workspace --net on"],
)
@click.argument("name_as_argument", required=False, metavar="[NAME]")
@options.together(*options.SETTINGS, options.KEY)
def COMMAND(cli: Cli, name_as_argument: str | None, **given: Any) -> None:
    """Make a session and say its id. Without a name it is the session of this directory."""
    names = {name for name in (name_as_argument, given["name"]) if name is not None}
    if len(names) > 1:
        raise Mistake(f'two names: "{name_as_argument}" and "{given["name"]}"')
    given["name"] = next(iter(names), None)
    params = settling.create_params(cli, given, implicit=not names).replace(key=sending.key_of(given["key"]))
    made = cli.ask(params, repeat=params.key is not None)
    session = made["session"]
    cli.out.item({"type": "session", **session})
    what = f"{sentences.name_of(session)} for {text.short(str(session.get('dir') or '?'))}."
    cli.out.tell(f"same key as session {what}" if made.get("duplicate") else f"new session {what}")
    sending.say_model(cli, session["id"])
    if not cli.out.quiet:
        cli.out.line(str(session["id"]))
