"""`dshctl fsck`: check the logs; repair one."""

from __future__ import annotations

from typing import Any

import click

from dshctl import exits
from dshctl.base import SESSION, Cli, Mistake, command, one_session, session_argument
from dshctl.sentences import count, size
from dshd import wire
from dshd.errors import Unreachable

Json = dict[str, Any]


@command(
    "fsck",
    short_help="Check the logs; --repair one.",
    examples=["dshctl fsck", "dshctl fsck --repair api", "dshctl fsck --requests"],
)
@session_argument()
@SESSION
@click.option("--repair", is_flag=True, help="Write a new log without the damage; the old bytes are kept.")
@click.option("--requests", is_flag=True, help="Also rebuild what was sent to models and compare.")
def COMMAND(cli: Cli, which: str | None, session: str | None, repair: bool, requests: bool) -> int:
    """Check logs: every line, every number, and that a rebuild gives what the daemon holds.

    Without a session all are checked; exit 7 if one is damaged, or, with --requests, if what was sent
    to a model is not what its log makes of it.
    """
    ref = one_session(session, which)
    if repair and ref is None:
        raise Mistake("--repair takes a session", "dshctl fsck --repair SESSION")
    where: Json = cli.where(ref) if ref is not None else {}
    params = wire.FsckParams(**where, all=ref is None, repair=repair, requests=requests)
    reports = _ask(cli, params)
    for report in reports:
        cli.out.item({"type": "fsck", **report})
        cli.out.line(sentence(report))
    return exits.worst([code(report) for report in reports])


def _ask(cli: Cli, params: wire.FsckParams) -> list[Json]:
    client = cli.client()
    if client.is_running():
        try:
            client.connection(start=False)
        except Unreachable as error:
            raise Unreachable(f"nothing was checked: {error.message}", hint=error.hint) from None
        return reports_of(cli.ask(params, start=False, repeat=not params.repair))
    from dshctl import offline

    return offline.fsck(cli, params)


def reports_of(answer: Any) -> list[Json]:
    found: list[Json] = answer["sessions"]
    return found


def code(report: Json) -> int:
    return exits.DONE if report.get("ok") else exits.DAMAGED


def sentence(report: Json) -> str:
    name = report.get("name") or report.get("session") or report.get("id")
    if report["ok"]:
        good = f"{name}: good, {count(report['events'], 'event')}, {size(report['bytes'])}"
        return f"{good}{_requests(report.get('requests'))}."
    hint = f"   {report['hint']}" if report.get("hint") else ""
    return f"{name}: {report['problem']}{hint}"


def _requests(found: Json | None) -> str:
    """What was sent to models, and could be made again."""
    if found is None:
        return ""
    past = f", {found['not_comparable']} not comparable" if found["not_comparable"] else ""
    return f", {count(found['compared'], 'request')} made again{past}"
