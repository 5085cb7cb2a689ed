"""`dshctl approvals`: what waits for your answer, and what you have allowed."""

from __future__ import annotations

from typing import Any

import click

from dshctl import approvals, sentences
from dshctl.base import SESSION, Cli, Mistake, command, one_session, session_argument
from dshctl.times import now_ms
from dshd import wire

Json = dict[str, Any]


@command(
    "approvals",
    short_help="What waits for your answer.",
    examples=["dshctl approvals", "dshctl allow a3", "dshctl approvals --forget a3"],
)
@session_argument()
@SESSION
@click.option("--forget", metavar="ID", help="Take back what was allowed with --session or --always.")
def COMMAND(cli: Cli, which: str | None, session: str | None, forget: str | None) -> None:
    """What waits for your answer, the whole of it; and what you have allowed for longer.

    Of all sessions, or of one.
    """
    ref = one_session(session, which)
    if forget is not None:
        if ref is not None:
            raise Mistake("--forget takes an approval, and no session")
        gone = cli.ask(wire.ApprovalForgetParams(id=forget))
        cli.out.item({"type": "forgotten", **gone})
        cli.out.tell(f"{forget}: forgotten; the next time you are asked.")
        return
    of = {} if ref is None else cli.where(ref)
    got: Json = cli.ask(wire.ApprovalListParams(**of))
    for one in (*got["approvals"], *got["allowed"]):
        cli.out.item(one)
    if not cli.json:
        cli.out.lines(shown(got, now_ms(), cli.out.columns))


def shown(got: Json, now: int, columns: int = 80) -> list[str]:
    """Those that wait, and below them what is allowed."""
    waiting = [line for one in got["approvals"] for line in (*approvals.lines(one, now, columns), "")]
    rows = [
        f"  {one['id']:<4} {_whose(one)}, {approvals.allowed(one)}    dshctl approvals --forget {one['id']}"
        for one in got["allowed"]
    ]
    if not waiting and not rows:
        return ["Nothing waits for your answer."]
    return [*waiting, "allowed", *rows] if rows else waiting[:-1]


def _whose(one: Json) -> str:
    return sentences.name_of(one) if one.get("session") else "always"
