"""`dshctl schedule`: what is sent by the clock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from dshctl import occasion, options, sending, sentences, settling, zone
from dshctl.base import SESSION, Cli, Group, Mistake, command
from dshctl.output import one_line, table
from dshctl.text import short
from dshctl.times import age, clock, coming, moment, now_ms, until
from dshd import wire
from dshd.errors import Invalid

Json = dict[str, Any]

COMMAND = Group(
    "schedule",
    default="ls",
    short_help="What is sent by the clock.",
    help="Send a text by the clock: to a session, or to a new one each time (--run). Alone: ls.",
    near={"list": "ls", "remove": "rm", "delete": "rm", "new": "add", "show": "log", "history": "log",
          "stop": "pause", "start": "resume", "now": "run", "fire": "run"},
)  # fmt: skip

WHICH = click.argument("schedule", metavar="ID")


@command(
    "add",
    short_help="Send a text at a time, again and again or once.",
    examples=[
        "dshctl schedule add '0 2 * * *' --run -C ~/src/api 'triage the new issues'",
        "dshctl schedule add every 2h -s api 'is the build green?'",
        "dshctl schedule add at 'tomorrow 06:00' 'write the changelog'",
    ],
)
@options.together(click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="WHEN TEXT..."), SESSION)
@click.option("--run", is_flag=True, help="Make a new session each time, instead of sending to one.")
@click.option("--overlap", type=click.Choice(["skip", "queue", "supersede"]), default="skip",
              metavar="skip|queue|supersede",
              help="If what was sent last has not ended: send nothing, send behind it, or replace it "
                   "if it still waits (skip).")  # fmt: skip
@click.option("--catch-up/--no-catch-up", "catch_up", default=None,
              help="What came due while dshd was not there: send it once, late, or not at all "
                   "(the first, if it is due once a day or more rarely).")  # fmt: skip
@click.option("--zone", "zone_name", metavar="ZONE", help="The time zone of WHEN (yours): Europe/Berlin.")
@options.together(*options.SETTINGS)
def add(cli: Cli, words: tuple[str, ...], session: str | None, run: bool, overlap: Any,
        catch_up: bool | None, zone_name: str | None, **given: Any) -> None:  # fmt: skip
    """Send TEXT by the clock. WHEN is a line of cron in quotes, "every D", or "at TIME".

    It goes to the session that -s names, or to this directory's, or, with --run, to a new one each time that
    is made with the session options given here.
    """
    _check_options(run, session, given)
    name = zone_name or zone.name(os.environ)
    found = occasion.read(words, now_ms(), _tzinfo(zone_name))
    text = sending.said(found.rest).text or ""
    params = wire.ScheduleAddParams(
        **({} if run else settling.where(cli, session, given)), **found.fields, typed=found.typed, text=text,
        zone=name, overlap=overlap, catch_up=catch_up,
        run=settling.create_params(cli, given, run=True) if run else None,
    )  # fmt: skip
    added = cli.ask(params)
    cli.out.item({**added, "type": "schedule"})
    _tell_added(cli, added)


def _check_options(run: bool, session: str | None, given: Json) -> None:
    if run and session is not None:
        raise Mistake("--run makes a new session each time, and -s sends to one: one of them")
    options = [name for name, value in given.items() if value and name != "directory"]
    if not run and options:
        flag = "--" + options[0].replace("_", "-")
        raise Mistake(f"{flag} is for the sessions that --run makes; for one that is there: dshctl set")


def _tzinfo(name: str | None) -> Any:
    if name is None:
        return None
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise Invalid(f'--zone: "{name}" is no time zone that this system knows') from None


def _tell_added(cli: Cli, added: Json) -> None:
    out, now = cli.out, now_ms()
    if added.get("warning"):
        out.say(f"dshctl: {WARNINGS.get(added['warning'], added['warning'])}")
    out.tell(f"{_when(added)} -> {_target(added)}; {_next(added, now)}.")
    if not out.quiet:
        out.line(added["id"])


WARNINGS = {
    "no-unit": "no service keeps dshd running. While it isn't, nothing is sent: dshctl setup",
    "other-unit": "dshd.service is enabled, but did not start this dshd. When it ends, nothing is sent.",
    "no-linger": "dshd ends when you log out, and then nothing is sent: loginctl enable-linger",
}


def _when(row: Json) -> str:
    return f"{row['when']} ({row['zone']})" if row["kind"] == "cron" else str(row["when"])


def _target(row: Json) -> str:
    if row.get("run") is None:
        return str(row.get("name") or row.get("session"))
    return f"a new run in {short(str(row.get('dir') or '?'))}"


def _next(row: Json, now: int) -> str:
    if row["next_at"] is None:
        return "paused" if row["paused"] else "over"
    return f"next {coming(row['next_at'], now)} ({until(row['next_at'], now)})"


@command("ls", short_help="What is scheduled (the default).",
         examples=["dshctl schedule", "dshctl schedule ls -s api"])  # fmt: skip
@SESSION
def ls(cli: Cli, session: str | None) -> None:
    """What is scheduled, the next first; with -s in one session, else everywhere."""
    where = {} if session is None else cli.where(session)
    rows: list[Json] = cli.ask(wire.ScheduleListParams(**where))["schedules"]
    for row in rows:
        cli.out.item({**row, "type": "schedule"})
    if not cli.json:
        cli.out.lines(lines(cli, rows, now_ms()) if rows else ["Nothing is scheduled."])


def lines(cli: Cli, rows: list[Json], now: int) -> list[str]:
    head = ("ID", "WHEN", "NEXT", "LAST", "TO", "TEXT")
    limit = cli.out.columns - 1 if cli.out.out.tty else None
    body = [
        (
            row["id"], _when(row), coming(row["next_at"], now) if row["next_at"] else row["state"],
            _last(row["last"], now), _target(row), one_line(row["text"]),
        )
        for row in rows
    ]  # fmt: skip
    return table([head, *body], limit=limit, ellipsis=cli.out.ellipsis)


def _last(firing: Json | None, now: int) -> str:
    return "-" if firing is None else f"{clock(firing['due_at'], now)} {outcome(firing)}"


def outcome(firing: Json) -> str:
    """``completed``, ``running``, ``skipped``, ``refused``, ``missed``."""
    if firing["skipped"]:
        return "skipped" if firing["skipped"] == "overlap" else str(firing["skipped"])
    return str(firing["outcome"] or firing["state"] or "sent")


@command("log", short_help="What became of each time.", examples=["dshctl schedule log c1"])
@WHICH
def log(cli: Cli, schedule: str) -> None:
    """What became of a schedule each time it was due: the last 50 of them."""
    found = cli.ask(wire.ScheduleLogParams(schedule=schedule))
    cli.out.item({**found, "type": "schedule"})
    for firing in found["firings"]:
        cli.out.item({**firing, "type": "firing"})
    if not cli.json:
        cli.out.lines(list(_log_lines(cli, found, now_ms())))


def _log_lines(cli: Cli, found: Json, now: int) -> Iterator[str]:
    yield f"{found['id']}  {_when(found)} -> {_target(found)}; {_next(found, now)}"
    yield f"  {one_line(found['text'])}"
    rows = [(f"  {moment(one['due_at'], now)}", outcome(one), _detail(one)) for one in found["firings"]]
    limit = cli.out.columns - 1 if cli.out.out.tty else None
    yield from table(rows, limit=limit, ellipsis=cli.out.ellipsis)
    if not rows:
        yield "  It was not due yet."


def _detail(one: Json) -> str:
    parts = [one["detail"] or one["message"] or ""]
    if one["late_ms"] > 60_000:
        parts.append(f"{age(one['late_ms'])} late")
    if one["missed"]:
        parts.append(f"{one['missed']} before it passed")
    if one["by"]:
        parts.append(f"by {sentences.you(one['by'])}")
    return one_line("; ".join(filter(None, parts)))


@command("rm", short_help="Remove one.", examples=["dshctl schedule rm c1"])
@WHICH
def rm(cli: Cli, schedule: str) -> None:
    """Remove a schedule; what it has sent stays."""
    _changed(cli, cli.ask(wire.ScheduleRmParams(schedule=schedule)), "removed")


@command("pause", short_help="Nothing is due until it is resumed.", examples=["dshctl schedule pause c1"])
@WHICH
def pause(cli: Cli, schedule: str) -> None:
    """Keep a schedule, and send nothing until it is resumed."""
    _changed(cli, cli.ask(wire.SchedulePauseParams(schedule=schedule)), "paused")


@command("resume", short_help="Let it be due again.", examples=["dshctl schedule resume c1"])
@WHICH
def resume(cli: Cli, schedule: str) -> None:
    """Let a paused one be due again. What was due meanwhile is not made up for; an "at" is sent now."""
    row = cli.ask(wire.ScheduleResumeParams(schedule=schedule))
    _changed(cli, row, _next(row, now_ms()))


@command("run", short_help="Fire it now.", examples=["dshctl schedule run c1"])
@WHICH
def run(cli: Cli, schedule: str) -> int:
    """Send now what it sends, also while the last one runs, or while it is paused. Its own times stay."""
    row = cli.ask(wire.ScheduleRunParams(schedule=schedule))
    last = row["last"] or {}
    sent = last.get("message") is not None
    _changed(cli, row, f"sent, {last['message']}" if sent else f"refused: {last.get('detail')}")
    return 0 if sent else 1


def _changed(cli: Cli, row: Json, done: str) -> None:
    cli.out.item({**row, "type": "schedule"})
    if not cli.out.quiet:
        cli.out.line(f"{row['id']}: {done}.")


for _command in (add, ls, log, rm, pause, resume, run):
    COMMAND.add_command(_command)
