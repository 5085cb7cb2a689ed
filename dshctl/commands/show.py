"""`dshctl show`: all about a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dshctl import broken, sentences, text
from dshctl.base import SESSION, Cli, command, one_session, session_argument
from dshctl.excerpts import cost_parts, tokens_text
from dshctl.output import one_line
from dshctl.times import coming, moment, now_ms
from dshd import budgets, wire
from dshd.plural import age

Json = dict[str, Any]


@command("show", short_help="All about a session.", examples=["dshctl show", "dshctl show nightly"])
@session_argument()
@SESSION
def COMMAND(cli: Cli, which: str | None, session: str | None) -> None:
    """All about a session: what it does, its settings, its size. Works without a daemon."""
    found = ask(cli, wire.ShowParams(**cli.where(one_session(session, which))))
    cli.out.item({"type": "session", **found})
    if not cli.json:
        cli.out.lines(list(lines(found, now_ms())))
    broken.of_view(cli.out, found)


def ask(cli: Cli, params: wire.ShowParams) -> Json:
    """The session, from the daemon or from its file."""
    if cli.client().is_running():
        found: Json = cli.ask(params, start=False)
        return found
    from dshctl import offline

    return offline.show(cli, params)


def lines(session: Json, now: int) -> Iterator[str]:
    name = sentences.name_of(session)
    yield name if name == session.get("id") else f"{name}  {session.get('id')}"
    yield f"  {text.short(str(session.get('dir') or '?'))}"
    if session.get("title"):
        yield f"  {one_line(str(session['title']))}"
    yield f"  {state(session, now)}"
    yield from (f"  {label:<9} {value}" for label, value in facts(session, now) if value)


def state(session: Json, now: int) -> str:
    """``running: turn 12, step 4, 41 min: bash make test; 2 queued``."""
    word = _state_word(session, now)
    does = session.get("phase") not in (None, "idle") or session.get("waits")
    doing = sentences.doing(session, now) if does else ""
    queued = sum((session.get("pending") or {}).values())
    return "; ".join(
        part for part in (f"{word}: {doing}" if doing else word, f"{queued} queued" if queued else "") if part
    )


def _state_word(session: Json, now: int) -> str:
    """``parked since 03:12 (...)``; of one with nothing that waits only why it was: ``idle (abort)``."""
    word, park = sentences.state(session), session.get("parked")
    if not park or word == "closed":
        return word
    if word == "parked":
        return sentences.parked(session, now)
    if word == "idle":
        return f"idle ({sentences.park_reason(park)})"
    return f"{word}, the queue {sentences.parked(session, now)}"


def facts(session: Json, now: int) -> Iterator[tuple[str, str]]:
    """Label and value, in the order in which people ask."""
    origin = session.get("origins") or {}

    def setting(name: str, value: Any) -> str:
        if value is None:
            return ""
        if name == "patience":
            value = age(value * 1000) if value else "none"
        shown = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        return f"{shown} ({origin[name]})" if origin.get(name) else shown

    for name in ("model", "mode", "net", "ask", "patience"):
        yield name, setting(name, session.get(name))
    for label, one in zip(("allowed", *[""] * 99), session.get("allowed") or (), strict=False):
        yield label or " ", f"{one['id']} {thing_allowed(one)}"
    spent = ([f"{tokens_text(session['tokens'])} tokens"] if session.get("tokens") else []) + cost_parts(
        session
    )
    yield "spent", ", ".join(spent)
    rows = session.get("schedules") or ()
    for label, row in zip(("schedules", *[""] * len(rows)), rows, strict=False):
        yield label, _scheduled(row, now)
    rows = session.get("jobs") or ()
    for label, row in zip(("jobs", *[""] * len(rows)), rows, strict=False):
        yield label, sentences.job(row, now)
    for label, use in zip(("budgets", *[""] * 9), session.get("budgets") or (), strict=False):
        yield label, budgets.fraction(use)
    context = session.get("context") or {}
    if context.get("used") and context.get("window"):
        used, window = context["used"], context["window"]
        yield "context", f"{budgets.in_window(used, window)} of {budgets.window(window)}"
    if session.get("agents"):
        yield "subagents", f"{session['agents']} at work   dshctl agents -s {sentences.name_of(session)}"
    if session.get("agent"):
        yield "works", f"for {session['agent']}"
    elif session.get("parent"):
        yield "forked", f"from {session['parent']}"
    if session.get("created_at"):
        yield "created", moment(session["created_at"], now)
    if session.get("log"):
        yield "log", f"{text.short(str(session['log']))}, {sentences.size(session.get('bytes') or 0)}"
    elif session.get("bytes"):
        yield "log", sentences.size(session["bytes"])


def _scheduled(row: Json, now: int) -> str:
    due = f"next {coming(row['next_at'], now)}" if row["next_at"] else row["state"]
    return f"{row['id']}, {row['when']}, {due}: {one_line(row['text'])}"


def thing_allowed(one: Json) -> str:
    """``bash in ~/src/docs: make html``, and how to take that back."""
    from dshctl import approvals

    return f"{approvals.allowed(one)}   dshctl approvals --forget {one['id']}"
