"""One process per call: it starts the command, reads what it prints, and ends the whole tree.

It is forked by the spawner, single-threaded, and serves one call at a time. Being the subreaper of
everything the command starts, it needs no trust in anybody below it: sessions, double forks and ignored
signals change nothing about who their ancestor is. It ends its tree when the main process ends, when
time is up, when the daemon says stop, when the daemon's end of the socket closes, and when the spawner
dies (parent-death signal). Of what a killed supervisor leaves, the spawner takes care.

One that is told to keep its tree outlives them both: it has no parent-death signal any more, another name
(`kept.NAME`), takes SIGTERM for stop, and leaves word of the end in a file.

A call is answered when nothing is left below, so the same process can take the next one: a fresh fork
would cost 3 ms of page faults. One that had to give up on somebody, or was stopped, takes no other.

The output is read here and not in the daemon: a tool that prints as fast as it can costs the daemon
nothing, and a busy daemon doesn't hold up a tool.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from dshd.spawn import kept, kernel, lifecycle, tree
from dshd.spawn.command import NotStarted, start
from dshd.spawn.output import Output
from dshd.spawn.protocol import Decoder, Done, Frame, Request, encode, plain

ORPHANED = signal.SIGUSR1  # our parent-death signal; also what the spawner sends before it leaves
DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
KILL_EVERY = 0.02  # s between passes
LOOK_EVERY = 0.05  # s, whether a tree grows in its grace
PIECE = 256 * 1024  # bytes read at once
SMALL_PIPE, WIDE_PIPE = 64 * 1024, 1024 * 1024  # bytes; the first is what the kernel gives
EVERY: dict[lifecycle.State, float] = {"ending": LOOK_EVERY, "killing": KILL_EVERY}
MOST_TOLD = 1000  # processes; a bigger tree gets no grace, in which it would only grow
PATIENCE = 10.0  # s for the daemon to say what it wants


def main(sock: socket.socket, spawner: int) -> None:
    """The supervisor's whole life. Returns when nothing is left below it (or that was reported)."""
    wake = wake_on_signals(ORPHANED)
    kernel.become_subreaper()
    kernel.rename("dshd-call")
    if not kernel.die_with(spawner, ORPHANED):
        return
    warm_up(wake, spawner)
    again = True
    while again and (piece := wait_for_call(sock, wake, spawner)):
        again = serve(sock, piece, wake, spawner)


def warm_up(wake: int, spawner: int) -> None:
    """Serve a call while nobody waits: after a fork the first touch of every page costs."""
    request = Request(
        argv=["/bin/true"], cwd="/", env=dict(os.environ), timeout=5, grace=0, head=1, tail=1, spill=None
    )
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.suppress(Exception):
        ours.sendall(encode(plain(request)))
        serve(theirs, theirs.recv(PIECE), wake, spawner)


def serve(sock: socket.socket, piece: bytes, wake: int, spawner: int) -> bool:
    """One call, of whose request ``piece`` is the beginning. Returns whether there may be another."""
    if (request := read_request(sock, piece)) is None:
        return False
    sock.sendall(encode({"supervisor": os.getpid()}))
    supervisor = Supervisor(Request(**request[0]), sock, wake, spawner)
    try:
        last = supervisor.run(request[1])
    except Exception:
        answer(sock, encode({"failed": traceback.format_exc()[-4000:]}))
        raise
    answer(sock, last)
    return supervisor.again


def wait_for_call(sock: socket.socket, wake: int, spawner: int) -> bytes:
    """The beginning of the request; nothing if there won't be one."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready and (ORPHANED in os.read(wake, 4096) or os.getppid() != spawner):
            return b""
        if sock.fileno() in ready:
            with contextlib.suppress(ConnectionError):  # the daemon died with something unread
                return sock.recv(PIECE)
            return b""


def answer(sock: socket.socket, frame: bytes) -> None:
    """The last frame. Nobody may be there to read it any more."""
    sock.settimeout(None)
    with contextlib.suppress(OSError):
        sock.sendall(frame)


def read_request(sock: socket.socket, piece: bytes) -> Frame | None:
    """A whole frame, of which ``piece`` is the beginning; None if the daemon went away before it was
    complete, or has changed its mind."""
    decoder = Decoder()
    sock.settimeout(PATIENCE)
    while piece:
        if frames := decoder.feed(piece):
            return frames[0] if len(frames) == 1 else None
        piece = sock.recv(PIECE)
    return None


def wake_on_signals(*also: signal.Signals) -> int:
    """A descriptor that becomes readable when a child ends or one of ``also`` arrives. Nothing is
    ignored but what is meant to be: ignored signals stay ignored in what we execute."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for signum in (*DEAF_TO, *also, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)
    return read


