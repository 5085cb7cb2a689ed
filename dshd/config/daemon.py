"""The process, and how much it does at once."""

from __future__ import annotations

import attrs

from dshd.config.kinds import Count, Duration, Loopback, Origin, Text


@attrs.frozen(slots=True, kw_only=True)
class Daemon:
    path: Text | None = None
    idle_exit: Duration = 0.0
    shutdown_grace: Duration = 10.0
    websocket: Loopback | None = None
    origins: list[Origin] = attrs.field(factory=list)


@attrs.frozen(slots=True, kw_only=True)
class Driver:
    max_running: Count = 8


@attrs.frozen(slots=True, kw_only=True)
class Inbox:
    max_pending: Count = 1000


@attrs.frozen(slots=True, kw_only=True)
class Recovery:
    continue_interrupted: bool = False
