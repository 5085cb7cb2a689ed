"""`dshctl deny`: don't let a call run that waits for your answer."""

from __future__ import annotations

import click

from dshctl import approvals
from dshctl.base import Cli, command
from dshd import wire


@command(
    "deny",
    short_help="Don't let it run.",
    examples=["dshctl deny a3", "dshctl deny a3 --reason 'use make clean'"],
)
@click.argument("id", metavar="ID")
@click.option("--reason", metavar="T", help="Why; the model is told.")
def COMMAND(cli: Cli, id: str, reason: str | None) -> None:
    """Don't let a call run that waits for your answer. The model is told, and its turn goes on.

    The first answer counts; a later one gets exit 5 and is told who was first.
    """
    got = cli.ask(wire.ApprovalAnswerParams(id=id, answer="deny", reason=reason or None))
    cli.out.item({"type": "approval", **got})
    cli.out.tell(approvals.answered(got))
