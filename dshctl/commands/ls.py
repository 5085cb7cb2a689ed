"""`dshctl ls`: the sessions."""

from __future__ import annotations

from typing import Any

import click

from dshctl import sentences, text
from dshctl.base import Cli, command, here
from dshctl.output import one_line, table
from dshctl.times import ago, now_ms
from dshd import wire

Json = dict[str, Any]
HEAD = ("  NAME", "STATE", "QUEUE", "ACTIVE", "DIRECTORY", "TITLE")


@command(
    "ls", short_help="The sessions.", examples=["dshctl ls", "dshctl ls --all", "dshctl ls --json | jq .name"]
)
@click.option("-a", "--all", "everything", is_flag=True, help="Closed ones too.")
def COMMAND(cli: Cli, everything: bool) -> None:
    """The sessions, the last active first. Works without a daemon.

    * marks the session of this directory.
    """
    listing = _ask(cli, wire.ListParams(all=everything, cwd=here()))
    sessions, current = listing.get("sessions") or [], _current(listing)
    for session in sessions:
        cli.out.item({"type": "session", **session})
    if not cli.json:
        _print(cli, sessions, current, listing)


def _current(listing: Json) -> str | None:
    current = listing.get("current")
    return current.get("id") if isinstance(current, dict) else current


def _ask(cli: Cli, params: wire.ListParams) -> Json:
    if cli.client().is_running():
        listing: Json = cli.ask(params, start=False)
        return listing
    from dshctl import offline

    return offline.listing(cli, params)


def _print(cli: Cli, sessions: list[Json], current: str | None, listing: Json) -> None:
    out = cli.out
    if sessions:
        rows = [HEAD, *(row(session, current, now_ms()) for session in sessions)]
        limit = out.columns - 1 if out.out.tty else None
        out.lines(table(rows, right=frozenset({2}), limit=limit, ellipsis=out.ellipsis))
    rest = _rest(listing, sessions)
    if rest:
        out.line(rest)


def row(session: Json, current: str | None, now: int) -> tuple[str, ...]:
    """One session as cells."""
    pending = session.get("pending") or {}
    mark = "*" if current is not None and session.get("id") == current else " "
    return (
        f"{mark} {sentences.name_of(session)}",
        sentences.state(session),
        str(sum(pending.values())),
        ago(session.get("active_at"), now),
        text.short(str(session.get("dir") or "?")),
        one_line(str(session.get("title") or "")),
    )


def _rest(listing: Json, sessions: list[Json]) -> str:
    """``14 more, 212 closed: dshctl ls --all``."""
    closed = listing.get("closed") or 0
    shown_closed = sum(session.get("state") == "closed" for session in sessions)
    parts = [f"{listing['more']} more"] if listing.get("more") else []
    if closed > shown_closed:
        parts.append(f"{closed - shown_closed} closed")
    if parts:
        return ", ".join(parts) + ": dshctl ls --all"
    return "" if sessions else "No sessions yet.   dshctl run 'what is in this directory?'"
