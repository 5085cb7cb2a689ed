"""What a session spent, call by call, read from its log: for who asks for days that the fold has let go of.

Counted are the events that the fold counts (`fold.counting`): answers, and attempts that gave none. In a
fork's log what stands before `session/forked` is the parent's, and counts there. Reads the whole log, in
bounded memory; only lines that may matter are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dshd.log.codec import BadLine, decode
from dshd.log.disk import Disk
from dshd.log.reader import read_lines
from dshd.session.shown.usage import Spent

_HEAD: Final = re.compile(
    rb'\{"seq":\d+,"time":\d+,"type":"(assistant/message|step/end|llm/retry|request/context|session/forked)"'
)
_USAGE: Final = b'"usage":{'
_ALWAYS: Final = (b"request/context", b"session/forked")


def spent(disk: Disk, path: Path, since: int = 0) -> list[Spent]:
    """What was spent from ``since`` (Unix ms) on. Blocks."""
    found: list[Spent] = []
    route = "?"
    for type, time, data in _events(disk, path):
        if type == "session/forked":
            found.clear()
        elif type == "request/context":
            route = str(data.get("route") or "?")
        elif data.get("usage") and time >= since:
            found.append(Spent(time, str(data.get("model") or route), data["usage"]))
    return found


def _events(disk: Disk, path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for _offset, line in read_lines(disk, path):
        head = _HEAD.match(line)
        if head is None or not (head[1] in _ALWAYS or _USAGE in line):
            continue
        try:
            event = decode(line)
        except BadLine:  # a damaged line is of no use, and the others count
            continue
        yield event.type, event.time, event.data
