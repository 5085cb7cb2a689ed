"""`dshctl attach`: a terminal on a session."""

from __future__ import annotations

import sys
from typing import Any

import click

from dshctl import options, sending, sentences, settling, text, times
from dshctl.base import SESSION, Cli, Mistake, command, one_session, session_argument
from dshctl.queues import heading
from dshd import wire
from dshd.errors import Conflict, NotFound

Json = dict[str, Any]


@command(
    "attach",
    short_help="A terminal on a session: see, and say.",
    examples=["dshctl attach", "dshctl attach -s api --read", "dshctl attach -s spike --create --model fast"],
)
@session_argument()
@SESSION
@click.option("--read", is_flag=True, help="Only see; nothing can be changed.")
@click.option("--create", is_flag=True, help="Make the session -s NAME if there is none.")
@options.together(*options.SETTINGS)
def COMMAND(cli: Cli, which: str | None, session: str | None, read: bool, create: bool, **given: Any) -> int:
    """The conversation as it goes on, and a line to type in.

    A line is said to the agent: a steer while a turn runs, else a followup. /help tells of other words.
    Ctrl-C clears the line, on an empty one twice aborts the turn; Ctrl-D leaves, which stops nothing.
    """
    if read and create:
        raise Mistake("--read makes no session")
    ref = one_session(session, which)
    client = cli.client()
    if read:
        client.mode = "read"
    found = _found(cli, ref, create, given, read)
    from dshctl.attaching.attached import Attached
    from dshctl.attaching.screen import Plain, Terminal, Woken

    screen = Terminal(cli.out, 0) if _is_terminal(cli) else Plain(cli.out)
    cli.out.tell(heading(found, bool(sum((found.get("pending") or {}).values())), times.now_ms()))
    if screen.reads_keys:
        cli.out.tell(f"dshctl: {_words(read)}")
    if read:
        cli.out.out.end_with_reader()
    with Woken() as woken, screen:
        return Attached(cli, found, screen, woken, read=read).run()


def _words(read: bool) -> str:
    return "nothing is sent from here. Ctrl-D leaves." if read else "/help: what can be typed. Ctrl-D leaves."


def _is_terminal(cli: Cli) -> bool:
    """Whether keys can be read and rows replaced."""
    dumb = cli.out.environ.get("TERM", "dumb") == "dumb"
    return sys.stdin is not None and sys.stdin.isatty() and cli.out.out.tty and not dumb and not cli.json


def _found(cli: Cli, ref: str | None, create: bool, given: dict[str, Any], read: bool) -> Json:
    """The session; this directory's is made if there is none, as by a followup."""
    where = settling.where(cli, ref, given)
    try:
        found = _show(cli, where)
        _check(found, given)
        return found
    except NotFound:
        making = None if read else settling.to_create(cli, ref, create, given)
        if making is None:
            raise
    try:
        made: Json = cli.ask(making, repeat=False)["session"]
    except Conflict:  # somebody else was quicker
        return _show(cli, where)
    cli.out.say(
        f"dshctl: new session {sentences.name_of(made)} for {text.short(str(made.get('dir') or '?'))}."
    )
    sending.say_model(cli, str(made["id"]))
    return made


def _show(cli: Cli, where: dict[str, Any]) -> Json:
    found: Json = cli.ask(wire.ShowParams(**where))
    return found


def _check(found: Json, given: dict[str, Any]) -> None:
    """Options that make a session, given for one that is there with other settings, would mean nothing."""
    names = ("model", "mode", "net", "ask")
    wanted = {name: settling.setting(name, given.get(name)) for name in names}
    for name, value in wanted.items():
        if value is not None and found.get(name) != value:
            raise Conflict(
                f"{sentences.name_of(found)} is there, and its {name} is {found.get(name)}",
                hint=f"dshctl set -s {sentences.name_of(found)} {name}={given[name]}",
            )
