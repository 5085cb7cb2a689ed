"""`dshctl answer`: what the agent said."""

from __future__ import annotations

from typing import Any

import click

from dshctl import broken, exits, sentences
from dshctl.base import NUMBER, SESSION, Cli, command
from dshd import wire

Json = dict[str, Any]


@command(
    "answer",
    short_help="The last answer.",
    examples=["dshctl answer", "dshctl answer s4h8w2c1.17 > review.md", "dshctl answer -n 2"],
)
@click.argument("message", required=False, metavar="[MESSAGE]")
@SESSION
@click.option("-n", "number", type=NUMBER, default=1, metavar="N", help="The Nth last (1).")
def COMMAND(cli: Cli, message: str | None, session: str | None, number: int) -> int:
    """The answer to a message, or the session's last one. Works without a daemon.

    Exits as the turn ended, so that a script sees a failure; 75 before it has ended.
    """
    if message is not None and not wire.is_message(message):
        message, session = None, message  # a session's name is what else people put here
    params = wire.AnswerShowParams(**_where(cli, message, session), message=message, n=number)
    result: Json = _ask(cli, params)
    code = exits.of_result(result)
    cli.out.item({"type": "result", **result, "exit": code})
    if result.get("text"):
        cli.out.line(str(result["text"]).rstrip("\n"))
    if code and result.get("outcome") is None:
        cli.out.fail(_not_ended(result, code))
    elif code:
        cli.out.fail(f"dshctl: {sentences.ended(result)}")
    return code


def _not_ended(result: Json, code: int) -> str:
    id = result.get("message")
    if code == exits.PARKED:
        return f"dshctl: {id} has not ended, and will not without a person.\n      dshctl why {id}"
    todo = [f"dshctl allow {one['id']}" for one in result.get("approvals") or ()] or [f"dshctl wait {id}"]
    why = "; it waits for an answer" if result.get("approvals") else ""
    return "\n      ".join([f"dshctl: {id} has not ended yet{why}.", *todo])


def _where(cli: Cli, message: str | None, session: str | None) -> Json:
    if message and message.startswith(wire.SPOOLED):
        return {}
    return {"session": wire.session_of(message)} if message else cli.where(session)


def _ask(cli: Cli, params: wire.AnswerShowParams) -> Json:
    if cli.client().is_running():
        answer: Json = cli.ask(params, start=False)
        broken.of_need(cli.out, answer.pop("broken", None))
        return answer
    from dshctl import offline, spooling

    if params.message and params.message.startswith(wire.SPOOLED):
        params = params.replace(message=spooling.message_of(cli, params.message))
    return offline.answer(cli, params)
