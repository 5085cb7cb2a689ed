"""`dshctl daemon`: the process itself."""

from __future__ import annotations

import time
from typing import Any

import click

from dshctl import exits
from dshctl.base import Cli, Group, command
from dshctl.client import Client
from dshd import errors, wire
from dshd.errors import Unreachable
from dshd.log.lock import holder

Json = dict[str, Any]
STOP_S = 60.0  # a stop gives running turns their grace, and writes what must be written

COMMAND = Group(
    "daemon",
    short_help="Start, stop, restart, reload the daemon.",
    help="The daemon's process.",
    near={"kill": "stop", "run": "start", "info": "status", "up": "start", "down": "stop"},
)


@command("start", short_help="Start it, if it isn't there.")
def start(cli: Cli) -> None:
    """Start the daemon and wait until it is ready. One that runs already is fine."""
    _start(cli)


def _start(cli: Cli) -> None:
    cli.autostart, cli.announces = True, False
    client = cli.client()
    client.connection(start=True)
    hello = client.hello
    cli.out.item(
        {"type": "daemon", "running": True, "version": hello.get("version"), "pid": hello.get("pid")}
    )
    if not cli.out.quiet:
        pid = f", pid {hello['pid']}," if hello.get("pid") else ""
        cli.out.line(f"dshd {hello.get('version', '?')}{pid} runs.")


@command("stop", short_help="End it; running turns get their grace.")
def stop(cli: Cli) -> None:
    """End the daemon. Running turns reach a step boundary first and go on at the next start."""
    stopped = _stop(cli)
    cli.out.item({"type": "daemon", "running": False, "version": None, "pid": None})
    if not cli.out.quiet:
        cli.out.line("dshd stopped." if stopped else "dshd is not running.")


def _stop(cli: Cli) -> bool:
    """Stop it and wait until it is gone; False if there was none."""
    client = cli.client()
    if not client.is_running():
        return False
    by = holder(client.places.state)
    pid = by.pid if by else None
    try:
        cli.ask(wire.StopParams(), start=False, repeat=False)
    except errors.DshError as error:
        # It may end before its answer has gone out. Hanging is another matter.
        if error.code != "UNKNOWN":
            raise
    client.drop()
    _wait_gone(client, client.hello.get("pid") or pid)
    return True


def _wait_gone(client: Client, pid: int | None) -> None:
    """Until nobody holds the lock, or another one says that it does."""
    end = time.monotonic() + STOP_S
    while (now := holder(client.places.state)) is not None and now.pid in (None, pid):
        if time.monotonic() > end:
            raise errors.DshError(
                f"dshd {pid or ''} is asked to stop and still runs after {STOP_S:g} s.",
                hint=f"kill -KILL {now.pid}        (what was acknowledged is kept)" if now.pid else "",
            )
        time.sleep(client.deadline.left(0.02) or 0)


@command("restart", short_help="Stop it and start it; turns go on.")
def restart(cli: Cli) -> None:
    """Stop the daemon and start it again. What ran goes on; those who wait notice nothing.

    With a config that a new one would not take, the one that runs is left alone.
    """
    from dshctl.autostart import check

    if cli.client().is_running():
        check(cli.client())
    _stop(cli)
    _start(cli)


@command("reload", short_help="Read the config again.")
def reload(cli: Cli) -> None:
    """Read the configuration again; a wrong one changes nothing and is told."""
    client = cli.client()
    if not client.is_running():
        raise Unreachable("dshd is not running", hint="dshctl daemon start")
    done: Json = cli.ask(wire.ReloadParams(), start=False)
    cli.out.item(done)
    if not cli.out.quiet:
        cli.out.line("config read again.")
    for warning in done.get("warnings") or ():
        cli.out.say(f"dshctl: {warning}.")


@command("status", short_help="Is it there, and which?")
def status(cli: Cli) -> int:
    """The daemon's version, pid and age; exit 3 if it isn't running."""
    from dshctl.commands.status import heading
    from dshctl.times import now_ms

    client = cli.client()
    if not client.is_running():
        cli.out.item({"type": "daemon", "running": False, "version": None, "pid": None})
        cli.out.line("dshd is not running.")
        return exits.UNREACHABLE
    found = cli.ask(wire.StatusParams(), start=False)
    cli.out.item({"type": "daemon", "running": True, "version": found.get("version"), "pid": found.get("pid"),
                  "started_at": found.get("started_at")})  # fmt: skip
    cli.out.line(heading(found, now_ms()))
    return exits.DONE


def _add(*commands: click.Command) -> None:
    for one in commands:
        COMMAND.add_command(one)


_add(start, stop, restart, reload, status)
