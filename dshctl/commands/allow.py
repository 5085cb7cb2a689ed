"""`dshctl allow`: let a call run that waits for your answer."""

from __future__ import annotations

from typing import Any

import click

from dshctl import approvals
from dshctl.base import Cli, Mistake, command
from dshd import wire


@command(
    "allow",
    short_help="Let it run.",
    examples=["dshctl allow a3", "dshctl allow a3 --session     (and the same again, in this session)"],
)
@click.argument("id", metavar="ID")
@click.option("--session", "session", is_flag=True, help="And this very thing from now on, in its session.")
@click.option("--always", is_flag=True, help="And this very thing from now on, in every session.")
def COMMAND(cli: Cli, id: str, session: bool, always: bool) -> None:
    """Let a call run that waits for your answer (dshctl approvals shows them).

    The first answer counts; a later one gets exit 5 and is told who was first.
    """
    if session and always:
        raise Mistake("--session and --always are two things; --always holds in every session")
    scope: Any = "always" if always else "session" if session else "once"
    got = cli.ask(wire.ApprovalAnswerParams(id=id, answer="allow", scope=scope))
    cli.out.item({"type": "approval", **got})
    cli.out.tell(approvals.answered(got))
