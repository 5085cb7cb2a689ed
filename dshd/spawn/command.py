"""Starting the command itself, in the supervisor.

`subprocess` does it with vfork: nothing of the supervisor is copied, and what fails before the exec is
raised here. (A forked child that runs Python first costs 2 ms of page faults.) Landlock is the exception:
it must be put on in the child.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess

from dshd.spawn import landlock
from dshd.spawn.protocol import Request


class NotStarted(Exception):
    """``str()`` is the sentence."""


@dataclasses.dataclass(slots=True)
class Started:
    """``out`` and ``err`` are descriptors to read from; ``err`` is None if all goes into ``out``."""

    pid: int
    out: int
    err: int | None


def start(request: Request, stdin: bytes | None) -> Started:
    """In a session of its own, with nothing inherited but its standard descriptors. Raises NotStarted."""
    out, out_w = os.pipe2(os.O_CLOEXEC)
    err, err_w = (None, out_w) if request.merge else os.pipe2(os.O_CLOEXEC)
    source = stdin_file(stdin)
    try:
        pid = execute(request, source, out_w, err_w)
    except Exception as error:
        for fd in [out] if err is None else [out, err]:
            os.close(fd)
        raise NotStarted(why(request, error)) from error
    finally:
        for fd in {source, out_w, err_w}:
            os.close(fd)
    return Started(pid, out, err)


def execute(request: Request, stdin: int, out: int, err: int) -> int:
    """The pid of what was started. (Our descriptors are all close-on-exec.)"""
    rules = request.landlock
    process = subprocess.Popen(
        request.argv,
        stdin=stdin,
        stdout=out,
        stderr=err,
        close_fds=False,
        cwd=request.cwd,
        env=request.env,
        umask=request.umask,
        start_new_session=True,
        preexec_fn=None if rules is None else lambda: landlock.restrict(rules),
    )
    process.returncode = 0  # it is reaped by the supervisor's loop, with everything else
    return process.pid


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


def why(request: Request, error: Exception) -> str:
    """A sentence for what kept the command from starting."""
    if isinstance(error, subprocess.SubprocessError):
        return "the sandbox (Landlock) could not be set up"
    if not isinstance(error, OSError):
        return f"the command could not be started: {error}"
    reason = os.strerror(error.errno or 0)
    if error.filename == request.cwd:
        return f"the directory {request.cwd} can't be entered: {reason}"
    return f"{request.argv[0]} could not be started with PATH={request.env.get('PATH', '')}: {reason}"
