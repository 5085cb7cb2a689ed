"""`dshctl agents`: sessions that work for others."""

from __future__ import annotations

from typing import Any

import click

from dshctl import sentences
from dshctl.base import SESSION, Cli, Group, command
from dshctl.output import one_line, table
from dshctl.times import age, clock, now_ms
from dshd import wire

Json = dict[str, Any]

COMMAND = Group(
    "agents",
    default="ls",
    short_help="Sessions that work for others.",
    help="Subagents: sessions that a session has parts of its work done by. Alone: ls.",
    near={"list": "ls", "kill": "stop", "end": "stop", "abort": "stop"},
)  # fmt: skip


@command("ls", short_help="Those at work (the default).",
         examples=["dshctl agents", "dshctl agents ls -s api --all"])  # fmt: skip
@SESSION
@click.option("--all", "every", is_flag=True, help="Those that have ended, too.")
def ls(cli: Cli, session: str | None, every: bool) -> None:
    """Those at work, the oldest first; with -s of one session, else everywhere.

    An id is that of its own session: dshctl log -s ID shows what it does, dshctl steer -s ID corrects it.
    """
    where = {} if session is None else cli.where(session)
    rows: list[Json] = cli.ask(wire.AgentListParams(**where, all=every))["agents"]
    for row in rows:
        cli.out.item(row)
    if not cli.json:
        cli.out.lines(lines(cli, rows, now_ms()) if rows else ["No subagent works."])


def lines(cli: Cli, rows: list[Json], now: int) -> list[str]:
    limit = cli.out.columns - 1 if cli.out.out.tty else None
    body = [
        (row["id"], sentences.name_of({**row, "id": row["session"]}), clock(row["started_at"], now),
         state(row, now), one_line(row["prompt"]))
        for row in rows
    ]  # fmt: skip
    head = ("ID", "FOR", "SINCE", "STATE", "PROMPT")
    return table([head, *body], limit=limit, ellipsis=cli.out.ellipsis)


def state(row: Json, now: int) -> str:
    if row["state"] != "running":
        return str(row["outcome"])
    if row.get("asks"):
        return f"asks {row['asks'][0]}"
    step = f", step {row['step']}" if row["step"] else ""
    return f"{'waits' if row.get('waits') else 'running'} {age(max(0, now - row['started_at']))}{step}"


@command("stop", short_help="End one.", examples=["dshctl agents stop s4h8w2c1"])
@click.argument("agent", metavar="ID")
def stop(cli: Cli, agent: str) -> None:
    """End a subagent, and all that it runs; its parent goes on without it."""
    row = cli.ask(wire.AgentStopParams(agent=agent))
    cli.out.item(row)
    if not cli.out.quiet and not cli.json:
        cli.out.line(f"{row['id']}: {state(row, now_ms())}.")


for _command in (ls, stop):
    COMMAND.add_command(_command)
