"""``fsck --requests``: what was sent to models, made again from the log alone and compared (G9).

At each `request/sent` the fold of the log up to that line has all that the request was made of: the
surface, the `request/header` and the `request/context` in force. From these the same code that drives a
turn derives the history and encodes it; the bytes must have the length and the SHA-256 that were logged.

- One that asked for a summary (`driver.compacting`) was made of the first messages of the surface, and of
  an instruction that stands with it.
- Bytes of another encoder (an older version's, or an adapter that is no more) can't be made again.
- A gap may have held a part of what was sent. So what was sent between a gap and its repair can't be
  compared either; what was sent after the repair was made from the repaired log, and can.

Reads line by line and keeps what the daemon would: the fold, and the history with what was encoded of it
already, so that a long log costs no more than driving it did. Blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dshd.driver.history import History
from dshd.log import recovery
from dshd.log.codec import Event
from dshd.log.disk import Disk
from dshd.model.errors import ModelError
from dshd.model.request import ModelRequest, ToolSpec
from dshd.prompt.compaction import asking
from dshd.session.disk.opening import Folder
from dshd.session.fold.events import KNOWN_TYPES
from dshd.session.fold.state import State

Rebuild = Callable[[Mapping[str, Any], str, ModelRequest], bytes | None]


@attrs.define
class Requests:
    """How many requests were ``compared``, how many of these are ``different`` (``first``: the seq of the
    first of them), and how many are ``not_comparable``."""

    compared: int = 0
    different: int = 0
    first: int | None = None
    not_comparable: int = 0

    def note(self, seq: int, same: bool | None) -> None:
        """One more; None: it can't be compared."""
        if same is None:
            self.not_comparable += 1
            return
        self.compared += 1
        if not same:
            self.different += 1
            self.first = seq if self.first is None else self.first

    @property
    def problem(self) -> str | None:
        """In a sentence, what is wrong."""
        if not self.different:
            return None
        return (f"the request at seq {self.first} is not what the log makes of it"
                f" ({self.different} of {self.compared} differ)")  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return attrs.asdict(self)


def add(report: Mapping[str, Any], found: Requests) -> dict[str, Any]:
    """A report of `fsck` with what was found; another problem goes first."""
    more = {**report, "requests": found.to_json()}
    if report["problem"] is not None or found.problem is None:
        return more
    hint = f"dshctl log -o json -s {report['name']}"
    return {**more, "ok": False, "problem": found.problem, "hint": hint, "exit": 7}


def check(disk: Disk, path: Path, rebuild: Rebuild, *, until: int | None = None) -> Requests:
    """Compare every request in a log, up to the seq ``until``; see `Models.rebuild` for ``rebuild``.

    Raises a `DshError` if the file can't be read. Nothing is changed.
    """
    comparing = Comparing(rebuild)

    def take(event: Event) -> None:
        if until is None or event.seq <= until:
            comparing.take(event)

    recovery.read_log(disk, path, KNOWN_TYPES, each=take)
    return comparing.found


class Comparing:
    """Takes a log's events in order; ``found`` is what they amount to so far."""

    def __init__(self, rebuild: Rebuild) -> None:
        self.found = Requests()
        self._rebuild = rebuild
        self._folder = Folder()
        self._history = History()
        self._gap = False

    def take(self, event: Event) -> None:
        self._folder.take(event)
        if event.type in ("log/gap", "log/repaired"):
            self._gap = event.type == "log/gap"
        elif event.type == "request/sent":
            self.found.note(event.seq, self._same(event.data))

    def _same(self, sent: Mapping[str, Any]) -> bool | None:
        if self._gap or self._folder.nonsense is not None:
            return None
        try:
            body = self._made_again(self._folder.state, sent)
        except (ModelError, KeyError, TypeError, ValueError, AttributeError):
            return False  # what is logged is nothing that could have been sent
        if body is None:
            return None
        return (len(body), self._history.memo.sha256(body)) == (sent["bytes"], sent["sha256"])

    def _made_again(self, state: State, sent: Mapping[str, Any]) -> bytes | None:
        header, context = state.request_header, state.request_context
        if header is None or context is None:
            raise KeyError("a request without its header or context")
        messages: Sequence[Any] = self._history.of(state.surface, context.get("attachments"))
        if sent.get("compaction") is not None:
            messages = [*messages[: sent["messages"]], asking(sent["instruction"])]
        request = ModelRequest(
            system=header["system"],
            messages=messages,
            tools=tuple(ToolSpec(**tool) for tool in header["tools"]),
            max_tokens=header["settings"]["max_tokens"],
            memo=self._history.memo,
        )
        return self._rebuild(context, sent["encoder"], request)
