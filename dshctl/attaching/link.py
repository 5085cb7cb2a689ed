"""The connection to the daemon, for somebody who does other things meanwhile.

A daemon that went away is looked for in a thread (`follow.reconnect` decides whether another one is started),
for ever: who sits here can leave, and nobody else knows when it is enough. What there is to say about it is
kept in `notes`, for the screen has one writer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from dshctl.base import Cli
from dshctl.client import Client
from dshctl.connection import Connection, Lost
from dshctl.follow import reconnect
from dshctl.output import Out, words_of
from dshctl.streams import Stream
from dshd import wire
from dshd.errors import DshError

Json = dict[str, Any]
AGAIN_S: Final = 1.0  # between two looks for a daemon, where the first one found that none can be started


class _Notes(Stream):
    """Standard error of the part that reaches the daemon: kept, to be shown in its place."""

    def __init__(self) -> None:
        super().__init__(None, False)
        self.lines: deque[str] = deque()

    def write(self, text: str) -> None:
        self.lines.extend(text.removesuffix("\n").split("\n"))


class Link:
    """One connection after the other. ``ring`` is called, from a thread, when one is there again."""

    def __init__(self, cli: Cli, ring: Any) -> None:
        self._notes = _Notes()
        self._cli = cli
        self._reach = Cli(Out(cli.out.environ, out=self._notes, err=self._notes))
        self._reach.socket, self._reach.autostart = cli.socket, cli.autostart
        self._reach.out.quiet = cli.out.quiet
        self._ring = ring
        self.connection: Connection | None = None
        self._found: Connection | None = None
        self._looks: threading.Thread | None = None
        self._ended = False

    def begin(self, client: Client) -> Connection:
        """Take over the connection of a client that has found the daemon."""
        self._client = self._reach.client()
        self._client.mode = client.mode
        self.connection = client.connection()
        return self.connection

    def fileno(self) -> int | None:
        return None if self.connection is None else self.connection.sock.fileno()

    def lost(self) -> None:
        """The connection ended: look for the daemon."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self._looks is None and not self._ended:
            self._looks = threading.Thread(target=self._look, daemon=True)
            self._looks.start()

    def _look(self) -> None:
        said = ""
        while not self._ended:
            try:
                self._found = reconnect(self._client, self._cli.autostart)
                break
            except DshError as error:
                if error.message != said:
                    said = error.message
                    self._notes.write(words_of(error))
                    self._ring()
                time.sleep(AGAIN_S)
        self._ring()

    def found(self) -> Connection | None:
        """The daemon, if it was found since this was asked last."""
        if self._found is None:
            return None
        self.connection, self._found, self._looks = self._found, None, None
        return self.connection

    def notes(self) -> list[str]:
        """What there is to say."""
        lines = []
        while self._notes.lines:
            lines.append(self._notes.lines.popleft())
        return lines

    def send(self, params: wire.Params) -> int:
        """A request; its id. Raises `Lost`."""
        assert self.connection is not None
        try:
            return self.connection.send(params.method, params.to_json(), SEND_S)
        except TimeoutError:
            raise Lost("the daemon takes nothing") from None

    def come(self) -> Iterator[Json]:
        """What has come; waits for nothing. Raises `Lost` behind the last of it."""
        assert self.connection is not None
        return self.connection.come()

    def end(self) -> None:
        self._ended = True
        if self.connection is not None:
            self.connection.close()


SEND_S: Final = 30.0  # for a request to be taken by the kernel
