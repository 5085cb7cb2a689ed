"""`dshctl abort`: stop the turn that is running."""

from __future__ import annotations

import click

from dshctl import sentences
from dshctl.base import NUMBER, SESSION, Cli, Mistake, command, one_session, session_argument
from dshd import wire


@command(
    "abort",
    short_help="Stop the turn that is running.",
    examples=["dshctl abort", "dshctl abort -s api --clear --reason 'wrong branch'"],
)
@session_argument()
@SESSION
@click.option("--turn", type=NUMBER, metavar="N", help="Only if this turn runs.")
@click.option("--keep", is_flag=True, help="Park what is queued (the default).")
@click.option("--clear", is_flag=True, help="Also clear what is queued.")
@click.option("--continue", "go_on", is_flag=True, help="Go on with what is queued.")
@click.option("--tree/--no-tree", default=True, help="Subagents too (the default).")
@click.option("--reason", metavar="T", help="Why; kept in the log.")
def COMMAND(cli: Cli, which: str | None, session: str | None, turn: int | None, keep: bool, clear: bool,
            go_on: bool, tree: bool, reason: str | None) -> None:  # fmt: skip
    """Stop the turn that is running, and everything it started; what is queued is parked."""
    if keep + clear + go_on > 1:
        raise Mistake("--keep, --clear and --continue exclude each other")
    params = wire.AbortParams(
        **cli.where(one_session(session, which)),
        turn=turn,
        disposition="clear" if clear else "continue" if go_on else "keep",
        tree=tree,
        reason=reason,
    )
    done, whose = cli.ask(params, repeat=False), None if params.session else ""
    cli.out.item({"type": "aborted", **done})
    if not cli.out.quiet:
        cli.out.lines(sentences.abort(done, cli.out.columns, whose))
