"""What goes back to one client: at once if it takes it, else as it does.

`write` never waits: it gives the kernel what it takes, and the rest to the writing task (`run`), whose only
patience is `STALL_S` without a byte taken. So a stopped client delays nobody, neither a turn nor another
client.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

import trio

from dshd.control.encoding import Data
from dshd.control.feed import UNSENT
from dshd.control.life import Life
from dshd.control.stream import Side

log = logging.getLogger(__name__)

SMALL: Final = UNSENT // 2  # bytes; with less unsent there is room for more
TOGETHER: Final = 16 * 1024  # bytes; of shorter unsent pieces one is made, for each costs something, too
STALL_S: Final = 30.0  # without a byte taken, the client counts as gone


class Outbox:
    """``unsent`` are the pieces that the kernel has not taken yet, ``backlog`` their bytes. ``pid`` is the
    client's, for the log."""

    def __init__(self, sock: Side, life: Life, pid: int) -> None:
        self.unsent: deque[memoryview] = deque()
        self.backlog = 0
        self._sock = sock
        self._life = life
        self._pid = pid
        self._to_send = trio.Event()

    def write(self, data: Data) -> None:
        """Give these lines to the client: at once if it takes them, else as it does."""
        if self._life.state == "closed" or not data:
            return
        rest = memoryview(data)
        if not self.unsent:
            rest = rest[self._send_now(rest) :]
        if rest:
            self._keep(rest)
            self.backlog += len(rest)
            self._to_send.set()

    def _keep(self, rest: memoryview) -> None:
        if self.unsent and len(self.unsent[-1]) + len(rest) <= TOGETHER:
            rest = memoryview(b"".join((self.unsent.pop(), rest)))
        self.unsent.append(rest)

    def _send_now(self, data: memoryview) -> int:
        try:
            return self._sock.send_now(data)
        except OSError:
            self._life.lose()
            return len(data)

    async def run(self) -> None:
        """Send what `write` couldn't, as long as the client takes any."""
        while True:
            await self._to_send.wait()
            while self.unsent:
                with trio.move_on_after(STALL_S) as patience:
                    await self._sock.writable()
                if patience.cancelled_caught:
                    log.info("client %d took nothing for %g s", self._pid, STALL_S)
                    return self._life.lose()
                self._sent(self._send_now(self.unsent[0]))
            self._to_send = trio.Event()

    def _sent(self, count: int) -> None:
        first = self.unsent.popleft()
        if count < len(first):
            self.unsent.appendleft(first[count:])
        self.backlog -= count
        if self.backlog < SMALL:
            self._life.note()

    async def room(self) -> None:
        """Returns when little is unsent."""
        while self.backlog >= SMALL:
            await self._life.change()
