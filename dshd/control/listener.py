"""The socket: where it is made, what stands in its way, who is let in.

Whoever holds the state lock may replace a stale socket, and nobody else is ever asked to: so this is
called with the lock held. What is in the way decides:

| at the path                    | then                        |
|--------------------------------|-----------------------------|
| nothing                        | bound                       |
| a socket that refuses          | replaced                    |
| a socket that somebody answers | refused: a live one is never taken away |
| a file, a directory, a link    | refused, and left as it is  |

The new one is bound under a name of its own beside it, listens, and is then renamed into place, so that a
client finds the old one, or the new one that listens, and nothing between. Its mode is 0600 before it has
a name (``fchmod`` before ``bind``: no umask is in the game), its directory 0700. The directory is held by
a descriptor, through which any length of path can be reached.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator
from typing import Final

import trio

from dshd.control.access import admits, peer_of
from dshd.control.calls import Room
from dshd.control.connection import Connection
from dshd.control.stream import Socket
from dshd.errors import AlreadyRunning, Conflict, DshError
from dshd.log.disk import explain
from dshd.paths import connect, peer_credentials

log = logging.getLogger(__name__)

BACKLOG: Final = 1024  # connects that wait to be accepted; the kernel has its own limit
OURS: Final = 0.5  # of the descriptors we may have, the part that clients may take
EXTRA: Final = 16  # clients beyond, who may ask about the daemon itself
FIRST_REST: Final = 0.05  # s without accepting, when there are no descriptors left; doubling
LAST_REST: Final = 1.0
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def bind(path: str, own_directory: bool) -> socket.socket:
    """A listening socket at ``path``; the state lock must be held. ``own_directory``: it is dshd's alone.

    Raises `Conflict` for what must not be replaced, and what making it raised.
    """
    directory, name = os.path.split(path)
    try:
        _make_directory(directory, own_directory)
        with _held(directory) as held:
            _clear(path, name, held)
            return _bound(name, held)
    except OSError as error:
        raise explain(error, "listen at", path) from error


def _make_directory(directory: str, own: bool) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if own and stat.S_IMODE(os.stat(directory).st_mode) & 0o077:
        os.chmod(directory, 0o700)


@contextlib.contextmanager
def _held(directory: str) -> Iterator[int]:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _clear(path: str, name: str, held: int) -> None:
    try:
        mode = os.stat(name, dir_fd=held, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Conflict(f"{path} is in the way: it is {_what(mode)}, not a socket.", hint=f"ls -l {path}")
    if _answers(path):
        raise AlreadyRunning(f"somebody listens at {path} already.", hint="dshctl daemon status")


def _what(mode: int) -> str:
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "something else")


def _answers(path: str) -> bool:
    try:
        connect(path, 1.0).close()
    except ConnectionRefusedError:
        return False
    except (OSError, DshError):
        return True  # full, slow, or not ours: alive for all we know
    return True


def _bound(name: str, held: int) -> socket.socket:
    temporary = f".{os.getpid()}.sock"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(sock.fileno(), 0o600)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=held)
        sock.bind(f"/proc/self/fd/{held}/{temporary}")
        sock.listen(BACKLOG)
        os.rename(temporary, name, src_dir_fd=held, dst_dir_fd=held)
    except BaseException:
        sock.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=held)
        raise
    return sock


def inherited(descriptor: int) -> socket.socket:
    """A listening socket that systemd holds for us. Raises `Conflict` if it is none."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM or not listens:
        sock.close()
        raise Conflict(f"descriptor {descriptor} is not a listening Unix stream socket")
    return sock


def remove(path: str, made: os.stat_result) -> None:
    """Take the name away, if it is still that of the socket that was made there. Never a reason to fail."""
    with contextlib.suppress(OSError):
        found = os.stat(path, follow_symlinks=False)
        if os.path.samestat(found, made):
            os.unlink(path)


def link(path: str, target: str) -> None:
    """Leave a symbolic link to the socket where clients look last. Never a reason to fail."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(target, temporary)
        os.rename(temporary, path)
    except OSError as error:
        log.warning("no link to the socket at %s: %s", path, os.strerror(error.errno or 0))


def places() -> int:
    """How many clients there may be at once, given the descriptors that we may have."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, int((4096 if soft == resource.RLIM_INFINITY else soft) * OURS) - EXTRA)


class Listener:
    """Accepts clients on one socket. ``tool_of(pid)``: the session whose tool a process is below, or None.

    A lack of descriptors is waited out, with a rest that grows and one line in the log.
    """

    def __init__(
        self,
        sock: socket.socket,
        room: Room,
        writes: trio.Nursery,
        tool_of: Callable[[int], str | None],
        *,
        most: int | None = None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._room = room
        self._writes = writes
        self._tool_of = tool_of
        self._most = places() if most is None else most
        self._rest = 0.0
        self._left = trio.Event()
        self._nursery: trio.Nursery
        self.clients = 0

    async def run(self) -> None:
        """Accept until cancelled; then all connections have been closed."""
        async with trio.open_nursery() as self._nursery:
            while True:
                while self.clients >= self._most + EXTRA:
                    await self._left.wait()
                if not await self._somebody_comes():
                    continue
                client = self._accept()
                if client is not None:
                    self._admit(client, self._nursery)
                elif self._rest:
                    await trio.sleep(self._rest)

    async def _somebody_comes(self) -> bool:
        """False: the socket was closed, and another one stands in its place."""
        sock = self._sock
        try:
            await trio.lowlevel.wait_readable(sock)
        except trio.ClosedResourceError:
            if sock is self._sock:
                raise
            return False
        return True

    def move(self, sock: socket.socket) -> None:
        """Accept at this one from now on, and close the other. Who has connected there is let in; so are
        clients as before."""
        while (client := self._accept()) is not None:
            self._admit(client, self._nursery)
        old, self._sock = self._sock, sock
        sock.setblocking(False)
        trio.lowlevel.notify_closing(old)
        old.close()

    def _accept(self) -> socket.socket | None:
        try:
            client, _address = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._slow_down(error)
            return None
        self._rest = 0.0
        return client

    def _slow_down(self, error: OSError) -> None:
        if not self._rest:
            log.warning("no client can be accepted now: %s", os.strerror(error.errno or 0))
        self._rest = min(LAST_REST, self._rest * 2 or FIRST_REST)

    def _admit(self, client: socket.socket, nursery: trio.Nursery) -> None:
        credentials = peer_credentials(client)
        if not admits(credentials, os.getuid()):
            log.warning("user %d was turned away (process %d)", credentials.uid, credentials.pid)
            client.close()
            return
        peer = peer_of(credentials, self._tool_of(credentials.pid))
        brief = self.clients >= self._most
        self.clients += 1
        connection = Connection(Socket(client), self._room, peer, self._writes, brief=brief)
        nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve()
        except Exception:
            log.exception("a connection failed")
        finally:
            self.clients -= 1
            self._left.set()
            self._left = trio.Event()
