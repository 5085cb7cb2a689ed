"""Writing down what streams, as fast as the log takes it.

Chunks that come while a write is on its way share the next line: one proposal is in the queue at
a time, and it takes what has gathered when it is decided. So a slow model's words are told at
once, and a fast one's cost a line per write, not per word.
"""

from __future__ import annotations

from typing import Any, Final

from dshd.driver.port import Owner
from dshd.model.chunks import Chunk, chunk_to_json
from dshd.session.scratch import Scratch

MOST_GATHERED: Final = 4096  # chunks; beyond that the stream waits for the disk


class ChunkLog:
    """One attempt's. `add` is the adapter's ``emit`` for the log's side."""

    def __init__(self, owner: Owner, turn: int, step: int, attempt: int) -> None:
        self._owner = owner
        self._where = {"turn": turn, "step": step, "attempt": attempt}
        self._gathered: list[dict[str, Any]] = []
        self._posted: Any = None

    async def add(self, chunk: Chunk) -> None:
        """Note a chunk; waits only when too many have gathered.

        Raises `DshError` when the log refused an earlier one. *Cancellation*: what was noted is
        written all the same. *Durability*: a *soon* event.
        """
        self._gathered.append(chunk_to_json(chunk))
        posted = self._posted
        if posted is None or posted.done.is_set():
            if posted is not None and posted.error is not None:
                raise posted.error
            self._posted = self._owner.post(self._write)
        elif len(self._gathered) >= MOST_GATHERED:
            await posted.done.wait()

    def _write(self, s: Scratch) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered and s.state.turn is not None and s.state.turn.step_open:
            s.emit("assistant/chunk", {**self._where, "chunks": gathered})

