"""Approvals in words, and asking whoever waits on a terminal, in place.

What is to be allowed is shown whole, however long it is: who allows half a command allows the other half,
too. Nothing in it can move the cursor, hide, or look like a line of ours: it stands six columns in.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dshctl import sentences, times
from dshctl.output import one_line, visible
from dshd import nesting, wire
from dshd.errors import Conflict, NotFound

if TYPE_CHECKING:
    from dshctl.base import Cli

Json = dict[str, Any]
DEEP: Final = "      "


def lines(approval: Json, now: int, columns: int = 80) -> list[str]:
    """One that waits, as `dshctl approvals` shows it: words are wrapped, what is to be allowed is not."""
    id = str(approval["id"])
    parts = [f"{id}  {whose(approval)}", f"turn {approval.get('turn')}"]
    parts.append(times.since(approval.get("asked_at"), now))
    if approval.get("expires_at"):
        parts.append(f"expires {times.upcoming(approval['expires_at'], now)}")
    allow, deny = f"    dshctl allow {id}", f"    dshctl deny {id} --reason '...'"
    return [
        *_wrapped(", ".join(parts), columns),
        *what(approval, columns),
        *([allow + deny] if len(allow + deny) < columns else [allow, deny]),
    ]


def whose(approval: Json) -> str:
    """``docs``; of a subagent's ``s4h8w2c1, a subagent of docs``."""
    above = approval.get("works_for") or ()
    of = f", a subagent of {sentences.name_of(above[-1])}" if above else ""
    return f"{sentences.name_of(approval)}{of}"


def concerns(approval: Json, session: str) -> bool:
    """Whether it is this session's, or that of one that works for it."""
    return session in (approval.get("session"), *(one["id"] for one in approval.get("works_for") or ()))


def _wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns - 1, subsequent_indent="    ", break_on_hyphens=False) or [text]


def what(approval: Json, columns: int = 80) -> list[str]:
    """What is to be allowed, where, and why the model wants it."""
    where = f" in {_short(approval['dir'])}" if approval.get("dir") and approval.get("command") else ""
    shown = [
        *_wrapped(f"    {approval.get('tool')}{where}:", columns),
        *(f"{DEEP}{line}" for line in body(approval)),
    ]
    if not approval.get("why"):
        return shown
    return [*shown, *_wrapped(f'    why: "{one_line(str(approval["why"]))}"', columns)]


def body(approval: Json) -> list[str]:
    """The whole of it, line by line, made harmless."""
    return visible("\n".join(_whole(approval))).split("\n")


def _whole(approval: Json) -> Iterator[str]:
    if approval.get("command") is not None:
        yield str(approval["command"])
        return
    if approval.get("path"):
        yield str(approval["path"])
    elif approval.get("host"):
        yield str(approval["host"])
    yield from _arguments(approval.get("arguments"))


def _arguments(raw: Any) -> Iterator[str]:
    """``content:`` and below it the text; what can't be read as it is."""
    try:
        given = nesting.loads(str(raw or "{}"), strict=False)
    except ValueError:
        yield str(raw)
        return
    for name, value in given.items() if isinstance(given, dict) else ():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{name}: {text}" if "\n" not in text else f"{name}:\n  " + text.replace("\n", "\n  ")


def _short(path: Any) -> str:
    from dshctl.text import short

    return short(str(path))


def allowed(one: Json) -> str:
    """``a3  docs      bash in ~/src/docs: make html      dshctl approvals --forget a3``, in three cells."""
    where = f" in {_short(one['dir'])}" if one.get("dir") else ""
    thing = one.get("command") or one.get("path") or one.get("host") or one.get("arguments") or "anything"
    return f"{one.get('tool')}{where}: {visible(one_line(str(thing)))}"


def answered(got: Json) -> str:
    """``a3: allowed; docs goes on.``"""
    id, name = got["id"], sentences.name_of(got)
    if got.get("answer") != "allow":
        return f"{id}: denied; {name} is told."
    places = {"session": f"in {name}", "always": "everywhere"}
    place = places.get(str(got.get("scope")))
    more = f", and the same again {place}" if place else ""
    return f"{id}: allowed{more}; {name} goes on."


# --- in place ------------------------------------------------------------------------------------

LOOK_S: Final = 1.0  # between two looks whether somebody else has answered
CHOICES: Final = "  y  once    s  for this session    n  no (n WHY: and tell it why)"
SCOPES: Final = {"y": "once", "yes": "once", "s": "session", "session": "session"}


def ask_in_place(cli: Cli, waiting: list[Json], known: tuple[str, ...]) -> tuple[str, ...]:
    """Ask for each that isn't known yet. The ids that are now, whether they were answered or not.

    Ctrl-C and the end of input are no answer: it waits on, and how to answer is said.
    """
    for approval in waiting:
        id = str(approval["id"])
        if id in known:
            continue
        known = (*known, id)
        try:
            _ask_one(cli, approval)
        except (EOFError, KeyboardInterrupt):
            cli.out.fail(f"\ndshctl: not answered; {sentences.name_of(approval)} still waits. To answer it:")
            cli.out.fail(f"      dshctl allow {id}        or: dshctl deny {id} --reason '...'")
    return known


def _ask_one(cli: Cli, approval: Json) -> None:
    cli.out.fail(f"{approval['id']}  {whose(approval)} wants to run")
    for line in (*what(approval), CHOICES):
        cli.out.fail(line)
    try:
        while (params := _read(cli, str(approval["id"]))) is None:
            cli.out.fail(CHOICES)
    except AnsweredElsewhere:
        cli.out.fail(f"\ndshctl: {approval['id']} is answered, or not asked any more.")
        return
    try:
        cli.out.say(f"dshctl: {answered(cli.ask(params))}")
    except (Conflict, NotFound) as late:  # somebody else was quicker, or it is over
        cli.out.fail(f"dshctl: {late.message}")


class AnsweredElsewhere(Exception):
    """While it stood here."""


def _somebody_types(cli: Cli, id: str) -> None:
    """Return when there is something to read. Raises `AnsweredElsewhere`, which is looked at now and then."""
    import select

    try:
        fd = sys.stdin.fileno()
    except (OSError, ValueError):
        return
    while not select.select([fd], [], [], LOOK_S)[0]:
        if all(one["id"] != id for one in cli.ask(wire.ApprovalListParams())["approvals"]):
            raise AnsweredElsewhere


def _read(cli: Cli, id: str) -> wire.ApprovalAnswerParams | None:
    """What was typed; None if it means nothing. Raises EOFError at the end of input."""
    cli.out.err.write(f"{id}? ")
    _somebody_types(cli, id)
    typed = sys.stdin.readline()
    if not typed:
        raise EOFError
    word, _, rest = typed.strip().partition(" ")
    if word.lower() in ("n", "no"):
        return wire.ApprovalAnswerParams(id=id, answer="deny", reason=rest.strip() or None)
    if word.lower() in SCOPES and not rest:
        scope: Any = SCOPES[word.lower()]
        return wire.ApprovalAnswerParams(id=id, answer="allow", scope=scope)
    return None
