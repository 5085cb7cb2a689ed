"""One call, as the daemon sees it: a supervisor that waits, and the socket to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any

import trio

from dshd.spawn import kernel, tree
from dshd.spawn.protocol import Decoder, Frame, encode


class SpawnFailed(Exception):
    """A command could not be started, or the process that watched it was lost. ``str()`` is a sentence,
    ``survivors`` are pids that could not be ended."""

    def __init__(self, message: str, survivors: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.survivors = list(survivors)


class SpawnerLost(SpawnFailed):
    """A supervisor or the spawner died under a call. ``started``: its command had been; if not, the call
    may simply be made again. ``told``: somebody who ended what was left has said so; if not, we must."""

    def __init__(
        self, message: str, survivors: Sequence[int] = (), *, started: bool, told: bool = True
    ) -> None:
        super().__init__(message, survivors)
        self.started = started
        self.told = told


class Call:
    """Owns the socket (close it with `close`). ``pid`` is the supervisor's, ``spawner`` its parent's. When
    one call is over, it may `begin` another if the last frame said so."""

    def __init__(self, pid: int, sock: socket.socket, spawner: int) -> None:
        self.pid = pid
        self.spawner = spawner
        self._sock = sock
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self._sent = False
        self._started = False

    @property
    def is_over(self) -> bool:
        """Has a supervisor that was not given anything to do ended all the same?"""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    @property
    def started(self) -> bool:
        """Has its supervisor said that it starts the command?"""
        return self._started

    async def begin(self, frame: bytes) -> None:
        """Send the request, and wait until its supervisor is about to start the command."""
        self._sent = self._started = False
        with contextlib.suppress(trio.BrokenResourceError):  # the reason is in what can be read
            await self._stream.send_all(frame)
        self._sent = True
        message, _ = await self._receive()
        if message.get("lost"):
            raise SpawnerLost(message["failed"], started=False)
        if "supervisor" not in message:
            raise SpawnFailed(message["failed"])
        self._started = True

    async def end(self) -> Frame:
        """The last frame."""
        return await self._receive()

    def say(self, message: dict[str, Any]) -> None:
        """Tell the supervisor something while the command runs: a few bytes, for which there is room. One
        that is gone needs no telling."""
        with contextlib.suppress(OSError):
            self._sock.send(encode(message), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    async def stop(self) -> Frame | None:
        """Tell the supervisor to stop, and wait for its last frame; None if there won't be any. (An empty
        one with half a request sent: nothing has been started, and nothing will be.)"""
        if not self._sent:
            return {}, []
        with contextlib.suppress(trio.BrokenResourceError, SpawnFailed):
            await self._stream.send_all(encode({"stop": True}))
            while True:
                frame = await self._receive()
                if "supervisor" not in frame[0]:
                    return frame
        return None

    def rouse(self) -> None:
        """SIGCONT to supervisor and spawner, in case somebody has stopped them."""
        self._signal([self.spawner, self.pid], signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to a supervisor that doesn't answer; the spawner ends what it leaves and sends the last
        frame."""
        self._signal([self.pid], signal.SIGKILL)

    def _signal(self, pids: Sequence[int], signum: int) -> None:
        """Not to another process that has got the number meanwhile: that would not be below us."""
        kernel.send([pid for pid in pids if os.getpid() in tree.ancestors(pid)], signum)

    def close(self) -> None:
        """What still runs is ended by its supervisor."""
        self._sock.close()

    async def _receive(self) -> Frame:
        while not self._frames:
            data = b""
            with contextlib.suppress(trio.BrokenResourceError):
                data = await self._stream.receive_some()
            if not data:
                sentence = "the process that watches over tools died"
                raise SpawnerLost(sentence, started=self._started, told=False)
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)


def survivors_of(reply: Frame | None) -> list[int]:
    """The pids in a last frame that could not be ended."""
    if reply is None:
        return []
    message = reply[0]
    pids: list[int] = message.get("done", message).get("survivors", [])
    return pids
