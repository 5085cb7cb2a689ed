"""Looks at the machine. Everything here blocks."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dshd.config import Config
from dshd.doctor.facts import Facts, Folder, Json, Running, Socket, Zone
from dshd.errors import DshError
from dshd.model.models import Models
from dshd.paths import Places
from dshd.tools.sandbox import Found

LOCALTIME = "/etc/localtime"


def folder(path: str) -> Folder:
    """The directory, and the disk that it is on."""
    try:
        found = os.stat(path)
        disk = os.statvfs(path)
    except OSError:
        return Folder(path=path, there=False)
    return Folder(
        path=path,
        mine=found.st_uid == os.getuid(),
        mode=stat.S_IMODE(found.st_mode),
        writable=os.access(path, os.W_OK | os.X_OK),
        system=file_system(path),
        free=disk.f_bavail * disk.f_frsize,
        files=disk.f_favail if disk.f_files else None,
    )


def file_system(path: str) -> str:
    """The type of the file system that ``path`` is on; of several mounts the innermost, and the last."""
    best, kind = -1, "unknown"
    real = os.path.realpath(path)
    try:
        with open("/proc/self/mounts", "rb") as file:
            mounts = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return kind
    for line in mounts.split("\n"):
        words = line.split(" ")
        point = words[1].replace("\\040", " ") if len(words) > 2 else ""
        inside = point and (real + "/").startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), words[2]
    return kind


def socket(path: str) -> Socket:
    """What is at the socket's path."""
    try:
        found = os.stat(path)
    except OSError:
        return Socket(path=path, there=False)
    return Socket(path=path, there=stat.S_ISSOCK(found.st_mode), mode=stat.S_IMODE(found.st_mode))


def zone(environ: Mapping[str, str]) -> Zone:
    """The zone of this process."""
    offset = datetime.now().astimezone().strftime("%z")
    offset = f"{offset[:3]}:{offset[3:5]}"
    said = environ.get("TZ", "").removeprefix(":")
    if not said:
        real = os.path.realpath(LOCALTIME)
        name = real.partition("/zoneinfo/")[2] or time.tzname[0]
        return Zone(name=name, offset=offset)
    return Zone(name=said, offset=offset, known=said.startswith("/") or _is_zone(said))


def _is_zone(name: str) -> bool:
    """A name of the database, or a rule in POSIX's form (``CET-1CEST``)."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return any(char.isdigit() for char in name)
    return True


def gather(
    places: Places,
    *,
    home: str,
    environ: Mapping[str, str],
    running: Running | None,
    reading: Callable[[], tuple[Config, Models]],
    sandbox: Found,
    sessions: Sequence[Json],
    spool: Json,
) -> Facts:
    """All that is known. ``reading`` gives config and models; what it raises is the ``problem``."""
    config, models, problem = None, None, None
    try:
        config, models = reading()
    except DshError as error:
        problem = error.message
    return Facts(
        places=places,
        home=home,
        now=time.time_ns() // 1_000_000,
        running=running,
        config=config,
        models=models,
        problem=problem,
        written=os.path.exists(places.config),
        state=folder(places.state),
        socket=socket(places.socket),
        zone=zone(environ),
        sandbox=sandbox,
        sessions=sessions,
        spool=spool,
        missing=list(missing(config, environ.get("PATH", ""))) if config is not None else (),
    )


def missing(config: Config, path: str) -> Iterator[str]:
    """Programs that hooks, notices and servers of tools name and that aren't there. Of a line of shell only a
    first word with a path in it is looked at, for everything else may be the shell's own."""
    wanted = [(f"{hook.event} hook", hook.command) for hook in config.hooks]
    wanted += [(f"[mcp.{name}]", server.command) for name, server in config.mcp.items() if server.command]
    wanted += [("[notify]", config.notify.command)] if config.notify.command else []
    for what, command in wanted:
        program = command[0] if not isinstance(command, str) else _first_word(command)
        if program and shutil.which(os.path.expanduser(program), path=path) is None:
            yield f"{what}: {program}"


def _first_word(line: str) -> str:
    word = line.split(maxsplit=1)[0] if line.strip() else ""
    return word if re.fullmatch(r"~?[\w.+@/-]*/[\w.+@/-]*", word) else ""
