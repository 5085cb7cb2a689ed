"""`dshctl import`: a session out of a file."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import click

from dshctl import settling
from dshctl.base import Cli, Mistake, command
from dshctl.sentences import count, name_of
from dshctl.text import shown_path
from dshd import wire
from dshd.errors import DshError, Invalid, NotFound

Json = dict[str, Any]
PIECE: Final = wire.MAX_PIECE // 4 * 3  # bytes, so that base64 of it is a piece


@command(
    "import",
    short_help="A session out of an export.",
    examples=["dshctl import api.tar", "dshctl export api | dshctl import --as-new -"],
)
@click.argument("file", metavar="FILE|-")
@click.option("--as-new", is_flag=True, help="Under a new id; needed where there is one of its id.")
@click.option("--repair", is_flag=True, help="Also if its log is damaged: what can't be read is left out.")
def COMMAND(cli: Cli, file: str, as_new: bool, repair: bool) -> None:
    """Take a session out of a file that dshctl export wrote, and say its id. It is parked: nothing of it
    runs before dshctl wake, or before you say something to it."""
    env = settling.environment(cli.out.environ, ())
    try:
        with _opened(file) as source:
            upload = _put(cli, source)
        params = wire.ImportParams(upload=upload, as_new=as_new, repair=repair, env=env)
        made: Json = cli.ask(params, repeat=False)
    except DshError as error:
        if "export -o FILE" not in error.hint and file != "-":
            error.hint = error.hint.replace("FILE", file)
        raise
    cli.out.item({"type": "imported", **made})
    for line in warnings(made):
        cli.out.say(f"dshctl: {line}")
    cli.out.tell(sentence(made))
    if not cli.out.quiet:
        cli.out.line(str(made["session"]))


def _opened(file: str) -> BinaryIO:
    if file != "-":
        try:
            return open(file, "rb")
        except FileNotFoundError:
            raise NotFound(f"not imported: {shown_path(file)}: no such file", outcome="not-written") from None
    if sys.stdin is None or sys.stdin.isatty():
        raise Mistake("standard input is a terminal, not a file", "dshctl import FILE")
    return sys.stdin.buffer


def _put(cli: Cli, source: BinaryIO) -> str:
    """Give the file to the daemon, piece by piece; what it is called there."""
    upload = None
    for piece in _pieces(source):
        if upload is None:
            _check(piece)
        data = base64.b64encode(piece).decode()
        upload = cli.ask(wire.AttachmentPutParams(upload=upload, data=data), repeat=False)["upload"]
    if upload is None:
        raise Invalid("not imported: the file is empty", hint="dshctl export -o FILE SESSION")
    return str(upload)


def _check(first: bytes) -> None:
    """What is no export at all is refused before all of it has been handed over."""
    from dshd.session.porting import packing, tar

    try:
        if tar.Reader().member(first[: tar.BLOCK]) is None:
            raise tar.Wrong("it is empty")
    except tar.Wrong as wrong:
        raise packing.refused(wrong) from None


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    while piece := source.read(PIECE):
        yield piece


def sentence(made: Json) -> str:
    """``api: imported, parked with 3 messages; turn 12 was cut off.   go on: dshctl wake -s api``"""
    name = name_of(made)
    state = "closed" if made["closed"] else "parked" if made["pending"] else "idle"
    waits = f" with {count(made['pending'], 'message')}" if made["pending"] else ""
    cut = f"; turn {made['turn']} was cut off" if made["turn"] else ""
    go_on = f"dshctl wake -s {name}" if made["pending"] else f"dshctl followup -s {name} 'TEXT'"
    return f"{name}: imported, {state}{waits}{cut}.   go on: {go_on}"


def warnings(made: Json) -> Iterator[str]:
    """What is another than it was."""
    name = name_of(made)
    if made["name"] != made["original_name"] and made["original_name"] != made["original"]:
        yield f'the name "{made["original_name"]}" is taken here, so it is called {name}.'
    if not made["dir_exists"]:
        yield f"its directory {made['dir']} does not exist here: dshctl set -s {name} dir=DIR"
    if made["repaired"]:
        yield f"its log was damaged; what could not be read is left out: dshctl log -s {name}"
    if made["lost"]:
        yield f"{count(made['lost'], 'attachment')} in it could not be read, and did not come along."
    if made["mode"] == "full":
        yield f"it may do everything you may: dshctl set -s {name} mode=workspace"
