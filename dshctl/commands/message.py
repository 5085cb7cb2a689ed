"""`dshctl message`: a message's way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from dshctl import broken, sentences
from dshctl.base import Cli, command
from dshctl.output import pad, width
from dshctl.times import clock, exact, now_ms
from dshd import wire

Json = dict[str, Any]


@command("message", short_help="A message's way, step by step.", examples=["dshctl message s4h8w2c1.17"])
@click.argument("message", metavar="MESSAGE")
def COMMAND(cli: Cli, message: str) -> None:
    """Where a message came from, what became of it and when. Works without a daemon."""
    if not wire.is_message(message):
        wire.session_of(message)
    found = _ask(cli, wire.MessageShowParams(message=message))
    cli.out.item({"type": "message", **found})
    if not cli.json:
        cli.out.lines(list(lines(found, cli.out.columns, now_ms())))


def _ask(cli: Cli, params: wire.MessageShowParams) -> Json:
    if cli.client().is_running():
        found: Json = cli.ask(params, start=False)
        broken.of_need(cli.out, found.pop("broken", None))
        return found
    from dshctl import offline, spooling

    if params.message.startswith(wire.SPOOLED):
        params = params.replace(message=spooling.message_of(cli, params.message))
    return offline.message(cli, params)


def lines(message: Json, columns: int, now: int) -> Iterator[str]:
    """``steer to api, from you (pts/3), 12:04:11``, its way, and its text."""
    way = message.get("way") or []
    at = way[0]["at"] if way else message.get("created_at")
    name = message.get("name") or message.get("session")
    when = f", {_when(at, now)}" if at else ""
    yield f"{message.get('verb')} to {name}, from {sentences.you(message.get('source'))}{when}"
    for number, stop in enumerate(way):
        left = f"  {_when(stop['at'], now)}  {words_of(message, stop, number == 0)}"
        last = number == len(way) - 1
        todo = f"dshctl answer {message['id']}" if last and stop.get("state") == "settled" else ""
        room = columns - 1 - width(todo)
        yield (f"{pad(left, room)}{'' if width(left) < room else '  '}{todo}" if todo else left).rstrip()
    if message.get("key"):
        yield f"key {message['key']}"
    yield from str(message.get("text") or "").rstrip("\n").split("\n")


def _when(at: int, now: int) -> str:
    return exact(at) if clock(at, now)[2:3] == ":" else f"{clock(at, now)} {exact(at)}"


def words_of(message: Json, stop: Json, first: bool) -> str:
    """One stop of the way in words."""
    state = str(stop.get("state"))
    if first:
        return f"on disk, seq {stop.get('seq')}, {_queue(message)}"
    turn = f"turn {stop['turn']}" if stop.get("turn") else "its turn"
    if state == "entered":
        step = f" step {stop['step']}" if stop.get("step") else ""
        return f"entered {turn}{step}"
    if state == "settled":
        return f"{turn} {_outcome(stop.get('outcome'))}"
    who: Json = stop["source"] if isinstance(stop.get("source"), dict) else {}
    by = sentences.decided_by(who)
    if state in ("superseded", "rejected"):
        return f"{state}{by if who.get('by') else ''}"
    cause = _CAUSES.get(str(stop.get("cause")))
    if cause:
        return f"{cause}{by}"
    return f"{_STEPS.get(state, state)}{by if state in _BY else ''}"


def _queue(message: Json) -> str:
    queue = {"next-turn": "next turn", "next-step": "next step"}.get(
        str(message.get("queue")), message.get("queue")
    )
    place = f" {sentences.ordinal(message['position'])}" if message.get("position") else ""
    return f"{queue or message.get('verb')}{place}"


def _outcome(outcome: Any) -> str:
    return {"error": "ended in an error", "aborted": "was aborted", "blocked": "was blocked"}.get(
        str(outcome), str(outcome)
    )


_STEPS = {
    "pending": "back in the queue",
    "held": "held",
    "claimed": "claimed",
    "rejected": "rejected",
    "removed": "removed",
    "cleared": "cleared",
    "expired": "expired",
    "superseded": "superseded",
    "aborted": "aborted before it entered",
}
_CAUSES = {  # of states that a message is back in
    "due": "came due",
    "release": "released",
    "undo": "brought back",
    "move": "moved",
    "edit": "edited",
}
_BY = frozenset({"removed", "cleared", "aborted", "held"})
