"""What systemd and a daemon tell each other: readiness, sockets, the watchdog, the journal.

All of it is a few variables in the environment and datagrams to a socket. What comes from the environment
is read once, at the start, and taken out of it, so that nothing we start believes it is meant. Telling
systemd something is never a reason to fail.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import time
from collections.abc import MutableMapping
from typing import Final

import attrs

FIRST_FD: Final = 3  # SD_LISTEN_FDS_START
_NAMES: Final = (
    "NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID",
)  # fmt: skip


@attrs.frozen(slots=True)
class Manager:
    """systemd, if it started us. ``descriptors``: listening sockets that it holds for us. ``watchdog``:
    seconds within which it wants a sign of life, or None."""

    address: str | None = None
    descriptors: tuple[int, ...] = ()
    watchdog: float | None = None

    @property
    def there(self) -> bool:
        return self.address is not None or bool(self.descriptors)

    def tell(self, *lines: str) -> None:
        """Send these ``NAME=VALUE`` lines to the manager, if there is one."""
        if self.address is None:
            return
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), name)

    def ready(self) -> None:
        self.tell("READY=1")

    def stopping(self) -> None:
        self.tell("STOPPING=1")

    def reloading(self) -> None:
        """To be followed by `ready`."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def alive(self) -> None:
        self.tell("WATCHDOG=1")


def take(environ: MutableMapping[str, str], pid: int) -> Manager:
    """What the environment says, if it says it to ``pid``; its variables are removed."""
    said = {name: environ.pop(name) for name in _NAMES if name in environ}
    return Manager(
        address=_address(said.get("NOTIFY_SOCKET", "")),
        descriptors=_descriptors(said, pid),
        watchdog=_watchdog(said, pid),
    )


def _address(text: str) -> str | None:
    return text if text[:1] in ("/", "@") and len(text) > 1 else None


def _descriptors(said: MutableMapping[str, str], pid: int) -> tuple[int, ...]:
    count = _number(said.get("LISTEN_FDS"))
    if count is None or _number(said.get("LISTEN_PID")) != pid:
        return ()
    return tuple(range(FIRST_FD, FIRST_FD + count))


def _watchdog(said: MutableMapping[str, str], pid: int) -> float | None:
    micros = _number(said.get("WATCHDOG_USEC"))
    meant = _number(said.get("WATCHDOG_PID")) in (None, pid)
    return micros / 1e6 if micros and meant else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


UNITS: Final = (".config/systemd/user", ".local/share/systemd/user")  # below the home
SYSTEM_UNITS: Final = ("/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")
ENABLED: Final = "default.target.wants/dshd.service"


def what_ends_it(manager: Manager, cgroups: str, lingers: bool, enabled: bool = False) -> str | None:
    """What may end this daemon and not start it again, in the word of a receipt's ``warning``: it is no
    unit (``enabled``: there is one, and this isn't it), or the user's manager ends with the last login.
    None: it lasts.

    ``cgroups``: the text of ``/proc/self/cgroup``.
    """
    if not manager.there:
        return "other-unit" if enabled else "no-unit"
    return "no-linger" if "/user@" in cgroups and not lingers else None


def look_what_ends_it(manager: Manager) -> str | None:
    """The same by looking: it may change while we run."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            cgroups = file.read()
        user = pwd.getpwuid(os.getuid())
        lingers = os.path.exists(f"/var/lib/systemd/linger/{user.pw_name}")
        places = (*(f"{user.pw_dir}/{place}" for place in UNITS), *SYSTEM_UNITS)
        enabled = any(os.path.lexists(f"{place}/{ENABLED}") for place in places)
    except (OSError, KeyError):
        cgroups, lingers, enabled = "", False, False
    return what_ends_it(manager, cgroups, lingers, enabled)


def is_journal(environ: MutableMapping[str, str], descriptor: int = 2) -> bool:
    """Whether this descriptor is the journal's, which reads priorities (``<6>``)."""
    stream = environ.get("JOURNAL_STREAM", "")
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"
