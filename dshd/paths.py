"""Where things are, how a socket there is reached, and which environment passes from whom to whom.

Both programs ask here, so that they cannot disagree: a dshctl run by cron and one typed in a
terminal must find the same daemon. Nothing here creates anything; the daemon does that.

The socket
    `Places.sockets` are the paths to try, in order. A daemon listens at the first and leaves a
    symbolic link to it as ``STATE/run/dshd.sock``, the last. So a client whose runtime directory
    differs from the daemon's (the one started by cron before anybody logged in, the other after)
    still finds it, without any shared directory in the game.

    A kernel address holds 107 bytes of path. Longer ones are reached through a descriptor of the
    directory (``/proc/self/fd/N/dshd.sock``); nothing is ever cut or hashed, so that two long paths
    can't become one.

The environment
    Three lists, each a pure function of the environment given: what the daemon keeps
    (`daemon_environment`), what a session takes from the client that makes it
    (`session_environment`), and which names are secrets (`looks_secret`). ``GIT_*`` is in none: a
    daemon started from a git hook must not work in that repository for ever.

Light on purpose: standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from dshd.errors import Invalid, NotConfigured

if TYPE_CHECKING:
    import socket

SOCKET_PATH_MAX: Final = 107  # bytes of sun_path that can be used, without the final NUL
SYSTEM_CONFIG: Final = "/etc/xdg/dshd/config.toml"


class Places(NamedTuple):
    """Absolute paths. ``sockets`` are those to try, the daemon's own first. ``config_named``: the user said
    which file the config is, so it must be there."""

    config: str
    system_config: str
    state: str
    sockets: tuple[str, ...]
    config_named: bool = False

    @property
    def socket(self) -> str:
        return self.sockets[0]

    @property
    def config_dir(self) -> str:
        return os.path.dirname(self.config)

    @property
    def env_file(self) -> str:
        """Lines ``NAME=VALUE`` added to the daemon's environment; 0600."""
        return os.path.join(self.config_dir, "env")

    @property
    def socket_link(self) -> str:
        """Where a daemon that listens elsewhere leaves a symbolic link to its socket."""
        return os.path.join(self.state, "run", "dshd.sock")

    @property
    def lock(self) -> str:
        return os.path.join(self.state, "lock")

    @property
    def sessions(self) -> str:
        return os.path.join(self.state, "sessions")

    @property
    def keys(self) -> str:
        """Directory 0700 with one file 0600 per route, named as the route, holding its key."""
        return os.path.join(self.config_dir, "keys")

    @property
    def log(self) -> str:
        """Where a daemon that dshctl started writes its own log."""
        return os.path.join(self.state, "dshd.log")

    def secret(self) -> tuple[str, ...]:
        """What no tool may see: state, sockets, keys, and the file with variables."""
        return (self.state, self.env_file, self.keys, *map(os.path.dirname, self.sockets))


def private_directory(path: str, uid: int, *, loosest: int = 0o700) -> bool:
    """Whether this is a directory of ours that nobody else may enter (or with 0o755: change)."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    mode = stat.S_IMODE(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and mode & ~loosest == 0


def find_places(
    environ: Mapping[str, str],
    *,
    config: str | None = None,
    socket: str | None = None,
    uid: int | None = None,
    private: Callable[..., bool] = private_directory,
) -> Places:
    """The places that this environment and these options (``--config``, ``--socket``) mean.

    Raises `NotConfigured` if nothing says where (no HOME, no DSHD_HOME, unknown user).
    """
    uid = os.getuid() if uid is None else uid
    own = _absolute(environ.get("DSHD_HOME"))
    state = _absolute(environ.get("DSHD_STATE_DIR")) or (
        os.path.join(own, "state") if own else _xdg(environ, "XDG_STATE_HOME", ".local/state", uid)
    )
    named = _absolute(config or environ.get("DSHD_CONFIG"))
    return Places(
        config=named
        or (
            os.path.join(own, "config.toml")
            if own
            else os.path.join(_xdg(environ, "XDG_CONFIG_HOME", ".config", uid), "config.toml")
        ),
        system_config=SYSTEM_CONFIG,
        state=state,
        sockets=_sockets(environ, _absolute(socket or environ.get("DSHD_SOCKET")), own, state, uid, private),
        config_named=named is not None,
    )


def _absolute(path: str | None) -> str | None:
    """Relative to the current directory, as typed; an empty value counts as unset."""
    return os.path.abspath(path) if path else None


def _xdg(environ: Mapping[str, str], name: str, default: str, uid: int) -> str:
    base = environ.get(name, "")
    if not os.path.isabs(base):  # the XDG specification: relative ones are to be ignored
        base = os.path.join(_home(environ, uid), default)
    return os.path.join(base, "dshd")


def _home(environ: Mapping[str, str], uid: int) -> str:
    if os.path.isabs(environ.get("HOME", "")):
        return environ["HOME"]
    import pwd

    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        raise NotConfigured("HOME is not set: set it, or DSHD_HOME=DIR to keep all under DIR.") from None


def _sockets(
    environ: Mapping[str, str],
    explicit: str | None,
    own: str | None,
    state: str,
    uid: int,
    private: Callable[..., bool],
) -> tuple[str, ...]:
    if explicit:
        return (explicit,)
    fallback = os.path.join(state, "run", "dshd.sock")
    if own:
        return (os.path.join(own, "run", "dshd.sock"), fallback)
    runtime = _runtime_directory(environ.get("XDG_RUNTIME_DIR", ""), uid, private)
    return (os.path.join(runtime, "dshd", "dshd.sock"), fallback) if runtime else (fallback,)


def _runtime_directory(named: str, uid: int, private: Callable[..., bool]) -> str | None:
    """One that is named but isn't ours (after ``su``) or that others can change counts as unset."""
    if os.path.isabs(named) and private(named, uid, loosest=0o755):
        return named
    usual = f"/run/user/{uid}"
    return usual if private(usual, uid) else None


