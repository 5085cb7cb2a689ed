"""The options of what is said and of what is made, each once, in groups; a command takes those it has.

Which of them a request takes is said where it is made: `sending`, `settling`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dshctl import times
from dshctl.base import DURATION, NUMBER, SESSION, WORDS, Read
from dshd import wire

# Options of everything that sends.
ATTACH = (
    click.option(
        "--file",
        "files",
        multiple=True,
        metavar="F[:A-B]",
        help="Send a snapshot of a file, or of its lines A to B.",
    ),
    click.option(
        "--ref", "refs", multiple=True, metavar="F", help="Name a file; the agent reads it when it wants to."
    ),
)
KEY = click.option(
    "--key",
    metavar="K",
    help="Send once, however often this is repeated; {date} {hour} {minute} {boot} are filled in.",
)
RETRY = click.option(
    "--retry", is_flag=True, help="With --key: if what was sent before has failed, try that again."
)
TAG = click.option("--tag", metavar="T", help="A label to find it by.")
TIME = Read("TIME", lambda typed: wire.parse_time(typed, times.now_ms()))
LATER = (
    click.option("--at", type=TIME, metavar="TIME", help="Hold it until then: 18:00, tomorrow 06:00, @UNIX."),
    click.option("--in", "in_", type=DURATION, metavar="D", help="Hold it that long (90s, 10m, 2h)."),
    click.option("--hold", is_flag=True, help="Hold it until a person releases it: dshctl wake MESSAGE."),
    click.option(
        "--expires", type=DURATION, metavar="D", help="If it still waits after D, it is gone, unseen."
    ),
)
FLAGS = (
    click.option("--supersede", is_flag=True, help="Replace what waits with the same --tag."),
    click.option(
        "--on-crash",
        type=click.Choice(["hold", "requeue"]),
        metavar="hold|requeue",
        help="What becomes of it if dshd ends while its turn is about to begin (requeue).",
    ),
    click.option(
        "--when-full",
        type=click.Choice(["refuse", "wait"]),
        default="refuse",
        metavar="refuse|wait",
        help="If too much waits already: exit 6, or wait until there is room.",
    ),
    click.option("--dry-run", is_flag=True, help="Say what would become of it, and send nothing."),
)
AS = click.option(
    "--as",
    "as_",
    metavar="KIND",
    type=click.Choice(["user", "schedule", "agent", "job", "hook", "plugin", "system"]),
    help="Whose words these are, if less than yours.",
)
TIED = click.option("--tied", is_flag=True, help="Abort it if this command ends before it does.")
ENDS = (
    click.option("--wait", is_flag=True, help="Wait for the end and print the answer."),
    click.option("--follow", is_flag=True, help="The same, with progress on standard error."),
    click.option("--stay", is_flag=True, help="Wait on, also where only a person can move it."),
    TIED,
)
WHEN = (
    click.option("--if-idle", is_flag=True, help="Only if nothing runs; else exit 5."),
    click.option("--if-empty", is_flag=True, help="Only if nothing is queued; else exit 5."),
    click.option("--if-turn", type=NUMBER, metavar="N", help="Only while turn N runs; else exit 5."),
    click.option("--first", is_flag=True, help="To the head of its queue."),
    click.option("--no-wake", is_flag=True, help="Queue it and wake nobody."),
)

DIRECTORY = click.option("-C", "directory", metavar="DIR", help="As if started in DIR.")
# Options of everything that may make a session: {option: how SETTINGS reads it}.
SETTINGS = (
    click.option("--name", metavar="NAME", help="The session's name."),
    DIRECTORY,
    click.option("--model", metavar="ROUTE", help="The model; see dshctl models."),
    click.option("--mode", metavar="MODE", help="read-only, workspace or full."),
    click.option("--net", metavar="on|off", help="Whether commands may use the network."),
    click.option("--ask", metavar="wait|deny", help="What to do where a person is asked."),
    click.option(
        "--env",
        "env",
        multiple=True,
        metavar="NAME",
        help="Give the session this variable (NAME or NAME=VALUE).",
    ),
    click.option("--patience", metavar="D", help="How long to wait for a provider; 0: no retry at all."),
    click.option("--max-cost", metavar="MONEY", help="What a turn may cost (2 or 0.50); 0 is no limit."),
    click.option("--max-steps", metavar="N", help="How many steps a turn may take."),
    click.option("--max-time", metavar="D", help="How long a turn may work."),
    click.option("--max-tokens", metavar="N", help="How many tokens a turn may use (100k, 2M)."),
)
BUDGETS = ("max_cost", "max_steps", "max_time", "max_tokens")


def together(*groups: Any) -> Callable[[Any], Any]:
    """Several options as one decorator, in the order in which the help shows them."""
    flat = [option for group in groups for option in (group if isinstance(group, tuple) else (group,))]

    def wrap(function: Any) -> Any:
        for option in reversed(flat):
            function = option(function)
        return function

    return wrap


SPOOL = click.option(
    "--spool", is_flag=True, help="If no daemon can be reached: keep it on disk for the next one."
)
SEND = together(WORDS, SESSION, *ATTACH, *WHEN, *LATER, KEY, RETRY, TAG, *FLAGS, SPOOL, AS, *ENDS)
