"""The spawner: a small single-threaded process that forks supervisors, and does nothing else.

It is forked from ``__main__`` before Trio starts, because a parent-death signal belongs to the *thread*
that forked: what a worker thread starts dies when that thread idles out. It is the subreaper of its
supervisors, so when one of them is killed, what was below it arrives here and is ended here. It ends
when the daemon's end of its socket closes or the daemon dies, and then stays until its supervisors,
which see the same, have ended their trees.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from dshd.spawn import kernel, supervisor
from dshd.spawn.protocol import encode, receive_socket

POLL_PARENT_MS = 1000  # for a spawner that no parent-death signal reaches
STRAY_LIMIT = 2.0  # s to end what a killed supervisor left
LAST_LIMIT = 6.0  # s to wait for supervisors when the daemon is gone; longer than a call takes to end


def run(sock: socket.socket, parent: int, *, signalled: bool) -> NoReturn:
    """The spawner's whole life. ``signalled``: we are a fork of the daemon's main thread, so that a
    parent-death signal is right; else the parent is watched."""
    code = 1
    try:
        gc.disable()
        settle(sock)
        Server(sock, parent, signalled).serve()
        code = 0
    except Exception:
        with contextlib.suppress(OSError):
            sock.sendall(traceback.format_exc()[-4000:].encode())
    finally:
        os._exit(code)


def settle(sock: socket.socket) -> None:
    """Leave what we were forked from: its session, its descriptors, its terminal, its directory."""
    with contextlib.suppress(PermissionError):  # already a leader
        os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    keep = sock.fileno()
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
    kernel.rename("dshd-spawn")
    kernel.guard_memory()
    kernel.become_subreaper()


Spare = tuple[int, socket.socket]  # a supervisor without a call yet: its pid, and where to send one


class Server:
    def __init__(self, sock: socket.socket, parent: int, signalled: bool) -> None:
        self.sock = sock
        self.parent = parent
        self.poll_ms = None if signalled else POLL_PARENT_MS
        self.calls: dict[int, socket.socket] = {}  # supervisor's pid -> its call's socket
        self.spare: Spare | None = None
        self.wake = supervisor.wake_on_signals(supervisor.ORPHANED)
        self.orphaned = not kernel.die_with(parent, supervisor.ORPHANED) if signalled else False

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.sock, select.POLLIN)
        self.spare = self._fork()
        while not self.orphaned:
            ready = {fd for fd, _ in poll.poll(self.poll_ms)}
            if self.wake in ready:
                self._woken()
            if self.sock.fileno() in ready:
                self._receive()
            self.orphaned |= os.getppid() != self.parent
        self._last()

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        self._reap()

    def _receive(self) -> None:
        call = receive_socket(self.sock)
        if call is None:
            self.orphaned = True
        else:
            self._assign(call)

    def _assign(self, call: socket.socket) -> None:
        """Give a call to the spare supervisor; then have a new spare."""
        try:
            pid = self._hand_over(call)
        except OSError as error:
            fail(call, f"no process can be started: {os.strerror(error.errno or 0)}")
            return
        self.calls[pid] = call
        with contextlib.suppress(OSError):  # then the next call tries again
            self.spare = self._fork()

    def _hand_over(self, call: socket.socket) -> int:
        """The pid of the supervisor that has the call now. A spare that was killed is passed over."""
        for spare in (self.spare, None):
            pid, channel = spare or self._fork()
            self.spare = None
            with channel, contextlib.suppress(BrokenPipeError):
                socket.send_fds(channel, [b"c"], [call.fileno()])
                return pid
        raise OSError(errno.EAGAIN, "")

    def _fork(self) -> Spare:
        ours, theirs = socket.socketpair()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_supervisor(theirs, me)
        theirs.close()
        return pid, ours

    def _become_supervisor(self, channel: socket.socket, spawner: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            os.closerange(3, channel.fileno())
            os.closerange(channel.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
            supervisor.main(channel, spawner)
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> None:
        ended, _ = kernel.reap()
        for pid, status in ended.items():
            if self.spare is not None and pid == self.spare[0]:
                self.spare[1].close()
                self.spare = None
            if (call := self.calls.pop(pid, None)) is not None:
                self._ended(call, status)

    def _ended(self, call: socket.socket, status: int) -> None:
        """Only a supervisor that was killed leaves anything; its call is answered when that is gone."""
        if status == 0:
            call.close()
            return
        survivors = self._end_strays()
        fail(call, "the call's supervisor was killed; what it ran was ended", survivors, lost=True)

    def _end_strays(self) -> list[int]:
        limit = time.monotonic() + STRAY_LIMIT
        while strays := kernel.kill_below(os.getpid(), apart=self._own()):
            if time.monotonic() > limit:
                return sorted(strays)
            time.sleep(0.005)
            self._reap()
        return []

    def _own(self) -> set[int]:
        return {*self.calls, *([self.spare[0]] if self.spare else [])}

    def _last(self) -> None:
        """The daemon is gone or wants us gone. Supervisors may know that already; who hasn't ended its
        tree when the time is over is ended with it."""
        for call in self.calls.values():
            call.close()
        if self.spare is not None:
            self.spare[1].close()
        kernel.send(self.calls, supervisor.ORPHANED)
        began = time.monotonic()
        while (waited := time.monotonic() - began) < LAST_LIMIT + STRAY_LIMIT:
            ended, left = kernel.reap()
            self.calls = {pid: call for pid, call in self.calls.items() if pid not in ended}
            if not left:
                return
            kernel.kill_below(os.getpid(), apart=self._own() if waited < LAST_LIMIT else ())
            time.sleep(0.02)


def fail(call: socket.socket, sentence: str, survivors: Sequence[int] = (), *, lost: bool = False) -> None:
    """The call's last frame, written in the supervisor's place; ``lost``: because it was killed."""
    with contextlib.suppress(OSError):
        call.setblocking(False)
        call.sendall(encode({"failed": sentence, "survivors": list(survivors), "lost": lost}))
    call.close()
