"""From facts to lines. No IO.

Each check is a function of the facts that gives its lines, most of them one; `CHECKS` has them in the order
in which they are shown. ``fail`` is what keeps work from being done or endangers it; ``warn`` is what a
person may want otherwise.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any, Final

from dshd import plural
from dshd.doctor import routes
from dshd.doctor.facts import Check, Facts, Folder, Level
from dshd.wire.which import tilde

LOW: Final = 1 << 30  # bytes free
LEAST: Final = 64 << 20
FEW_FILES: Final = 1000
REMOTE: Final = (
    "nfs",
    "cifs",
    "smb",
    "fuse.sshfs",
    "9p",
    "afs",
    "ceph",
)  # where locks and syncs are in doubt
BACKWARDS_MS: Final = 60_000
ENDS: Final = {
    "no-unit": ("nothing starts it again after a reboot", "dshctl setup"),
    "other-unit": ("dshd.service is enabled, but did not start this one", "dshctl daemon stop"),
    "no-linger": ("systemd user service, ends with the last login", "loginctl enable-linger"),
}


def examine(facts: Facts) -> list[Check]:
    """All lines, in order."""
    return [check for each in CHECKS for check in each(facts)]


def exit_of(checks: list[Check]) -> int:
    """What doctor exits with."""
    return int(any(check.level == "fail" for check in checks))


def daemon(facts: Facts) -> Iterator[Check]:
    running = facts.running
    if running is None:
        yield Check("daemon", "warn", "not running; what is due waits until it is", "dshctl daemon start")
        return
    why, fix = ENDS.get(running.ends or "", (None, None))
    by = "systemd user service, linger on" if running.ends is None else why
    yield Check("daemon", "warn" if why else "ok", f"{running.version}, pid {running.pid}; {by}", fix)


def config(facts: Facts) -> Iterator[Check]:
    path = tilde(facts.places.config, facts.home)
    if facts.problem is not None:
        goes_on = "; the daemon goes on with what it has read" if facts.running else ""
        yield Check("config", "fail", f"{facts.problem}{goes_on}", "dshctl config check")
    elif facts.running is not None and facts.running.behind:
        yield Check("config", "warn", f"{path} was changed since it was read", "dshctl daemon reload")
    else:
        yield Check("config", "ok", path if facts.written else f"{path} is not there; the defaults hold")
    for warning in facts.config.warnings() if facts.config is not None else ():
        yield Check("config", "warn", warning, "man dshd-config")


def state(facts: Facts) -> Iterator[Check]:
    folder = facts.state
    path = tilde(folder.path, facts.home)
    if not folder.there:
        yield Check("state", "ok", f"{path} is made at the first start")
        return
    problem, level, fix = _trouble(folder)
    size = sum(session.get("bytes") or 0 for session in facts.sessions)
    what = f"{path}, {folder.system}, {_bytes(size)}, {_bytes(folder.free)} free"
    yield Check("state", level, f"{what}: {problem}" if problem else what, fix)


def _trouble(folder: Folder) -> tuple[str | None, Level, str | None]:
    """What is wrong with it, how bad that is, and what to type."""
    place = shlex.quote(folder.path)
    if not folder.mine:
        return "it belongs to somebody else", "fail", f"ls -ld {place}"
    if not folder.writable:
        return "it can't be written to", "fail", f"ls -ld {place}"
    if folder.mode & 0o077:
        return f"others may look in (mode {folder.mode:04o})", "fail", f"chmod 700 {place}"
    if folder.free < LEAST or (folder.files is not None and folder.files == 0):
        return "the disk is full", "fail", f"df -h {place}"
    if folder.system.startswith(REMOTE):
        return "a network file system may lose what it has acknowledged", "warn", "man dshd, ENVIRONMENT"
    if folder.system in ("tmpfs", "ramfs"):
        return "it is gone after a reboot", "warn", "man dshd, ENVIRONMENT"
    if folder.free < LOW:
        return "that is little", "warn", f"df -h {place}"
    if folder.files is not None and folder.files < FEW_FILES:
        return f"room for {plural.count(folder.files, 'file')}", "warn", f"df -i {place}"
    return None, "ok", None


def sandbox(facts: Facts) -> Iterator[Check]:
    found = facts.sandbox
    wish = facts.config.tools.sandbox if facts.config is not None else "auto"
    if wish == "none":
        yield Check("sandbox", "warn", 'sandbox = "none": commands are not confined', "man dshd, SANDBOX")
    elif found.bwrap is not None and wish in ("auto", "bwrap"):
        yield Check("sandbox", "ok", f"bubblewrap, {found.bwrap}")
    elif found.landlock and wish in ("auto", "landlock"):
        why = f"bubblewrap doesn't work ({found.why}); " if wish == "auto" else ""
        udp = "" if found.seccomp else ", which leaves UDP open"
        level: Level = "warn" if why or udp else "ok"
        yield Check("sandbox", level, f"{why}Landlock is used{udp}", "man dshd, SANDBOX")
    else:
        why = found.why or "the kernel has no Landlock"
        yield Check("sandbox", "fail", f"none works ({why}), so bash is refused", "man dshd, SANDBOX")


def sessions(facts: Facts) -> Iterator[Check]:
    of = {
        name: [s for s in facts.sessions if s.get("state") == name]
        for name in ("damaged", "faulted", "closed")
    }
    parked = [s for s in facts.sessions if s.get("parked") and s.get("state") != "closed"]
    count = len(facts.sessions) - len(of["closed"])
    what = f"{count} open, {len(of['damaged'])} damaged, {len(parked)} parked"
    if of["faulted"]:
        what += f", {len(of['faulted'])} faulted"
    fix = None
    if of["damaged"]:
        fix = _way_out(of["damaged"][0]) or f"dshctl fsck --repair {_name(of['damaged'][0])}"
    elif of["faulted"]:
        fix = f"dshctl reopen {_name(of['faulted'][0])}"
    elif parked:
        fix = "dshctl status"
    yield Check("sessions", "fail" if of["damaged"] or of["faulted"] else "ok", what, fix)


def _way_out(session: dict[str, Any]) -> str | None:
    """What helps, if the session knows it."""
    return next((need["hint"] for need in session.get("needs") or () if need.get("hint")), None)


def _name(session: dict[str, object]) -> str:
    return shlex.quote(str(session.get("name") or session.get("id")))


def spool(facts: Facts) -> Iterator[Check]:
    said = facts.spool
    where = shlex.quote(f"{said.get('dir')}/refused")
    if said.get("problem"):
        yield Check(
            "spool", "fail", f"can't be read: {said['problem']}", f"ls -l {shlex.quote(str(said.get('dir')))}"
        )
    elif said.get("refused"):
        yield Check("spool", "warn", f"{said['refused']} refused", f"grep . {where}/*.json")
    elif said.get("waiting") and facts.running is None:
        yield Check("spool", "warn", f"{said['waiting']} to be taken up", "dshctl daemon start")


def hooks(facts: Facts) -> Iterator[Check]:
    for what in facts.missing:
        yield Check("hooks", "warn", f"{what} can't be run", "dshctl config show")


def socket(facts: Facts) -> Iterator[Check]:
    path = tilde(facts.socket.path, facts.home)
    if not facts.socket.there:
        if facts.running is not None:
            yield Check("socket", "fail", f"{path} is gone or no socket", "dshctl daemon restart")
    elif facts.socket.mode & 0o077:
        fix = f"chmod 600 {shlex.quote(facts.socket.path)}"
        yield Check("socket", "fail", f"{path}: others may connect (mode {facts.socket.mode:04o})", fix)
    elif facts.running is not None:
        yield Check("socket", "ok", path)


def clock(facts: Facts) -> Iterator[Check]:
    zone = facts.zone
    newest = max((session.get("active_at") or 0 for session in facts.sessions), default=0)
    if newest > facts.now + BACKWARDS_MS:
        yield Check("clock", "warn", "it is behind what was logged; times held may come late", "timedatectl")
    elif not zone.known:
        yield Check(
            "clock", "warn", f"TZ={zone.name} is no zone here, so UTC is used", "timedatectl list-timezones"
        )
    else:
        yield Check("clock", "ok", f"{zone.name}, UTC{zone.offset}")


def models(facts: Facts) -> Iterator[Check]:
    if facts.models is not None and facts.config is not None:
        yield from routes.checks(facts.models, facts.config)


UNITS: Final = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def _bytes(size: int) -> str:
    for unit, scale in UNITS:
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} bytes"


CHECKS: Final[tuple[Callable[[Facts], Iterator[Check]], ...]] = (
    daemon, config, state, socket, sandbox, models, hooks, sessions, spool, clock,
)  # fmt: skip
