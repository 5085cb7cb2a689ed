"""Starting the daemon: one of it, however many ask at once.

Theory. Who may be the daemon is decided by the state lock, and only by that. What stands in front
of it here, a `flock` on ``STATE/starting``, merely keeps twenty dshctl from starting twenty
Pythons of which nineteen find the lock taken: one of them starts the daemon, the others wait until
it answers, and if it fails the next one tries and shows its own reason.

The daemon gets: its own session, cwd ``/``, umask 077, /dev/null as input, nothing inherited, and
the environment that it would keep anyway. Its standard error goes to ``STATE/dshd.log``, not to a
pipe, because it lives on after us; what it wrote there before it ended is the reason to show.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dshctl import unreached
from dshctl.client import NotStarted
from dshd import __version__, errors, paths
from dshd.log.lock import holder

if TYPE_CHECKING:
    from dshctl.client import Client, Options
    from dshctl.connection import Connection

READY_S: Final = 10.0
_POLL_S: Final = 0.02
_LOG_MAX: Final = 1 << 20  # bytes; a longer log of the daemon is set aside when the next one starts


def start(client: Client) -> Connection:
    """A greeted connection to the daemon that this, or a dshctl beside this one, has started.

    Raises NotStarted with what the daemon said of its config, Unreachable if it ends otherwise before it
    is ready, or isn't ready in 10 s.
    """
    places = client.places
    _make_state(places.state)
    end = time.monotonic() + READY_S
    with _turn(places.state, client, end) as connection:
        if connection is not None:
            return connection
        return _start(client, time.monotonic() + READY_S)


def _make_state(state: str) -> None:
    with _told(state):
        os.makedirs(state, mode=0o700, exist_ok=True)


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise errors.Unreachable(f"the daemon can't be started: {path}: {reason}") from None


@contextlib.contextmanager
def _turn(state: str, client: Client, end: float) -> Iterator[Connection | None]:
    """Our turn to start it (None), or the connection to what somebody else started meanwhile."""
    path = os.path.join(state, "starting")
    with _told(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield _wait_turn(fd, client, end)
    finally:
        os.close(fd)


def _wait_turn(fd: int, client: Client, end: float) -> Connection | None:
    while True:
        ours = _lock(fd)
        connection = client.try_connect()
        if connection is not None or ours:
            return connection
        if time.monotonic() > end:
            raise _not_ready(client.places, "")
        time.sleep(client.deadline.left(_POLL_S) or 0)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(client: Client, end: float) -> Connection:
    places = client.places
    if holder(places.state) is not None:  # one started otherwise, not ready yet
        return _wait_ready(client, None, 0, end)
    size = _prepare_log(places.log)
    process = spawn(client.options, places)
    connection = _wait_ready(client, process, size, end)
    version = client.hello.get("version") or __version__
    if client.options.announces:
        client.options.out.say(f"dshctl: started dshd {version}; it stays (dshctl daemon stop).")
    return connection


def _wait_ready(client: Client, process: subprocess.Popen[bytes] | None, size: int, end: float) -> Connection:
    while True:
        connection = client.try_connect()
        if connection is not None:
            return connection
        status = process.poll() if process else None
        if status is not None and holder(client.places.state) is None:
            raise _failed(status, client.places, size)
        if time.monotonic() > end and process is None:
            raise unreached.hidden(client.places, holder(client.places.state))
        if time.monotonic() > end:
            raise _not_ready(client.places, last_words(client.places.log, size).line)
        time.sleep(client.deadline.left(_POLL_S) or 0)


def spawn(options: Options, places: paths.Places) -> subprocess.Popen[bytes]:
    """The daemon as a process of its own. It is never waited for: it outlives us."""
    log = os.open(places.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            command(options),
            cwd="/",
            env=environment(os.environ, places),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=0o077,
        )
    finally:
        os.close(log)
    return process


def command(options: Options) -> list[str]:
    """This Python, this dshd; -P, for cwd is no place to import from."""
    socket = ["--socket", options.socket] if options.socket else []
    return [sys.executable, "-P", "-m", "dshd", *socket]


def environment(environ: Mapping[str, str], places: paths.Places) -> dict[str, str]:
    """What the daemon keeps anyway, with what decides where things are made absolute."""
    kept = paths.daemon_environment(environ, keys=named_keys(places))
    absolute = {name: os.path.abspath(kept[name]) for name in _PLACES if kept.get(name)}
    return {**kept, **absolute}


_PLACES: Final = ("DSHD_HOME", "DSHD_STATE_DIR", "DSHD_CONFIG", "DSHD_SOCKET")


def named_keys(places: paths.Places) -> set[str]:
    """The variables that routes name in `api_key_env`. A config that can't be read names none: the
    daemon will say what is wrong with it."""
    return {name for path in (places.system_config, places.config) for name in _keys_in(path)}


def _keys_in(path: str) -> Iterator[str]:
    import tomllib

    try:
        with open(path, "rb") as file:
            routes: Any = tomllib.load(file).get("routes", {})
    except (OSError, ValueError):
        return
    for route in routes.values() if isinstance(routes, dict) else ():
        name = route.get("api_key_env") if isinstance(route, dict) else None
        if isinstance(name, str):
            yield name


def _prepare_log(path: str) -> int:
    """Where in the daemon's log its next words will be; a log that has grown long is set aside."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return 0
    if size <= _LOG_MAX:
        return size
    os.replace(path, f"{path}.old")
    return 0


