"""`dshctl log`: the conversation, or the log's lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click

from dshctl import broken
from dshctl.base import SESSION, Cli, Mistake, Number, Read, command, one_session, session_argument
from dshctl.chat import Chat
from dshctl.connection import LogLine
from dshctl.times import now_ms
from dshd import wire
from dshd.errors import Invalid, NotFound

Json = dict[str, Any]
_TURNS = re.compile(r"(\d{1,15})(?:-(\d{0,15}))?\Z", re.ASCII)
OPEN_END = 2**53 - 1


def read_turns(text: str) -> tuple[int, int]:
    """``12``, ``3-7``, ``3-`` as first and last turn."""
    found = _TURNS.match(text)
    if found is None:
        raise Mistake(f"--turn: {text!r} is not N or N-M")
    first = int(found[1])
    last = first if found[2] is None else int(found[2] or OPEN_END)
    if not 1 <= first <= last:
        raise Mistake("--turn: turns count from 1 and go up")
    return first, last


def read_since(text: str) -> int:
    """A time, or a duration before now: ``18:00``, ``2h``, ``2h ago``."""
    try:
        return now_ms() - int(wire.parse_duration(text.removesuffix(" ago")) * 1000)
    except Invalid:
        return wire.parse_time(text, now_ms(), past=True)


@command(
    "log",
    short_help="The conversation.",
    examples=[
        "dshctl log",
        "dshctl log -f",
        "dshctl log --turn 12 --full",
        "dshctl log -o json -n 1 | jq .type",
    ],
)
@session_argument()
@SESSION
@click.option("-n", "newest", type=Number(0), metavar="N", help="The last N turns (3).")
@click.option("--turn", type=Read("N[-M]", read_turns), metavar="N[-M]", help="These turns.")
@click.option(
    "--since", type=Read("T", read_since), metavar="T", help="From this time on (2h, 18:00, yesterday 06:00)."
)
@click.option("--all", "everything", is_flag=True, help="From the beginning.")
@click.option("-f", "--follow", is_flag=True, help="Go on as it comes; Ctrl-C ends it.")
@click.option("--full", is_flag=True, help="With the output of every tool.")
@click.option("--reasoning", is_flag=True, help="With what the model thought.")
@click.option(
    "-o",
    "shape",
    type=click.Choice(["chat", "json"]),
    default="chat",
    help="chat (default), or json: the log's lines.",
)
@click.option("--chunks", is_flag=True, help="With -o json: also what streamed.")
def COMMAND(cli: Cli, which: str | None, session: str | None, newest: int | None,
            turn: tuple[int, int] | None,
            since: int | None, everything: bool, follow: bool, full: bool, reasoning: bool, shape: str,
            chunks: bool) -> None:  # fmt: skip
    """What was said and done, as a conversation. Works without a daemon, but for -f."""
    chosen = [
        name
        for name, given in (
            ("-n", newest is not None),
            ("--turn", turn),
            ("--since", since),
            ("--all", everything),
        )
        if given
    ]
    if len(chosen) > 1:
        raise Mistake(f"{' and '.join(chosen)} can't both choose")
    ref = one_session(session, which)
    turns = None if chosen and newest is None else 3 if newest is None else newest
    show = Show(cli, raw=shape == "json", full=full, reasoning=reasoning)
    if follow:
        if turn or since:
            raise Mistake("-f goes with -n or --all")
        _follow(cli, ref, show, turns, chunks)
        return
    where = cli.where(ref)
    select = wire.LogReadParams(**where, turns=turns, turn=turn, since=since, chunks=chunks)
    if not show.all(_read(cli, select), stopped=not cli.client().is_running()) and newest != 0:
        _nothing(cli, select, show.begun)


def _nothing(cli: Cli, select: wire.LogReadParams, begun: int | None) -> None:
    """Silence would leave open whether there is nothing, or nothing was looked at."""
    whose = "this directory's session" if select.session in (None, ".") else str(select.session)
    if begun is not None and (select.turn is None or select.turn[0] <= begun <= select.turn[1]):
        cli.out.say(f"dshctl: turn {begun} of {whose} has begun; nothing has entered it yet.")
        return
    if select.turn is not None:
        raise NotFound(f"no turn {select.turn[0]} in {whose}", hint=f"dshctl log{_of(select)} -n 1")
    since = " since then" if select.since is not None else " yet"
    cli.out.say(f"dshctl: no turn in {whose}{since}.")


def _of(select: wire.LogReadParams) -> str:
    return "" if select.session in (None, ".") else f" -s {select.session}"


def _read(cli: Cli, select: wire.LogReadParams) -> Iterator[tuple[str, LogLine]]:
    """Events from the daemon if one runs, else from the file."""
    client = cli.client()
    if not client.is_running():
        from dshctl import offline

        yield from offline.events(cli, select)
        return
    for method, params in client.stream(select, start=False):
        if method == "log.event":
            yield params["session"], params["event"]
        elif not method:
            broken.of_log(cli.out, params["session"], params.get("damage"))


class Show:
    """Events on standard output, in the shape that was asked for."""

    def __init__(self, cli: Cli, *, raw: bool, full: bool, reasoning: bool, live: bool = False) -> None:
        self._cli = cli
        self.raw = raw
        self._live = live
        self._any = False
        self.begun: int | None = None  # the newest turn that began in what was shown
        out = cli.out
        self._chat = Chat(
            out.columns, full=full, reasoning=reasoning, ellipsis=out.ellipsis, limit=out.out.tty
        )

    def all(self, events: Iterable[tuple[str, LogLine]], stopped: bool) -> bool:
        """Whether there was anything. ``stopped``: no daemon runs, so no turn goes on."""
        for session, event in events:
            if self._cli.out.out.gone:
                return True
            self.one(session, event)
        if not self.raw:
            self._lines(self._chat.end(stopped and self._any))
        return self._any

    def one(self, session: str, event: LogLine, hold: bool = True) -> None:
        out = self._cli.out
        if event["type"] == "turn/start":
            self.begun = int(event["data"]["turn"])
        if out.json:
            self._any = True
            out.item({"type": "event", "session": session, "event": event}, hold=hold)
        elif self.raw:
            self._any = True
            out.raw(event.raw)
        else:
            self._chat.place = os.path.join(self._cli.client().places.sessions, session, "attachments")
            self._lines(self._chat.feed(event))

    def _lines(self, lines: list[str]) -> None:
        self._any = self._any or bool(lines)
        self._cli.out.lines(lines)


def _follow(cli: Cli, ref: str | None, show: Show, turns: int | None, chunks: bool) -> None:
    from dshctl.follow import Now, Watch, doing

    now = Now(cli.out)
    cli.out.out.end_with_reader()

    def on_event(session: str, event: LogLine) -> None:
        now.say("")
        show.one(session, event, hold=False)
        if cli.out.out.tty and not show.raw:
            now.say(doing(event))

    where = cli.where(ref)
    Watch(cli, **where, ends=None, follow=True, turns=turns, chunks=chunks, on_event=on_event).run()
