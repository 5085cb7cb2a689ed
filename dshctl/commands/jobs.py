"""`dshctl jobs`: what goes on in the background."""

from __future__ import annotations

from typing import Any

import click

from dshctl import sentences
from dshctl.base import NUMBER, SESSION, Cli, Group, command
from dshctl.output import one_line, table
from dshctl.times import age, clock, now_ms
from dshd import reasons, wire

Json = dict[str, Any]

COMMAND = Group(
    "jobs",
    default="ls",
    short_help="What goes on in the background.",
    help="Commands that the agent has started in the background. Alone: ls.",
    near={"list": "ls", "kill": "stop", "end": "stop", "rm": "stop", "log": "output", "tail": "output",
          "show": "output", "follow": "output", "detach": "keep", "disown": "keep"},
)  # fmt: skip

WHICH = click.argument("job", metavar="ID")
PIECE = 65536  # bytes of output that are asked for at once
SOON = 20.0  # s that the daemon may wait for more of it


@command("ls", short_help="Those that run (the default).",
         examples=["dshctl jobs", "dshctl jobs ls -s api --all"])  # fmt: skip
@SESSION
@click.option("--all", "every", is_flag=True, help="Those that have ended, too.")
def ls(cli: Cli, session: str | None, every: bool) -> None:
    """Those that run, the oldest first; with -s in one session, else everywhere."""
    where = {} if session is None else cli.where(session)
    rows: list[Json] = cli.ask(wire.JobListParams(**where, all=every))["jobs"]
    for row in rows:
        cli.out.item(row)
    if not cli.json:
        cli.out.lines(lines(cli, rows, now_ms()) if rows else ["No job runs."])


def lines(cli: Cli, rows: list[Json], now: int) -> list[str]:
    limit = cli.out.columns - 1 if cli.out.out.tty else None
    body = [
        (row["id"], sentences.name_of(row), clock(row["started_at"], now), state(row, now),
         one_line(row["command"]))
        for row in rows
    ]  # fmt: skip
    head = ("ID", "SESSION", "SINCE", "STATE", "COMMAND")
    return table([head, *body], limit=limit, ellipsis=cli.out.ellipsis)


def state(row: Json, now: int) -> str:
    """``running 4 min``, ``running 2 h, kept``, ``exit 2, 4 min``."""
    if row["end"] is not None:
        return reasons.job_end(row["end"])
    kept = ", kept" if row["kept"] else ""
    return f"running {age(max(0, now - row['started_at']))}{kept}"


@command("stop", short_help="End one, and all it started.", examples=["dshctl jobs stop j3"])
@WHICH
def stop(cli: Cli, job: str) -> None:
    """End a job, and all that it started. The agent is told with its next step."""
    _told(cli, cli.ask(wire.JobStopParams(job=job)))


@command("keep", short_help="Let one outlive the daemon.", examples=["dshctl jobs keep j3"])
@WHICH
def keep(cli: Cli, job: str) -> None:
    """Let a job outlive the daemon: it is found again when dshd starts.

    It ends by itself, by dshctl jobs stop, or with its session (close --clear, rm --force).
    """
    _told(cli, cli.ask(wire.JobKeepParams(job=job)))


def _told(cli: Cli, row: Json) -> None:
    cli.out.item(row)
    if not cli.out.quiet and not cli.json:
        cli.out.line(f"{row['id']}: {state(row, now_ms())}.")


@command("output", short_help="What one prints.", examples=["dshctl jobs output j3 -f"])
@WHICH
@click.option("-f", "--follow", is_flag=True, help="Go on with it, until the job ends.")
@click.option("-n", "most", type=NUMBER, default=PIECE, metavar="BYTES",
              help=f"Begin with the last BYTES of it ({PIECE}).")  # fmt: skip
def output(cli: Cli, job: str, follow: bool, most: int) -> None:
    """What a job prints: the end of it so far, and with -f what comes, until it ends."""
    got = cli.ask(wire.JobOutputParams(job=job, most=most))
    _shown(cli, got)
    if follow:
        cli.out.out.end_with_reader()
    while follow and (got["state"] == "running" or got["next"] < got["size"]):
        got = cli.ask(wire.JobOutputParams(job=job, offset=got["next"], wait=SOON))
        _shown(cli, got)
    printed = (got["end"] or {}).get("bytes")
    if printed is not None and printed > got["size"]:
        kept = f"only the first {got['size']} of the {printed} bytes that it printed were kept"
        cli.out.say(f"dshctl: {job}: {kept}.")
    if got["end"] is not None:
        cli.out.tell(f"{job}: {reasons.job_end(got['end'])}.")


def _shown(cli: Cli, got: Json) -> None:
    cli.out.item(got)
    cli.out.piece(got["text"])


for _command in (ls, output, stop, keep):
    COMMAND.add_command(_command)
