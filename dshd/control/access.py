"""Who may do what, decided once per connection; sans-IO.

Three sets of people can reach the socket: its owner and root (others are turned away before a byte is
read, whatever the file's mode says), and the owner's own tools, whose processes have the owner's uid
too. Those are told apart by what the kernel says about their ancestors, and are *agents* from then on:
they may read, and send to their own session; nothing they say of themselves changes that.

| who                       | reads | sends                | everything else that writes |
|---------------------------|-------|----------------------|-----------------------------|
| owner, root               | yes   | yes                  | yes                         |
| the same, ``mode: read``  | yes   | no                   | no                          |
| agent                     | yes   | to its own session   | no                          |
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

from dshd.errors import Denied
from dshd.paths import Credentials
from dshd.session.fold.who import Peer

HOOK: Final = "hook "  # before the session's id, where what is below it is a hook, not a tool
AgentMay = Literal["yes", "own", "no"]


def admits(credentials: Credentials, owner: int) -> bool:
    """Whether this uid may talk to a daemon of ``owner`` at all."""
    return credentials.uid in (owner, 0)


def peer_of(credentials: Credentials, tool_of: str | None) -> Peer:
    """Who is there, before it has said anything. ``tool_of``: the session whose tool it is below; "" if
    of an unknown one; None: not below a tool. What is below a hook may do what a tool may."""
    uid, gid, pid = credentials.uid, credentials.gid, credentials.pid
    if tool_of is None:
        return Peer(uid, gid, pid)
    session, is_hook = tool_of.removeprefix(HOOK), tool_of.startswith(HOOK)
    return Peer(uid, gid, pid, kind="agent", session=session or None, hook=is_hook)


@attrs.frozen(slots=True)
class Rights:
    """What a connection may do, once it has said hello."""

    peer: Peer
    writes: bool

    def check(self, method: str, writes: bool, agent: AgentMay) -> None:
        """Raises `Denied`. "own" is settled by `check_session`, when the session is known."""
        if writes and not self.writes:
            raise Denied(f"this connection is for reading only; {method} writes.", outcome="not-written")
        if self.peer.kind == "agent" and agent == "no":
            raise Denied(f"a tool may not do that ({method}).", outcome="not-written")

    def check_session(self, session: str) -> None:
        """For what an agent may do to its own session only."""
        if self.peer.kind == "agent" and self.peer.session != session:
            raise Denied("a tool may send to its own session only.", outcome="not-written")