class Supervisor:
    """The loop around the table in `lifecycle`."""

    def __init__(self, request: Request, sock: socket.socket, wake: int, parent: int) -> None:
        self.request = request
        self.sock = sock
        self.parent = parent
        self.state: lifecycle.State = "running"
        self.cause = ""
        self.status: int | None = None
        self.left = 0
        self._look_at = 0.0
        self.survivors: list[int] = []
        self.out = Output(request.head, request.tail, request.spill)
        if request.follow:
            self.out.follow()
        self.kept: str | None = None  # where to leave word of the end
        self._decoder = Decoder()
        self.err = Output(request.head, request.tail)
        self._poll = select.poll()
        self._watched: dict[int, Callable[[int], None]] = {}
        self._pipes: dict[int, Output] = {}
        self._wake = wake
        self.main = 0
        self.began = time.monotonic()
        self.duration = 0.0
        self.deadline = self.began + request.timeout if request.timeout is not None else None

    @property
    def again(self) -> bool:
        """Whether this process may take another call: nothing is below it, and nobody said stop."""
        return self.cause in ("", "exit", "timeout") and not self.survivors and self.kept is None

    def run(self, blobs: list[bytes]) -> bytes:
        """Start it, and on until the table says done. Returns the last frame."""
        self._watch(self._wake, self._on_wake)
        self.sock.setblocking(False)
        self._watch(self.sock.fileno(), self._on_control)
        try:
            self._start(blobs[0] if blobs else None)
        except NotStarted as failed:
            return encode({"failed": str(failed), "again": self.again})
        while self.state != "done":
            for fd, _ in self._poll.poll(self._wait_ms()):
                if fd in self._watched:
                    self._watched[fd](fd)
            self._advance()
        return self._report()

    def _start(self, stdin: bytes | None) -> None:
        started = start(self.request, stdin)
        self.main = started.pid
        self._watch_pipe(started.out, self.out)
        if started.err is not None:
            self._watch_pipe(started.err, self.err)

    # -- what can happen

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._poll.register(fd, select.POLLIN)
        self._watched[fd] = handler

    def _unwatch(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._watched[fd]

    def _watch_pipe(self, fd: int, output: Output) -> None:
        os.set_blocking(fd, False)
        self._pipes[fd] = output
        self._watch(fd, self._on_output)

    def _on_wake(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            signals = os.read(fd, 4096)  # one byte for each: its number
            if self.kept is not None and signal.SIGTERM in signals:
                self._end("stop")
            if self.kept is None and ORPHANED in signals:
                self._end("orphaned")

    def _on_control(self, fd: int) -> None:
        try:
            data = self.sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._unwatch(fd)
            return None if self.kept is not None else self._end("orphaned")
        try:
            for message, _ in self._decoder.feed(data):
                self._told(message)
        except ValueError:
            self._end("stop")

    def _told(self, message: dict[str, Any]) -> None:
        if "free" in message:
            self._free()
        elif "keep" in message:
            self._keep(message["keep"])
        else:
            self._end("stop")

    def _free(self) -> None:
        """It goes on as a job: without a time limit, and with its output where it can be read along."""
        if self.state == "running":
            self.deadline = None
            self.out.follow()

    def _keep(self, path: str) -> None:
        """From now on nobody's end is ours. What has begun to end stays what it was."""
        if self.state == "running":
            kernel.outlive()
            kernel.rename(kept.NAME)
            self.kept = path
            with contextlib.suppress(OSError):
                self.sock.sendall(encode({"kept": True}))

    def _on_output(self, fd: int) -> None:
        self._read(fd)

    def _read(self, fd: int) -> bool:
        """One piece of a pipe. False: there is no more now, or for ever (then it is closed)."""
        try:
            data = os.read(fd, PIECE)
        except BlockingIOError:
            return False
        if data:
            self._pipes[fd].feed(data)
            if len(data) == SMALL_PIPE:
                widen(fd)
            return True
        self._close(fd)
        return False

    def _close(self, fd: int) -> None:
        self._unwatch(fd)
        del self._pipes[fd]
        os.close(fd)

    # -- the table's engine

    def _wait_ms(self) -> int | None:
        limits = [] if self.deadline is None else [self.deadline - time.monotonic()]
        if self.state in EVERY:
            limits.append(EVERY[self.state])
        return max(0, int(min(limits) * 1000) + 1) if limits else None

    def _advance(self) -> None:
        ended, any_left = kernel.reap()
        if self.main in ended:
            self.status = ended[self.main]
            self.duration = time.monotonic() - self.began
        if self.kept is None and os.getppid() != self.parent:
            self._end("orphaned")
        for event in self._events(any_left):
            if self.state == "killing" and event == "deadline":
                self.survivors = sorted(tree.descendants(os.getpid()))
            self._go(lifecycle.step(self.state, event))

    def _events(self, any_left: bool) -> Iterator[lifecycle.Event]:
        if not any_left and self.state != "draining":
            yield "alone"
        elif self.state == "running" and self.status is not None:
            yield "main-exited"
        elif self._time_is_over():
            yield "deadline"
        elif self.state == "killing":
            tree.kill_below(os.getpid())

    def _time_is_over(self) -> bool:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return True
        return self.state == "ending" and self._has_outgrown()

    def _has_outgrown(self) -> bool:
        """Whether the tree is too big to be told; looked at now and then."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_EVERY
        return len(tree.descendants(os.getpid())) > MOST_TOLD

    def _end(self, cause: str) -> None:
        """Stop from outside; the first cause wins."""
        if self.state == "running":
            self.cause = cause
            self._go(lifecycle.step(self.state, "stop"))

    def _go(self, state: lifecycle.State) -> None:
        if state == self.state:
            return
        if self.state == "running" and not self.cause:
            self.cause = "timeout" if self.status is None else "exit"
        self.state = state
        getattr(self, f"_enter_{state}")()

    def _enter_ending(self) -> None:
        grace = lifecycle.LEFTOVER_GRACE if self.cause == "exit" else self.request.grace
        self.deadline = time.monotonic() + grace
        if self.request.wrapper and self.status is not None:
            return  # the sandbox is over, and the kernel is about to end who was inside
        below = tree.freeze(os.getpid())
        self.left = len(below.keys() - {self.main})
        self._look_at = time.monotonic() + LOOK_EVERY
        if len(below) > MOST_TOLD:
            self.deadline = time.monotonic()  # they stay stopped until they are killed
            return
        told = below.keys() - ({self.main} if self.request.wrapper else set())
        kernel.send(told, signal.SIGTERM)
        kernel.send(below, signal.SIGCONT)

    def _enter_killing(self) -> None:
        self.deadline = time.monotonic() + lifecycle.KILL_LIMIT
        tree.kill_below(os.getpid())

    def _enter_draining(self) -> None:
        self.duration = self.duration or time.monotonic() - self.began
        self.deadline = time.monotonic() + lifecycle.DRAIN_LIMIT
        for fd in list(self._pipes):
            while self._read(fd) and time.monotonic() < self.deadline:
                pass
        self._go(lifecycle.step(self.state, "drained"))

    def _enter_done(self) -> None:
        for fd in list(self._pipes):
            self._close(fd)
        self._watched.clear()  # a cycle through us
        self.out.close()

    # -- reporting

    def _report(self) -> bytes:
        spill = self.out.spill
        done = Done(
            cause=self.cause,
            status=self.status,
            total=self.out.total,
            kept=spill is not None and spill.written > 0,
            spilled=spill.written if spill else 0,
            spill_error=spill.error if spill else None,
            duration=self.duration,
            survivors=self.survivors,
            left=self.left,
        )
        if self.kept is not None:
            kept.leave_word(self.kept, plain(done))
        blobs = [self.out.head, self.out.tail, self.err.head + self.err.tail]
        return encode({"done": plain(done), "again": self.again}, blobs)


def widen(fd: int) -> None:
    """A pipe that was full gets room, as far as the user has any left: fewer turns for much output."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, WIDE_PIPE)
