"""Writing down what streams, as fast as the log takes it.

Chunks that come while a write is on its way share the next line: one line at a time is *open*, and
it is closed when it is decided. So a slow model's words are told at once, and a fast one's cost a
line per write, not per word. A line that is decided anew, because its batch failed, is the same;
and none is written after one that was refused, so what the log has is a beginning of what streamed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.driver.port import Owner
from dshd.model.chunks import Chunk, chunk_to_json
from dshd.session.deciding.scratch import Scratch

MOST_GATHERED: Final = 4096  # chunks in a line; beyond that the stream waits for the disk


@attrs.define(eq=False)
class _Line:
    where: Mapping[str, int]
    before: _Line | None
    chunks: list[dict[str, Any]] = attrs.field(factory=list)
    closed: bool = False
    posted: Any = None

    def decide(self, s: Scratch) -> None:
        self.closed = True
        if self.before is not None and self.before.posted.error is not None:
            raise self.before.posted.error
        if s.state.turn is not None and s.state.turn.step_open:
            s.emit("assistant/chunk", {**self.where, "chunks": self.chunks})


class ChunkLog:
    """One attempt's. `add` is the adapter's ``emit`` for the log's side."""

    def __init__(self, owner: Owner, turn: int, step: int, attempt: int) -> None:
        self._owner = owner
        self._where = {"turn": turn, "step": step, "attempt": attempt}
        self._lines: deque[_Line] = deque()  # those that may still fail, the open one last

    async def add(self, chunk: Chunk) -> None:
        """Note a chunk; waits only when too many have gathered.

        Raises `DshError` when the log refused an earlier one. *Cancellation*: what was noted is
        written all the same. *Durability*: a *soon* event.
        """
        self._check()
        line = self._open()
        line.chunks.append(chunk_to_json(chunk))
        if line.posted is None:
            line.posted = self._owner.post(line.decide)
        if len(line.chunks) >= MOST_GATHERED:
            await line.posted.done.wait()

    def _open(self) -> _Line:
        if not self._lines or self._lines[-1].closed:
            self._lines.append(_Line(self._where, self._lines[-1] if self._lines else None))
        return self._lines[-1]

    def _check(self) -> None:
        while self._lines and self._lines[0].posted.settled:
            posted = self._lines.popleft().posted
            if posted.error is not None:
                raise posted.error
            if self._lines:
                self._lines[0].before = None
