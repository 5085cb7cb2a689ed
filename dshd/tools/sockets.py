"""Sockets through which a command could have something run outside of its sandbox, or use what is not its
own: the user's bus (`systemd-run --user`), container daemons, agents, desktops. Looks at the disk.

A read-only mount keeps nobody from connecting to a socket, so a socket is there or it is not. Most are in
``/run``, where any service may put one tomorrow: it is emptied but for what is named here. Elsewhere it is
the other way round: what is named here is emptied. A socket in any other place can be connected to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dshd.tools.places import inside

RUNTIME = (Path("/run"), Path("/var/run"))  # as a rule one and the same
RESOLV_CONF = Path("/etc/resolv.conf")

# Below each of RUNTIME. Programs themselves (NixOS), shared memory, and who the users are:
KEPT = (
    "current-system", "booted-system", "opengl-driver", "opengl-driver-32", "wrappers", "shm",
    "systemd/userdb",
)  # fmt: skip
# What answers for other machines, and databases that ask who you are, come with the network.
KEPT_WITH_NET = ("systemd/resolve", "nscd", "avahi-daemon/socket", "postgresql", "mysqld")

ANYWHERE = tuple(map(Path, (
    "/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket", "/var/snap/lxd/common/lxd/unix.socket",
    "/tmp/.X11-unix", "/tmp/.ICE-unix",  # noqa: S108 - for a session that works in /tmp itself
)))  # fmt: skip
AT_HOME = (
    ".ssh/agent", ".gnupg/S.gpg-agent", ".gnupg/S.gpg-agent.ssh", ".gnupg/S.gpg-agent.extra",
    ".gnupg/S.gpg-agent.browser", ".docker/run", ".docker/desktop",
)  # fmt: skip


def cut_off(home: Path | None, dir: Path, environs: Iterable[Mapping[str, str]]) -> Iterator[Path]:
    """What to empty beside `RUNTIME`; it may not exist. ``environs`` are the session's and the daemon's,
    which say where the user's runtime directory and the ssh agent are."""
    yield from ANYWHERE
    if home is not None:
        yield from (home / name for name in AT_HOME)
    for environ in environs:
        for name in ("XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"):
            path = Path(environ.get(name) or "/")
            if path.is_absolute() and not any(inside(place, [path]) for place in (dir, home or dir)):
                yield path


def kept(runtime: Iterable[Path], net: bool) -> Iterator[tuple[Path, str | None]]:
    """(a place below ``runtime`` that stays, where it leads to if it is a link)"""
    runtime = list(runtime)
    for name in (*KEPT, *(KEPT_WITH_NET if net else ())):
        for path in (top / name for top in runtime):
            if path.is_symlink():
                yield path, os.readlink(path)
            elif path.exists():
                yield path, None
    if net and inside(names := RESOLV_CONF.resolve(), runtime) and names.exists():
        yield names, None
