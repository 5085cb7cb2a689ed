"""`dshctl status`: what runs, what waits, what needs a person."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import Any, Final

import click

from dshctl import exits, sentences
from dshctl.base import Cli, command
from dshctl.output import cut, one_line, pad, width
from dshctl.times import age, clock, coming, now_ms, since, until
from dshd import __version__, budgets, reasons, wire
from dshd.errors import Unreachable

Json = dict[str, Any]


@command("status", short_help="What runs, waits, and needs you.",
         examples=["dshctl status", "dshctl status --short     (for a prompt or a bar)"])  # fmt: skip
@click.option("--short", is_flag=True, help="A few characters; nothing when all is idle.")
@click.option("--check", is_flag=True, help="Exit 1 if anything needs a person.")
def COMMAND(cli: Cli, short: bool, check: bool) -> int:
    """What runs, what waits, and what needs you, with the command to type. Never starts a daemon."""
    client = cli.client()
    if not client.is_running():
        return _not_running(cli, short)
    status = cli.ask(wire.StatusParams(), start=False)
    cli.out.item({"type": "status", **status})
    if not cli.json:
        text = [line for line in (short_line(status),) if line] if short else full_lines(cli, status)
        cli.out.lines(text)
    needs = needing(sessions_of(status)) or refused_schedules(status) or refused_sends(status)
    return exits.FAILURE if check and needs else exits.DONE


def _not_running(cli: Cli, short: bool) -> int:
    if cli.json:
        raise Unreachable("dshd is not running", hint="dshctl daemon start")
    if not short:
        cli.out.lines(["dshd is not running.", *spool_lines(_spool(cli))])
    return exits.UNREACHABLE


def _spool(cli: Cli) -> Json:
    """What `daemon.status` would say of it."""
    from dshctl import spooling

    state = cli.client().places.state
    return {**spooling.waiting(state)._asdict(), "dir": os.path.join(state, "spool")}


def spool_lines(spool: Json | None) -> list[str]:
    """What waits there, and what was refused with the command to look."""
    waiting, refused = ((spool or {}).get(name) or 0 for name in ("waiting", "refused"))
    lines = [f"{sentences.count(waiting, 'spooled send')} to be taken up."] if waiting else []
    if (spool or {}).get("problem"):
        lines.append(f"The spool can't be read: {(spool or {})['problem']}")
    if refused:
        where = shlex.quote(os.path.join((spool or {})["dir"], "refused"))
        lines += [f"{sentences.count(refused, 'spooled send')} refused:  grep . {where}/*.json"]
    return lines


def sessions_of(status: Json) -> list[Json]:
    found = status.get("sessions")
    return found if isinstance(found, list) else []


def needing(sessions: list[Json]) -> list[Json]:
    return [session for session in sessions if session.get("needs")]


def _in_state(sessions: list[Json], *states: str) -> list[Json]:
    return [session for session in sessions if session.get("state") in states]


def refused_sends(status: Json) -> int:
    """How many spooled sends were refused, and nobody has looked after."""
    return int((status.get("spool") or {}).get("refused") or 0)


def refused_schedules(status: Json) -> list[Json]:
    """Those that could not be sent the last time."""
    found: list[Json] = (status.get("scheduled") or {}).get("refused") or []
    return found


def _need_schedule(row: Json, now: int) -> tuple[str, str, str]:
    last = row["last"]
    words = f"refused {clock(last['due_at'], now)}: {one_line(last['detail'] or '')}"
    return row["id"], words, f"dshctl schedule log {row['id']}"


def short_line(status: Json) -> str:
    """``dshd 1 run 1 wait 1! 1p``; nothing when all is idle."""
    sessions = sessions_of(status)
    needs = needing(sessions)
    parked = [session for session in needs if session["needs"][0].get("kind") == "parked"]
    parts = [
        f"{len(found)}{mark}"
        for found, mark in (
            (_in_state(sessions, "running"), " run"),
            (_in_state(sessions, "waiting"), " wait"),
            ([session for session in needs if session not in parked] + refused_schedules(status), "!"),
            (parked, "p"),
        )
        if found
    ]
    return " ".join(["dshd", *parts]) if parts else ""


def full_lines(cli: Cli, status: Json) -> list[str]:
    now, sessions = now_ms(), sessions_of(status)
    needs = needing(sessions)
    waits = [s for s in _in_state(sessions, "waiting") if s not in needs]
    running = [s for s in _in_state(sessions, "running") if s not in needs]
    head, today = heading(status, now), _today(status)
    refused = refused_schedules(status)
    jobs = [
        (sentences.name_of(session), sentences.job(row, now), "")
        for session in sessions
        for row in session.get("jobs") or ()
    ]
    if not (needs or waits or running or refused or jobs):
        nothing = "Nothing running." if refused_sends(status) else "Nothing running, nothing waits for you."
        return [f"{head} {nothing}", *_tail(status, sessions, now, today)]
    names = {session["id"]: sentences.name_of(session) for session in sessions}

    def each(found: list[Json], row: Callable[[Json, int], Row]) -> list[Row]:
        return [_works_for(session, names, row(session, now)) for session in found]

    needed = [
        _works_for(session, names, _need(session, need, now)) for session in needs for need in _told(session)
    ]
    blocks = [
        ("needs you", needed + [_need_schedule(row, now) for row in refused]),
        ("waits", each(waits, _waiting)),
        ("running", each(running, _running)),
        ("in the background", jobs),
    ]
    every = [row for _, rows in blocks for row in rows]
    lines = [f"{head}  {today}" if today else head, ""]
    for title, rows in blocks:
        lines += [title, *_block(cli, rows, every)] if rows else []
    return lines + _tail(status, sessions, now)


def heading(status: Json, now: int) -> str:
    """``dshd 1.2.0, pid 4121, up 3 d 4 h, systemd.``"""
    started = status.get("started_at")
    parts = [f"dshd {_version(status)}", f"pid {status.get('pid', '?')}"]
    if started:
        parts.append(f"up {age(now - started)}")
    if status.get("supervisor"):
        parts.append(str(status["supervisor"]))
    return ", ".join(parts) + "."


def _version(status: Json) -> str:
    """Both, where dshctl is another."""
    theirs = str(status.get("version", "?"))
    return theirs if theirs in ("?", __version__) else f"{theirs} (dshctl {__version__})"


def _today(status: Json) -> str:
    """``Today 1.9 M tokens, $2.31 of $10.``; nothing if nothing was spent."""
    from dshctl.excerpts import cost_parts, tokens_text

    today = status.get("today") or {}
    parts = [f"{tokens_text(today['tokens'])} tokens"] if today.get("tokens") else []
    if today.get("limit"):
        of = f"of {budgets.price(today['limit'], today.get('currency')).removesuffix('.00')}"
        parts.append(f"{budgets.price(today.get('cost') or 0, today.get('currency'))} {of}")
    else:
        parts += cost_parts(today)
    return f"Today {', '.join(parts)}." if parts else ""


LONG_NAME: Final = 14  # one that is longer may be cut, and commands name the session by its id


def _typed(session: Json) -> Json:
    """The session as commands name it."""
    return {**session, "name": None} if len(sentences.name_of(session)) > 2 * LONG_NAME else session


Row = tuple[str, str, str]  # name, what, command


def _block(cli: Cli, rows: list[Row], every: list[Row]) -> list[str]:
    """Name, what, and the command at the right; ``every`` block has them in the same columns."""
    names = max(9, *(len(name) for name, _, _ in every))
    if cli.out.out.tty:
        names = min(names, max(LONG_NAME, cli.out.columns // 3))
    beside = [row for row in every if row[2]]
    whats = max((width(what) for _, what, _ in beside), default=0)
    if cli.out.out.tty:
        commands = max((len(todo) for _, _, todo in beside), default=0)
        whats = max(12, min(whats, cli.out.columns - names - commands - 6))
    return [_line(cli, row, names, whats) for row in rows]


def _line(cli: Cli, row: Row, names: int, whats: int) -> str:
    name, what, todo = row
    name = cut(name, names, cli.out.ellipsis) if cli.out.out.tty else name
    if todo:
        what = pad(cut(what, whats, cli.out.ellipsis) if cli.out.out.tty else what, whats)
    line = f"  {name:<{names}} {what}{f'  {todo}' if todo else ''}"
    return cut(line, cli.out.columns, cli.out.ellipsis) if cli.out.out.tty and not todo else line


def _works_for(session: Json, names: Json, row: Row) -> Row:
    """Of a subagent, which goes by its id: whose."""
    name, what, todo = row
    parent = session.get("agent")
    return (name, f"for {names.get(parent, parent)}: {what}", todo) if parent else row


def _told(session: Json) -> list[Json]:
    """Each approval that it asks for, else the first of its needs; and what is held."""
    held = [need for need in session["needs"] if need.get("kind") == "held"]
    others = [need for need in session["needs"] if need not in held]
    return [*([need for need in others if need.get("kind") == "approval"] or others[:1]), *held]


def _need(session: Json, need: Json, now: int) -> tuple[str, str, str]:
    name = sentences.name_of(session)
    words = _NEEDS.get(str(need.get("kind")))
    what, todo = (
        words(_typed(session), need, now) if words else (str(need.get("kind")), f"dshctl show {name}")
    )
    return name, what, todo


def _need_parked(session: Json, need: Json, now: int) -> tuple[str, str]:
    park = session.get("parked") or {}
    waiting = park.get("count") or (0 if park.get("budget") else sum((session.get("pending") or {}).values()))
    at = f" {clock(park['at'], now)}" if park.get("at") else ""
    why = sentences.park_reason(park)
    left = [f", {one_line(why)}"] if why else []
    left += [f", {sentences.count(waiting, 'waits', 'wait')}"] if waiting else []
    return f"parked{at}{''.join(left)}", sentences.wake_command(session)


def _need_approval(session: Json, need: Json, now: int) -> tuple[str, str]:
    waited = f" ({since(need['at'], now)})" if need.get("at") else ""
    return (
        f"wants to run: {one_line(str(need.get('what') or session.get('doing') or ''))}{waited}",
        f"dshctl allow {need.get('id')}",
    )


def _need_ended(session: Json, need: Json, now: int) -> tuple[str, str]:
    ended = "was interrupted" if need.get("what") == "interrupted" else "ended in error"
    code = f" ({need['code']})" if need.get("code") else ""
    at = f" {clock(need['at'], now)}" if need.get("at") else ""
    return f"turn {need.get('turn')} {ended}{at}{code}", f"dshctl retry -s {sentences.name_of(session)}"


def _need_held(session: Json, need: Json, now: int) -> tuple[str, str]:
    """``s4h8w2c1.17 held 03:12, after a crash``; of several, the first is named."""
    count, name = need.get("count") or 1, sentences.name_of(session)
    at = f" {clock(need['at'], now)}" if need.get("at") else ""
    why = _HELD.get(str(need.get("what")), "")
    more = f", and {count - 1} more" if count > 1 else ""
    todo = f"dshctl queue -s {name} --queue held" if count > 1 else f"dshctl wake {need.get('id')}"
    return f"{need.get('id')} held{at}{why}{more}", todo


_HELD = {
    "crash": ", after a crash",
    "failed": ", its turn failed 3 times",
    "repair": ", the log was repaired",
}


def _need_damaged(session: Json, need: Json, now: int) -> tuple[str, str]:
    mend = f"dshctl fsck --repair {sentences.name_of(session)}"
    what = "its log can't be read" if need.get("what") else "damaged; what is good can be read"
    return what, need.get("hint") or mend


def _need_faulted(session: Json, need: Json, now: int) -> tuple[str, str]:
    reopen = f"dshctl reopen {sentences.name_of(session)}"
    return "faulted: its log could not be written, or was changed under it", need.get("hint") or reopen


_NEEDS = {
    "parked": _need_parked,
    "approval": _need_approval,
    "ended": _need_ended,
    "held": _need_held,
    "damaged": _need_damaged,
    "faulted": _need_faulted,
}


def _waiting(session: Json, now: int) -> tuple[str, str, str]:
    look = f"dshctl why -s {sentences.name_of(_typed(session))}"
    return sentences.name_of(session), one_line(_what_waits(session, now)), look


def _what_waits(session: Json, now: int) -> str:
    """``rate limit, tries again 05:00``; ``8 sessions run already``."""
    said = str(session.get("doing") or "waits")
    what = reasons.waited_for(said) or said
    until = session.get("until_at")
    return f"{what}, tries again {sentences.when(until, now)}" if until else what


def _running(session: Json, now: int) -> tuple[str, str, str]:
    pending = session.get("pending") or {}
    queued = pending.get("next-turn", 0) + pending.get("next-step", 0)
    words = sentences.doing(session, now) or "runs"
    return sentences.name_of(session), f"{words}; {queued} queued" if queued else words, ""


def _tail(status: Json, sessions: list[Json], now: int, today: str = "") -> list[str]:
    """``14 idle, 212 closed (88 MB). Next: triage, 02:00 (in 13 h).``; ``today`` if it isn't told above."""
    idle, closed = len(_in_state(sessions, "idle")), status.get("closed")
    closed = len(_in_state(sessions, "closed")) if closed is None else closed
    parts = [f"{idle} idle"] if idle else []
    size = f" ({sentences.size(status['closed_bytes'])})" if status.get("closed_bytes") else ""
    parts += [f"{closed} closed{size}"] if closed else []
    words = [", ".join(parts) + "."] if parts else []
    words += [*([today] if today else []), *_coming(status, now)]
    return [*([" ".join(words)] if words else []), *spool_lines(status.get("spool"))]


def _coming(status: Json, now: int) -> list[str]:
    row = (status.get("scheduled") or {}).get("next")
    if row is None:
        return []
    return [
        f"Next: {row['name'] or row['id']}, {coming(row['next_at'], now)} ({until(row['next_at'], now)})."
    ]
