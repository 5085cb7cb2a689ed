"""The way of a command out of the call that began it: to another task, or out of the daemon's life.

Whoever calls `Spawner.run` may give a passage. While the command runs, it says so (``begun``, ``pid``). If
the call is cancelled and the passage is *open*, the command is not ended: it stands in the passage until
`Spawner.go_on` takes it from there. And through it a command can be *kept*: then it goes on by itself, and
the call ends with `Kept`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from dshd.spawn.call import Call
from dshd.spawn.protocol import Request


class Kept(Exception):
    """The command is nobody's call any more (`kept`). ``pid``: of its supervisor."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid


class Passage:
    """``is_open`` is asked when the call is cancelled: whether its command is to go on elsewhere."""

    def __init__(self, is_open: Callable[[], bool] = lambda: False) -> None:
        self.begun = trio.Event()
        self.pid: int | None = None
        self._is_open = is_open
        self._call: Call | None = None
        self._left: tuple[Call, Request, str] | None = None

    def open(self) -> bool:
        return self._is_open()

    @property
    def holds(self) -> bool:
        """Whether a command stands in it, and waits for somebody to go on with it."""
        return self._left is not None

    def keep(self, word: Path) -> None:
        """Ask for the command to be kept; how it ends will stand in ``word``. The call ends with `Kept`, or
        as it would have, if the command's end came first."""
        if self._call is not None:
            self._call.say({"keep": str(word)})

    # -- for `Spawner`

    def goes(self, call: Call) -> None:
        self._call, self.pid = call, call.pid
        self.begun.set()

    def take(self, call: Call, request: Request, label: str) -> None:
        self._left = (call, request, label)

    def taken(self) -> tuple[Call, Request, str]:
        assert self._left is not None, "nothing stands in it"
        left, self._left = self._left, None
        return left
