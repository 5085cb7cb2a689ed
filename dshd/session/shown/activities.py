"""What a session does just now, and what it waits for, in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from dshd import reasons
from dshd.session.fold.approvals import Approval
from dshd.session.fold.turns import Wait


@attrs.frozen(slots=True)
class Activity:
    """What the driver does now. ``doing`` is one short line, ``since`` Unix ms; ``waits`` is set
    while the activity waits for something outside (a provider, room on the disk), ``until`` (Unix
    ms) if it is known how long."""

    phase: str = "idle"
    doing: str | None = None
    since: int | None = None
    waits: str | None = None
    until: int | None = None


def waiting_for(code: str | None) -> str:
    """What a turn does whose last attempt failed with this code, in a line."""
    return reasons.waiting(reasons.provider(code))


def waits_for(asked: Approval) -> Activity:
    """What a session does whose step waits for an answer."""
    return Activity("running", f"waits for {asked.id}: {asked.what}", asked.at, "approval", asked.expires)


def of_wait(wait: Wait, asks: Sequence[Approval] = ()) -> Activity:
    """What a session does whose open step waits."""
    if asks:
        return waits_for(asks[0])
    if wait.what == "approval":
        return Activity("running", "about to go on", wait.until)
    return Activity("running", waiting_for(wait.code), wait.since, wait.what, wait.until)


IDLE: Final = Activity()
WAITS_FOR_ROOM: Final = Activity("running", reasons.waiting("disk full"), None, "disk full")