class Words(NamedTuple):
    """What a daemon wrote last: a sentence, and the commands below it."""

    line: str
    hint: str = ""


def last_words(path: str, start: int) -> Words:
    """What a daemon wrote last into its log, from that byte on."""
    return words_of(_written(path, start))


def words_of(lines: Sequence[str]) -> Words:
    """The last error told (``dshd: ...``, with its commands below), else the last line with words."""
    told = max((at for at, line in enumerate(lines) if line.startswith(_TOLD)), default=None)
    if told is not None:
        below = [line.strip() for line in lines[told + 1 :] if line.startswith("      ")]
        return Words(lines[told].removeprefix(_TOLD), "\n".join(below))
    words = (line.strip(" |+-") for line in reversed(lines))  # a traceback of groups is framed
    return Words(next(filter(None, words), ""))


_TOLD: Final = "dshd: "


def _written(path: str, start: int) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(_LOG_MAX).decode("utf-8", "replace").split("\n")
    except OSError:
        return []


def _failed(status: int, places: paths.Places, size: int) -> errors.DshError:
    words = last_words(places.log, size)
    if status == errors.NotConfigured.exit_status and words.line:
        return NotStarted(f"dshd did not start:\n{words.line}", hint=words.hint)
    how = f"it ended with {status}" if status >= 0 else f"it was killed by signal {-status}"
    said = f"Its last line was:\n{words.line}" if words.line else f"It said nothing in {places.log}"
    return errors.Unreachable(f"dshd did not start; {how}. {said}", hint=words.hint)


def check(client: Client) -> None:
    """Whether a daemon that starts now would take its config: asked of one that only looks (``--check``),
    with the environment that it would get. Raises NotConfigured."""
    done = subprocess.run(
        [*command(client.options), "--check"],
        cwd="/",
        env=environment(os.environ, client.places),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        words = words_of(done.stderr.decode("utf-8", "replace").split("\n"))
        raise errors.NotConfigured(f"the daemon that runs was left alone, for a new one would not start:"
                                   f"\n{words.line}", hint=words.hint)  # fmt: skip


def _not_ready(places: paths.Places, line: str) -> errors.Unreachable:
    said = f" Its last line was:\n{line}" if line else f" Its log: {places.log}"
    return errors.Unreachable(f"dshd did not get ready in {READY_S:g} s.{said}")
