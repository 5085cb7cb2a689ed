"""Why a daemon is not reached, and what to type: none is there, it is elsewhere, hidden, or hangs."""

from __future__ import annotations

import os
import stat

from dshd import errors, paths
from dshd.log.lock import Holder


class Hidden(errors.Unreachable):
    """A daemon lives, for it holds the state lock, and its socket is gone. None may be started."""


def nobody(places: paths.Places, *, off: bool) -> errors.Unreachable:
    """Nobody listens, and no daemon may be started."""
    why = ", and starting one is off" if off else ""
    return errors.Unreachable(f"no daemon at {places.socket}{why}", hint="dshctl daemon start")


def hidden(places: paths.Places, by: Holder | None) -> Hidden:
    """A daemon lives, and nothing of it is at its socket's path."""
    pid = by.pid if by else None
    who = f"dshd {pid}" if pid else "a dshd"
    what = f"{who} runs and nobody can reach it: {_instead(places.socket)}"
    if os.path.lexists(places.socket) and not _is_socket(places.socket):
        return Hidden(what, hint=f"ls -l {places.socket}      (out of the way, dshd is back in 3 s)")
    end = f"kill {pid}" if pid else f"fuser -v {places.lock}"
    return Hidden(what, hint=f"{end}             (what was acknowledged is kept)\ndshctl daemon start")


def _instead(path: str) -> str:
    if not os.path.lexists(path):
        return f"its socket {path} is gone."
    if _is_socket(path):
        return f"the socket at {path} is not its own."
    return f"what is at {path} is not its socket."


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def elsewhere(places: paths.Places) -> errors.Unreachable | None:
    """What to say if the daemon of this state listens at another socket than the one that was named."""
    real = os.path.realpath(places.socket_link)
    if places.socket_link in places.sockets or not _listens(real):
        return None
    return errors.Unreachable(
        f"no daemon at {places.socket}; the one of {places.state} listens at {real}.",
        hint=f"dshctl ping --socket {real}",
    )


def _listens(path: str) -> bool:
    try:
        paths.connect(path, 1.0).close()
    except (OSError, errors.DshError):
        return False
    return True


def hangs(path: str, by: Holder | None, seconds: float) -> errors.Unreachable:
    """With what helps: a stopped process (Ctrl-Z, SIGSTOP) is told to go on, any other one is ended, which
    costs nothing that was acknowledged."""
    pid = by.pid if by else None
    words = f"does not answer: it took the connection at {path} and said nothing for {seconds:g} s"
    if pid is None:
        return errors.Unreachable(f"the daemon {words}", hint=f"fuser -v {path}")
    if _is_stopped(pid):
        return errors.Unreachable(f"dshd {pid} is stopped (SIGSTOP), so it {words}", hint=f"kill -CONT {pid}")
    hint = f"kill -9 {pid}             (what was acknowledged is kept)\ndshctl daemon start"
    return errors.Unreachable(f"dshd {pid} {words}", hint=hint)


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False
