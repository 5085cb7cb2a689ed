"""The spawner: a small single-threaded process that forks supervisors, and does nothing else.

It is forked from ``__main__`` before Trio starts, because a parent-death signal belongs to the *thread*
that forked: what a worker thread starts dies when that thread idles out. It is the subreaper of its
supervisors, so when one of them is killed, what was below it arrives here and is ended here. It ends
when the daemon's end of its socket closes or the daemon dies, and then stays until its supervisors,
which see the same, have ended their trees.

Each message of the daemon (`protocol.MORE`) is answered with one more supervisor that waits for a
request: its pid, and the daemon's end of its socket. The daemon asks ahead of time and talks to the
supervisor itself, so this process is not on a call's way.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from dshd.spawn import kept, kernel, supervisor, tree
from dshd.spawn.protocol import NO_PROCESS, encode, fate, send_supervisor

POLL_PARENT_MS = 1000  # for a spawner that no parent-death signal reaches
STRAY_LIMIT = 2.0  # s to end what a killed supervisor left
BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # ignored, and restored by subprocess
LAST_LIMIT = 6.0  # s to wait for supervisors when the daemon is gone; longer than a call takes to end


def run(sock: socket.socket, parent: int, *, signalled: bool) -> NoReturn:
    """The spawner's whole life. ``signalled``: we are a fork of the daemon's main thread, so that a
    parent-death signal is right; else the parent is watched."""
    code = 1
    try:
        gc.disable()  # here; supervisors live longer than they need memory for
        gc.freeze()
        settle(sock)
        server = Server(sock, parent, signalled)
        try:
            server.serve()
        finally:
            server.end()
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
    close_all_but(sock)
    kernel.rename("dshd-spawn")
    kernel.guard_memory()
    kernel.become_subreaper()
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN and number not in BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)  # or it would stay ignored in every tool


def close_all_but(sock: socket.socket) -> None:
    """Every descriptor but the standard ones and this."""
    os.closerange(3, sock.fileno())
    os.closerange(sock.fileno() + 1, os.sysconf("SC_OPEN_MAX"))


class Server:
    def __init__(self, sock: socket.socket, parent: int, signalled: bool) -> None:
        self.sock = sock
        self.parent = parent
        self.poll_ms = None if signalled else POLL_PARENT_MS
        self.calls: dict[int, socket.socket] = {}  # supervisor's pid -> its end of the call's socket
        self.wake = supervisor.wake_on_signals(supervisor.ORPHANED)
        self.orphaned = not kernel.die_with(parent, supervisor.ORPHANED) if signalled else False

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.sock, select.POLLIN)
        while not self.orphaned:
            ready = {fd for fd, _ in poll.poll(self.poll_ms)}
            if self.wake in ready:
                self._woken()
            if self.sock.fileno() in ready:
                self._asked()
            self.orphaned |= os.getppid() != self.parent

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        self._reap()

    def _asked(self) -> None:
        try:
            self.orphaned |= not self.sock.recv(16)
        except ConnectionError:  # the daemon died with something unread
            self.orphaned = True
        if not self.orphaned:
            self._answer()

    def _answer(self) -> None:
        try:
            self._fork()
        except ConnectionError:
            self.orphaned = True
        except OSError as error:
            self.sock.sendall(f"{NO_PROCESS}: {os.strerror(error.errno or 0)}".encode())

    def _fork(self) -> None:
        """A supervisor that waits for its request."""
        ours, theirs = socket.socketpair()
        me = os.getpid()
        with ours:
            pid = os.fork()
            if pid == 0:
                become_supervisor(theirs, me)
            self.calls[pid] = theirs
            send_supervisor(self.sock, pid, ours)

    def _reap(self) -> None:
        ended, _ = kernel.reap()
        for pid, status in ended.items():
            if (call := self.calls.pop(pid, None)) is not None:
                self._ended(call, status)

    def _ended(self, call: socket.socket, status: int) -> None:
        """Only a supervisor that was killed leaves anything; its call is answered when that is gone."""
        if status == 0:
            call.close()
            return
        survivors = self._end_strays()
        fail(call, f"the call's supervisor was killed; {fate(survivors)}", survivors, lost=True)

    def _end_strays(self) -> list[int]:
        limit = time.monotonic() + STRAY_LIMIT
        while strays := tree.kill_below(os.getpid(), apart=self.calls):
            if time.monotonic() > limit:
                return sorted(strays)
            time.sleep(0.005)
            self._reap()
        return []

    def end(self) -> None:
        """The daemon is gone or wants us gone. Supervisors may know that already; who hasn't ended its
        tree when the time is over is ended with it. Those that are kept stay."""
        for call in self.calls.values():
            call.close()
        kernel.send(self.calls, supervisor.ORPHANED)
        began = time.monotonic()
        while (waited := time.monotonic() - began) < LAST_LIMIT + STRAY_LIMIT:
            ended, left = kernel.reap()
            self.calls = {pid: call for pid, call in self.calls.items() if pid not in ended}
            stay = [pid for pid in self.calls if kept.is_kept(pid)]
            if not left or not tree.descendants(os.getpid(), apart=stay):
                return
            tree.kill_below(os.getpid(), apart=self.calls if waited < LAST_LIMIT else stay)
            time.sleep(0.02)


def become_supervisor(sock: socket.socket, spawner: int) -> NoReturn:
    """In the child of a fork."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        gc.enable()
        close_all_but(sock)
        supervisor.main(sock, spawner)
        code = 0
    finally:
        os._exit(code)


def fail(call: socket.socket, sentence: str, survivors: Sequence[int] = (), *, lost: bool = False) -> None:
    """The call's last frame, written in the supervisor's place; ``lost``: because it was killed."""
    with contextlib.suppress(OSError):
        call.setblocking(False)
        call.sendall(encode({"failed": sentence, "survivors": list(survivors), "lost": lost}))
    call.close()
