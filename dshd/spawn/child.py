"""The process that becomes the command.

It is forked ahead of time and waits, in its own session and with its output connected, for the request;
so a call costs an exec but no fork. What goes wrong before the exec is written to a pipe that the exec
closes.
"""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import socket
from typing import Any, NoReturn

from dshd.spawn import kernel, landlock
from dshd.spawn.protocol import Decoder, Request, encode

DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)  # what helpers are
IGNORED = [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
PIECE = 256 * 1024  # bytes read at once


@dataclasses.dataclass(slots=True)
class Child:
    """The supervisor's side. ``out``, ``err`` and ``failure`` are descriptors to read from."""

    pid: int
    out: int
    err: int
    failure: int
    line: socket.socket

    def send(self, frame: bytes, stdin: bytes | None) -> None:
        """Let it become what the request (a whole frame) says. Raises BrokenPipeError if it is gone."""
        with self.line:
            source = stdin_file(stdin)
            try:
                socket.send_fds(self.line, [b"c"], [source])
            finally:
                os.close(source)
            self.line.sendall(frame)


def fork(*not_for_it: socket.socket) -> Child:
    """A child that waits. ``not_for_it``: sockets whose end the supervisor's death must mean."""
    supervisor = os.getpid()
    (out, out_w), (err, err_w), (failure, failure_w) = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        for sock in (ours, *not_for_it):
            sock.close()
        become(theirs, out_w, err_w, failure_w, supervisor)
    theirs.close()
    for fd in (out_w, err_w, failure_w):
        os.close(fd)
    return Child(pid, out, err, failure, ours)


def stdin_file(data: bytes | None) -> int:
    """A descriptor to read ``data`` from, to its end; without data /dev/null. Never a pipe, so that
    nobody has to feed it and nothing waits for more."""
    if data is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def become(line: socket.socket, out: int, err: int, failure: int, supervisor: int) -> NoReturn:
    """In the child: wait for the request, and turn into its command."""
    stage = "start"
    try:
        os.setsid()
        kernel.rename("dshd-wait")
        if not kernel.die_with(supervisor, signal.SIGKILL):
            os._exit(127)
        warm_up()
        os.dup2(out, 1)
        if (request := wait_for_request(line)) is None:
            os._exit(0)
        os.dup2(out if request.merge else err, 2)
        program = find_program(request.argv[0], request.env.get("PATH", os.defpath))
        os.umask(request.umask)
        stage = "directory"
        os.chdir(request.cwd)
        stage = "landlock"
        if request.landlock is not None:
            landlock.restrict(request.landlock)
        restore_signals()
        stage = "command"
        os.execve(program, request.argv, request.env)  # noqa: S606
    except OSError as error:
        os.write(failure, f"{stage} {error.errno}".encode())
    except Exception as error:
        os.write(failure, f"{stage} {error!r}".encode()[:4000])
    finally:
        os._exit(127)


def wait_for_request(line: socket.socket) -> Request | None:
    """stdin as a descriptor, then a frame. None: it won't come."""
    data, fds, _, _ = socket.recv_fds(line, 1, 1)
    if not data:
        return None
    os.dup2(fds[0], 0)
    os.close(fds[0])
    decoder = Decoder()
    while data := line.recv(PIECE):
        if frames := decoder.feed(data):
            return Request(**frames[0][0])
    return None


def warm_up() -> None:
    """Do once what a call does, while nobody waits: after a fork the first touch of every page costs."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"c"], [0])
        os.close(socket.recv_fds(theirs, 1, 1)[1][0])
    message, _ = Decoder().feed(encode(dataclasses.asdict(sample())))[0]
    why_not_started(Request(**message), b"start 1")
    find_program("true", os.defpath)
    select.poll().poll(0)


def sample() -> Request:
    """A request to practise on."""
    env = dict(os.environ)
    return Request(argv=["true"], cwd="/", env=env, timeout=1, grace=0, head=1, tail=1, spill=None)


def find_program(name: str, path: str) -> str:
    """Where the shell would find it; the name itself if nowhere."""
    if "/" in name:
        return name
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return name


def restore_signals() -> None:
    """What a program expects: defaults everywhere (Python ignores SIGPIPE and SIGXFSZ, and we more)."""
    for number in {*IGNORED, *DEAF_TO}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


_WHAT: dict[str, str] = {
    "start": "the command could not be started",
    "directory": "the directory {cwd} can't be entered",
    "landlock": "the sandbox (Landlock) could not be set up",
    "command": "{name} could not be started with PATH={path}",
}


def why_not_started(request: Request, error: bytes) -> str:
    """A sentence from what the child wrote."""
    stage, _, rest = error.decode(errors="replace").partition(" ")
    values: dict[str, Any] = {
        "cwd": request.cwd,
        "name": request.argv[0],
        "path": request.env.get("PATH", ""),
    }
    what = _WHAT.get(stage, _WHAT["start"]).format(**values)
    return f"{what}: {os.strerror(int(rest)) if rest.isdigit() else rest}"
