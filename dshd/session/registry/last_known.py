"""What is known of a session whose log can't be read, or has lost its header.

It was written down elsewhere, whatever became of the log since. It says whose session it is, and how it
looked; nothing is decided on it.

| source                         | knows it as it was                                       |
|--------------------------------|----------------------------------------------------------|
| ``view.json`` beside the log   | when it last left memory                                 |
| ``checkpoint.json``            | when that was written                                    |
| the index of all (``views``)   | when the daemon last stopped, or listed all              |
| the bytes of a damaged header  | at its beginning                                         |

A copy under another directory's name is nobody's: what its files say is said of the other. Blocking.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dshd.log.disk import PIECE, Disk
from dshd.log.repair import readable
from dshd.session.disk import checkpoint
from dshd.session.disk.checkpoint import Unfit
from dshd.session.fold.state import State
from dshd.session.registry import index
from dshd.session.shown import views

Json = dict[str, Any]


def last_known(disk: Disk, log: Path, noted: Json | None = None) -> Json | None:
    """Its view then, if there is any; ``noted``: the index's."""
    id = log.parent.name
    return next((view for view in _told(disk, log, noted) if view and view["id"] == id and view["dir"]), None)


def _told(disk: Disk, log: Path, noted: Json | None) -> Iterator[Json | None]:
    yield index.saved_beside(disk, log)
    yield _of_checkpoint(disk, log)
    yield noted
    yield _of_header(disk, log)


def _of_checkpoint(disk: Disk, log: Path) -> Json | None:
    try:
        state = checkpoint.peek(disk, log)
    except Unfit:
        return None
    known = State(header=state.header, settings=state.settings, title=state.title, time=state.time)
    return views.session(known)


def _of_header(disk: Disk, log: Path) -> Json | None:
    try:
        header = readable(disk.read_bytes(log, 0, PIECE).split(b"\n")[0])
    except OSError:
        return None
    return views.session(State(header=header, settings=header))
