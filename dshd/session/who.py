"""Who asks: a connection's peer, and the `source` that its messages carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

KINDS = ("user", "schedule", "agent", "job", "hook", "plugin", "system")


@attrs.frozen(slots=True)
class Peer:
    """One end of a connection, as the kernel and the client's hello describe it.

    ``kind`` is decided by us (`agent` for a process below one of our tools, whatever it says);
    ``session`` is, for an agent, the session whose tool it is.
    """

    uid: int
    gid: int = 0
    pid: int = 0
    kind: str = "user"
    tty: str | None = None
    client: str | None = None
    session: str | None = None

    def source(self, lowered: str | None = None) -> dict[str, Any]:
        """A message's ``source``. ``lowered`` (``--as``) replaces the kind of a user, never raises."""
        kind = lowered if lowered and self.kind == "user" else self.kind
        return {
            "kind": kind,
            "via": "rpc",
            "uid": self.uid,
            "pid": self.pid,
            "tty": self.tty,
            "client": self.client,
        }


SYSTEM: Mapping[str, Any] = {"kind": "system", "via": "driver"}
