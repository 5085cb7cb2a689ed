"""`dshctl wait`: wait for messages, or for idle."""

from __future__ import annotations

from typing import Any

import click

from dshctl import exits, sentences
from dshctl.base import SESSION, Cli, Mistake, command
from dshctl.output import error_text
from dshctl.times import now_ms
from dshd import wire

Json = dict[str, Any]


@command(
    "wait",
    short_help="Wait for messages, or for idle.",
    examples=["dshctl wait", "dshctl wait s4h8w2c1.17 s4h8w2c1.19 --timeout 30m"],
)
@click.argument("messages", nargs=-1, metavar="[MESSAGE...]")
@SESSION
@click.option("--stay", is_flag=True, help="Wait on, also where only a person can move it.")
def COMMAND(cli: Cli, messages: tuple[str, ...], session: str | None, stay: bool) -> int:
    """Wait for the end of messages, or, without one, until the session is idle."""
    if len(messages) == 1 and not wire.is_message(messages[0]):
        raise Mistake(f'"{messages[0]}" is not the id of a message', f"dshctl wait -s {messages[0]}")
    where: Json = {} if messages else cli.where(session)
    if messages and not messages[0].startswith(wire.SPOOLED):
        where = {"session": wire.session_of(messages[0])}
    params = wire.WaitParams(**where, messages=messages, stay=stay, asked=() if cli.terminal else None)
    return exits.worst([_show(cli, result, bool(messages)) for result in _results(cli, params)])


def _results(cli: Cli, params: wire.WaitParams) -> list[Json]:
    from dshctl.follow import Watch, asks_in_place, patient

    about = {"session": params.session, "name": params.session or "the session of this directory"}
    watch = Watch(cli, session=None, ends=params, follow=False)
    while True:
        results: list[Json] = patient(cli, watch.run, about)["results"]
        if not asks_in_place(cli, watch, results):
            return results


def _show(cli: Cli, result: Json, is_message: bool) -> int:
    code = exits.of_result(result)
    cli.out.item({"type": "result", **result, "exit": code})
    if cli.out.err.tty or code:
        _say(cli, result, code, is_message)
    return code


def _say(cli: Cli, result: Json, code: int, is_message: bool) -> None:
    from dshctl.ends import how

    if not is_message and code in (exits.DONE, exits.PARKED):
        name = sentences.name_of(result)
        if code:
            words = f"{name} is {sentences.parked(result, now_ms())}"
            cli.out.fail(error_text(words, f"dshctl wake -s {name}"))
        else:
            cli.out.say(f"{name}: idle.")
        return
    say = cli.out.fail if code else cli.out.say
    say(how(result, cli.out.environ))