# ---------------------------------------------------------------- reaching a socket


def connect(path: str, timeout: float | None = None) -> socket.socket:
    """A connected blocking stream socket. Raises OSError as `connect(2)` does, and `NotConfigured`
    if somebody else listens there: what we say is not for them (root may ask anybody's daemon)."""
    import socket

    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout)
        with reachable(path) as address:
            sock.connect(address)
        _check_owner(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock


class Credentials(NamedTuple):
    """Who is at the other end of a Unix socket, as of its connect or listen."""

    pid: int
    uid: int
    gid: int


def peer_credentials(sock: socket.socket) -> Credentials:
    """From SO_PEERCRED: the kernel's word, not the peer's."""
    import socket
    import struct

    layout = struct.Struct("iII")  # struct ucred
    return Credentials(*layout.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)))


def _check_owner(sock: socket.socket, path: str) -> None:
    owner = peer_credentials(sock).uid
    if os.getuid() not in (0, owner):
        raise NotConfigured(f"user {owner} listens at {path}, not you; nothing was sent.")


@contextlib.contextmanager
def reachable(path: str) -> Iterator[str]:
    """A path, at most 107 bytes long while in the block, that means the socket at ``path``."""
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        yield path
        return
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- environments

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUILTIN_KEYS: Final = (  # what the built-in routes ask for
    "DEEPSEEK_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OLLAMA_HOST",
)
_DAEMON_NAMES: Final = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ"})
_DAEMON_PREFIXES: Final = ("LC_", "XDG_", "DSHD_")
_SESSION_NAMES: Final = frozenset({"PATH", "LANG", "TZ", "SHELL", "EDITOR", "VIRTUAL_ENV", "SSH_AUTH_SOCK"})
_SESSION_PREFIXES: Final = ("LC_", "CONDA_")
_SECRET_PARTS: Final = ("KEY", "TOKEN", "SECRET", "PASSW")


def daemon_environment(
    environ: Mapping[str, str],
    *,
    keys: Iterable[str] = (),
    path: str | None = None,
    lines: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What the daemon runs with, given what it was started with.

    ``keys``: variables that routes name; ``path``: PATH from the config; ``lines``: what
    `parse_env_file` read. dshctl gives a daemon that it starts the same, so that nothing else is
    ever in its environment, not even at first; it may leave out what only the config says.
    """
    wanted = {*keys, *BUILTIN_KEYS}
    kept = {
        name: value
        for name, value in environ.items()
        if name in _DAEMON_NAMES or name.startswith(_DAEMON_PREFIXES) or name in wanted
    }
    kept.update({"PATH": path or DEFAULT_PATH, **(lines or {})})
    return {name: value for name, value in kept.items() if not name.startswith("GIT_")}


def parse_env_file(text: str, where: str) -> dict[str, str]:
    """``{name: value}`` from lines ``NAME=VALUE``; blank lines and ``#`` lines are skipped.

    A value may stand in a pair of quotes; nothing is expanded. Raises `NotConfigured` with the line's
    number, and never its text: it may be a key.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip().removeprefix("export ")
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.replace("_", "a").isalnum():
            raise NotConfigured(f"{where}:{number}: not a line NAME=VALUE")
        found[name] = _unquoted(value)
    return found


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value


def looks_secret(name: str) -> bool:
    """Names of variables whose values are kept out of logs: ``*KEY*``, ``*TOKEN*``, ..."""
    return any(part in name.upper() for part in _SECRET_PARTS)


def session_environment(environ: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """What a new session takes from its maker. ``named``: each ``--env``, ``NAME`` or ``NAME=VALUE``.

    Raises `Invalid` for a named one that isn't set.
    """
    taken = {
        name: value
        for name, value in environ.items()
        if (name in _SESSION_NAMES or name.startswith(_SESSION_PREFIXES)) and not looks_secret(name)
    }
    for item in named:
        name, equals, value = item.partition("=")
        if not equals and name not in environ:
            raise Invalid(f"--env {name}: {name} is not set here")
        taken[name] = value if equals else environ[name]
    return taken
