"""Where clients find the daemon: the name of its socket is made, looked after, and taken away at the end.

A name in a directory can be removed under a daemon that listens (``rm -r run``); then nobody reaches it, and
its state lock lets no other one start. So it is looked at every `LOOK_S`, and on SIGHUP:

| at the path                      | then                                                                 |
|----------------------------------|----------------------------------------------------------------------|
| the socket that we made          | nothing                                                              |
| nothing, or a socket that is dead| bound again, its directory too if it is gone; the old one is closed  |
| a live socket, a file, a link    | somebody else's: left as it is, and logged once; looked at again     |

The rules of binding are those of `listener`. A socket that systemd holds is systemd's to look after.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio

from dshd.control import listener
from dshd.errors import DshError
from dshd.paths import Places

log = logging.getLogger(__name__)

LOOK_S: Final = 3.0  # between looks; a client that finds the lock held and no socket waits for longer


class Address:
    """The daemon's own socket, bound from construction to `close`; the state lock must be held. ``ours``
    says whether it still is: whoever lost the state leaves the name to who holds it now.

    Raises what `listener.bind` raises.
    """

    def __init__(self, places: Places, ours: Callable[[], bool] = lambda: True) -> None:
        self._ours = ours
        self.path = places.socket
        self._link = places.socket_link if places.socket_link != self.path else None
        chosen = len(places.sockets) == 1 and self._link is not None  # by the user, wherever that is
        self._own_directory = not chosen
        self._told = ""
        self.sock = self._bind()

    def _bind(self) -> socket.socket:
        sock = listener.bind(self.path, own_directory=self._own_directory)
        self._made = os.stat(self.path, follow_symlinks=False)
        return self._linked(sock)

    def _linked(self, sock: socket.socket) -> socket.socket:
        if self._link is not None:
            listener.link(self._link, self.path)
        return sock

    def look(self) -> socket.socket | None:
        """The socket that stands at the path from now on, if ours was not there any more. Blocks."""
        if self._stands():
            self._told = ""
            if self._link is not None and not os.path.lexists(self._link):
                listener.link(self._link, self.path)
            return None
        if not self._ours():
            return None
        try:
            self.sock = self._bind()
        except DshError as error:
            self._tell(f"clients can't reach this daemon, for its socket is gone: {error.message}")
            return None
        self._tell(f"{self.path} was removed or replaced, and is made again")
        return self.sock

    def _stands(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), self._made)
        except OSError:
            return False

    def _tell(self, what: str) -> None:
        if what != self._told:
            log.warning("%s", what)
        self._told = what

    def close(self) -> None:
        """Take the name away, if it is still ours."""
        self.sock.close()
        listener.remove(self.path, self._made)


class Lookout:
    """Looks after an `Address` as long as the daemon lives; ``moved`` is given each new socket."""

    def __init__(self, address: Address, moved: Callable[[socket.socket], Awaitable[None]]) -> None:
        self._address = address
        self._moved = moved
        self._asked = trio.Event()

    def look_now(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with trio.move_on_after(LOOK_S):
                await self._asked.wait()
            self._asked = trio.Event()
            found = await trio.to_thread.run_sync(self._address.look)
            if found is not None:
                await self._moved(found)


@contextlib.contextmanager
def inherited(places: Places, descriptor: int) -> Iterator[socket.socket]:
    """The manager's: its name stays when we go, and starts us again."""
    sock = listener.inherited(descriptor)
    listener.link(places.socket_link, str(sock.getsockname()))
    try:
        yield sock
    finally:
        sock.close()
