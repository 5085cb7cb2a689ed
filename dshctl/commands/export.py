"""`dshctl export`: a session as one file."""

from __future__ import annotations

import base64
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import click

from dshctl import broken
from dshctl.base import SESSION, Cli, Mistake, command, one_session, session_argument
from dshctl.sentences import name_of, size
from dshd import wire

Json = dict[str, Any]
Write = Callable[[bytes], object]


@command(
    "export",
    short_help="A session as one file.",
    examples=["dshctl export -o api.tar api", "dshctl export api | ssh there dshctl import -"],
)
@session_argument()
@SESSION
@click.option("-o", "--output", "file", metavar="FILE", help="Write it there instead of to standard output.")
def COMMAND(cli: Cli, which: str | None, session: str | None, file: str | None) -> None:
    """Write a session, as it is at this instant, as one tar: its log and its attachments, without its
    environment and keys. Works without a daemon, and with a damaged session."""
    ref = one_session(session, which)
    if file is None and cli.out.out.tty:
        raise Mistake("a tar on a terminal helps nobody", "dshctl export -o FILE")
    if file is None and cli.json:
        raise Mistake("with --json standard output is taken", "dshctl export --json -o FILE")
    pieces = Pieces(_source(cli, wire.ExportParams(**cli.where(ref))))
    first = next(pieces, b"")  # whatever is wrong shows before anything is written
    if file is None:
        cli.out.out.data(first)
        for piece in pieces:
            cli.out.out.data(piece)
    else:
        write_file(file, first, pieces)
    done = pieces.answer
    cli.out.item({"type": "exported", **done, "file": file and os.path.abspath(file)})
    broken.of_log(cli.out, done["session"], done["damage"])
    cli.out.tell(f"{name_of(done)}: exported, {size(done['bytes'])}.")


class Pieces:
    """The file's bytes; ``answer`` is there at their end."""

    def __init__(self, source: Iterator[bytes | Json]) -> None:
        self._source = source
        self.answer: Json = {}

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> bytes:
        piece = next(self._source)
        if isinstance(piece, bytes):
            return piece
        self.answer = piece
        raise StopIteration


def _source(cli: Cli, params: wire.ExportParams) -> Iterator[bytes | Json]:
    """From the daemon if one runs, else from the files; the answer comes last."""
    client = cli.client()
    if not client.is_running():
        from dshctl import offline

        yield from offline.export(cli, params)
        return
    for method, got in client.stream(params, start=False):
        if method == "export.piece":
            yield base64.b64decode(got["data"])
        elif not method:
            yield got


def write_file(path: str, first: bytes, rest: Iterator[bytes]) -> None:
    """The whole file or none: it gets its name when all of it is on disk. What is no regular file (a
    device, a pipe) is written to as it is."""
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as special:
            _write(special.write, first, rest)
        return
    target = os.path.realpath(path)
    descriptor, temporary = tempfile.mkstemp(prefix=".dshctl-export-", dir=os.path.dirname(target))
    try:
        with open(descriptor, "wb") as file:
            _write(file.write, first, rest)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _write(write: Write, first: bytes, rest: Iterator[bytes]) -> None:
    write(first)
    for piece in rest:
        write(piece)
