"""The places that are never writable in ``workspace``, wherever they are. Sans-IO.

What they have in common: writing there is running something later, outside of the sandbox, as the person
whose machine this is (a shell starts, somebody logs in, git runs a hook), or it is the keys themselves.
So the test is on names, anywhere in the resolved path: a home directory can be anywhere, and a session
may work inside of one. Names are compared without case, for file systems that do the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

ANYWHERE = frozenset({".ssh", ".gnupg"})

SHELL_START = frozenset((
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".shrc",
    ".shinit", ".kshrc", ".mkshrc", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".cshrc",
    ".tcshrc", ".login", ".logout", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".xserverrc",
    ".pam_environment", ".gitconfig", ".crontab",
))  # fmt: skip

# runs of components that start something, at any depth
RUNS = (
    (".config", "autostart"),
    (".config", "autostart-scripts"),
    (".config", "systemd"),
    (".config", "environment.d"),
    (".config", "plasma-workspace"),
    (".config", "fish"),
    (".config", "nushell"),
    (".config", "git"),
    (".config", "dshd"),
    (".local", "state", "dshd"),
    (".local", "share", "systemd"),
)

# the system's own, from the root only: a package's tree may well hold an etc/cron.d
ROOTED = tuple(map(PurePath, (
    "/etc/crontab", "/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily", "/etc/cron.weekly",
    "/etc/cron.monthly", "/etc/anacrontab", "/var/spool/cron", "/var/spool/at", "/etc/profile",
    "/etc/profile.d", "/etc/bash.bashrc", "/etc/bashrc", "/etc/environment", "/etc/zsh", "/etc/zshenv",
    "/etc/zshrc", "/etc/fish", "/etc/xdg/autostart", "/etc/systemd", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/pam.d", "/etc/ld.so.preload",
)))  # fmt: skip

GIT_NAMES = frozenset({"hooks", "config", "config.worktree", "commondir"})
GIT_DATA = frozenset({"refs", "logs", "objects"})  # where the same names are branches, or nothing


def inside(path: PurePath, places: Iterable[PurePath]) -> bool:
    """Whether one of ``places`` is ``path`` or above it; all of them absolute and resolved."""
    return any(path.parts[: len(place.parts)] == place.parts for place in places)


def maybe_inside(path: PurePath, places: Iterable[PurePath]) -> bool:
    """The same without case: for refusing, never for allowing."""
    parts = _folded(path)
    return any(parts[: len(place.parts)] == _folded(place) for place in places)


def why_protected(path: PurePath, own: Iterable[PurePath] = ()) -> str | None:
    """Why a resolved path is never writable in ``workspace``; ``own`` are dshd's directories."""
    parts = _folded(path)[1:]
    name = parts[-1] if parts else ""
    if maybe_inside(path, own):
        return "it belongs to dshd"
    if ANYWHERE & set(parts):
        return "it is among somebody's keys"
    if SHELL_START & set(parts):
        return "it is run when a shell or a desktop starts"
    if "autostart" in parts and name.endswith(".desktop"):
        return "it is run when a desktop starts"
    if any(_holds(parts, run) for run in RUNS) or maybe_inside(path, ROOTED):
        return "what stands there is run by itself"
    if ".git" in parts and git_protected(parts[parts.index(".git") + 1 :]):
        return "git runs what stands there"
    return None


def git_protected(rest: Sequence[str]) -> bool:
    """Whether a path below a git directory (its components) is a hook or a setting; the directory too."""
    return not rest or (rest[0] not in GIT_DATA and bool(GIT_NAMES & {part.casefold() for part in rest}))


def _folded(path: PurePath) -> list[str]:
    return [part.casefold() for part in path.parts]


def _holds(parts: Sequence[str], run: Sequence[str]) -> bool:
    return any(tuple(parts[i : i + len(run)]) == tuple(run) for i in range(len(parts) - len(run) + 1))
