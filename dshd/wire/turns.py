"""Turns: to stop them, to go on with them, to wait for their end."""

from __future__ import annotations

from dshd.wire.params import InSession, check_reason
from dshd.wire.terms import Disposition


class AbortParams(InSession, method="session.abort"):
    turn: int | None = None
    disposition: Disposition = "keep"
    tree: bool = True
    reason: str | None = None

    def check(self) -> None:
        check_reason(self.reason)


class WakeParams(InSession, method="session.wake"):
    """``all``: every session; ``message``: release a held one. ``add`` raises the budget that stopped the
    session: ``{cost: 2}``, by the kinds in `dshd.budgets`, time in seconds."""

    message: str | None = None
    all: bool = False
    add: dict[str, float] = {}  # noqa: RUF012 - never changed


class RetryParams(InSession, method="session.retry"):
    """The last turn once more, with nothing new said. ``message``: only if it is one of that turn.
    ``tied``: aborted when this connection ends."""

    message: str | None = None
    tied: bool = False


class CompactParams(InSession, method="session.compact"):
    """Compact the conversation; answered when that is done."""


class WaitParams(InSession, method="session.wait"):
    """Wait for the end of these messages, or (none) for idle. ``stay``: also where only a person helps.
    ``asked``: approvals that the client knows of; another one ends the waiting, ``stay`` or not."""

    messages: tuple[str, ...] = ()
    stay: bool = False
    asked: tuple[str, ...] | None = None
