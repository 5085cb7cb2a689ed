"""About the daemon itself: what may be asked of one that is full, too."""

from __future__ import annotations

from typing import Literal

from dshd.wire.params import InSession, Params, check_labels


class HelloParams(Params, method="daemon.hello"):
    """The first request of a connection. ``tty`` and ``client`` are for people to read only."""

    protocol: int
    client: str | None = None
    version: str | None = None
    mode: Literal["read", "write"] = "write"
    tty: str | None = None

    def check(self) -> None:
        check_labels(client=self.client, tty=self.tty)


class StatusParams(Params, method="daemon.status"):
    pass


class ReloadParams(Params, method="daemon.reload"):
    pass


class StopParams(Params, method="daemon.stop"):
    pass


class DoctorParams(Params, method="daemon.doctor"):
    pass


class ModelListParams(Params, method="model.list"):
    pass


class ToolListParams(InSession, method="tool.list"):
    """Of that session; with neither ``session`` nor ``cwd``: of a new one."""


class UsageShowParams(InSession, method="usage.show"):
    """What was spent ``since`` (Unix ms), summed up. With neither ``session`` nor ``cwd``: by all."""

    by: Literal["session", "day", "model"] = "day"
    since: int = 0
