"""What is known about this machine and this daemon when it is judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import attrs

from dshd.config import Config
from dshd.model.models import Models
from dshd.paths import Places
from dshd.tools.sandbox import Found

Json = dict[str, Any]
Level = Literal["ok", "warn", "fail"]


@attrs.frozen(slots=True)
class Check:
    """One line: what was looked at, how it is, and what to type if it isn't well."""

    check: str
    level: Level
    what: str
    fix: str | None = None

    def to_json(self) -> Json:
        return {"type": "check", **attrs.asdict(self)}


@attrs.frozen(slots=True, kw_only=True)
class Folder:
    """A directory as the disk has it. ``system``: its file system; ``free`` and ``size`` in bytes; ``files``:
    how many more it may hold, None where that has no limit."""

    path: str
    there: bool = True
    mine: bool = True
    mode: int = 0o700
    writable: bool = True
    system: str = ""
    free: int = 0
    files: int | None = None


@attrs.frozen(slots=True, kw_only=True)
class Socket:
    """Where clients find the daemon. ``there``: it is a socket; ``mode`` its own."""

    path: str
    there: bool
    mode: int = 0o600


@attrs.frozen(slots=True, kw_only=True)
class Zone:
    """The zone that times are understood in. ``known`` False: its name means nothing here, so it is UTC."""

    name: str
    offset: str
    known: bool = True


@attrs.frozen(slots=True, kw_only=True)
class Running:
    """The daemon that answers. ``ends``: what may end it and not start it again, in the word of a receipt's
    ``warning``; ``behind``: the config on the disk is another than the one it goes by."""

    version: str
    pid: int
    supervisor: str | None = None
    ends: str | None = None
    behind: bool = False


@attrs.frozen(slots=True, kw_only=True)
class Facts:
    """``running`` None: no daemon. ``written``: there is a config file. ``config`` and ``models`` None: the
    config can't be read, and ``problem`` says why. ``sessions`` are ``session`` objects; ``spool`` is
    ``{waiting, refused, problem, dir}``; ``now`` in Unix ms. ``missing``: programs of hooks, notices and
    servers that can't be run, each with what it is for."""

    places: Places
    home: str
    now: int
    running: Running | None
    config: Config | None
    models: Models | None
    problem: str | None
    written: bool
    state: Folder
    socket: Socket
    zone: Zone
    sandbox: Found
    sessions: Sequence[Json]
    spool: Json
    missing: Sequence[str] = ()
