"""What waits in a session, as lines: `dshctl queue` and whoever sits at a terminal on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dshctl import sentences
from dshctl.output import Out, cut, one_line, table
from dshctl.times import clock, since

Json = dict[str, Any]
QUEUES = (("next-step", "next step"), ("next-turn", "next turn"), ("held", "held"))


def queued(listing: Json) -> list[Json]:
    """The waiting messages in the order in which they'd be claimed."""
    rows: list[Json] = listing["messages"]
    order = [name for name, _ in QUEUES]
    return sorted(rows, key=lambda row: (order.index(row["queue"]), row.get("position") or 0))


def lines(out: Out, listing: Json, messages: list[Json], now: int) -> Iterator[str]:
    """A heading, then what waits, by queue."""
    limit = out.columns - 1 if out.out.tty else None
    yield heading(listing["session"], bool(messages), now, limit, out.ellipsis)
    if messages:
        yield ""
    rows = table([row(message, now) for message in messages], limit=limit, ellipsis=out.ellipsis)
    for queue, title in QUEUES:
        block = [line for line, message in zip(rows, messages, strict=True) if message["queue"] == queue]
        yield from [title, *block] if block else []


def heading(session: Json, waiting: bool, now: int, limit: int | None = None, ellipsis: str = "...") -> str:
    """``api: turn 12 runs, step 4, 41 min (bash make test)``; cut to ``limit``, but for what to type."""
    name = sentences.name_of(session)
    if session.get("state") in ("damaged", "faulted", "unsupported"):
        known = "" if waiting else ", and nothing is known to be queued"
        return f"{name}: {session['state']}; nothing moves here{known}."
    if session.get("parked") and waiting:
        todo = f" ({sentences.wake_command(session)})"
        words = f"{name}: {_parked(session['parked'], now)}"
        return (words if limit is None else cut(words, max(40, limit - len(todo)), ellipsis)) + todo
    words = _busy(session, waiting, now)
    return words if limit is None else cut(words, limit, ellipsis)


def _busy(session: Json, waiting: bool, now: int) -> str:
    name = sentences.name_of(session)
    if session.get("phase") in (None, "idle"):
        return f"{name}: idle{'' if waiting else ', nothing queued'}."
    now_doing = sentences.now_doing(session, now, ", {}")
    if session.get("phase") == "maintenance":
        return f"{name}: {now_doing or 'maintenance'}{'' if waiting else '; nothing queued'}"
    if session.get("waits") == "place" and not session.get("step"):  # its turn is not open yet
        return f"{name}: {now_doing or 'waiting'}{'' if waiting else '; nothing queued'}"
    doing = f" ({now_doing})" if now_doing else ""
    parts = [f"turn {session.get('turn')} runs"]
    if session.get("step"):
        parts.append(f"step {session['step']}")
    if session.get("turn_started_at"):
        parts.append(since(session["turn_started_at"], now))
    return f"{name}: {', '.join(parts)}{doing}{'' if waiting else '; nothing queued'}"


def _parked(park: Json, now: int) -> str:
    since_when = f" since {clock(park['at'], now)}" if park.get("at") else ""
    why = one_line(sentences.park_reason(park))
    return f"PARKED{since_when}{f', {why}' if why else ''}"


def row(message: Json, now: int) -> tuple[str, ...]:
    at = message.get("due_at") or message.get("created_at") or (message.get("way") or [{}])[0].get("at")
    number = "" if message["queue"] == "held" else str(message.get("position") or "")
    return (
        f"{number:>3} {message['id']}",
        f"{message.get('verb'):<8}",
        clock(at, now) if at else "-",
        sentences.who(message.get("source")),
        one_line(str(message.get("text") or "")),
    )
