"""Who asks: a connection's peer, and the `source` that its messages carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dshd.session.fold.values import shared

KINDS = ("user", "schedule", "agent", "job", "hook", "plugin", "system")


@attrs.frozen(slots=True)
class Peer:
    """One end of a connection, as the kernel and the client's hello describe it.

    ``kind`` is decided by us (`agent` for a process below one of our tools, whatever it says);
    ``session`` is, for an agent, the session whose tool it is; ``hook``: it is a hook of that session.
    """

    uid: int
    gid: int = 0
    pid: int = 0
    kind: str = "user"
    tty: str | None = None
    client: str | None = None
    session: str | None = None
    hook: bool = False
    _sources: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def source(self, lowered: str | None = None) -> dict[str, Any]:
        """A message's ``source``. ``lowered`` (``--as``) replaces the kind of a user, never raises.

        The same one each time, to be looked at only: all the messages of a peer share it.
        """
        kind = lowered if lowered and self.kind == "user" else "hook" if self.hook else self.kind
        found = self._sources.get(kind)
        if found is None:
            found = self._sources[kind] = shared(self._source(kind))
        return found

    def _source(self, kind: str) -> dict[str, Any]:
        return {
            "kind": kind,
            "via": "rpc",
            "uid": self.uid,
            "pid": self.pid,
            "tty": self.tty,
            "client": self.client,
        }


SYSTEM: Mapping[str, Any] = {"kind": "system", "via": "driver"}
