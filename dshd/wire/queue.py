"""What waits."""

from __future__ import annotations

from typing import Any

from dshd.wire.params import InSession, OfMessages, Params
from dshd.wire.terms import Queue


class QueueLsParams(InSession, method="queue.ls"):
    queue: Queue | None = None


class QueueShowParams(Params, method="queue.show"):
    message: str


class QueueEditParams(Params, method="queue.edit"):
    """``version`` is the one that `queue.show` told; None edits whatever is there."""

    message: str
    text: str | None = None
    content: list[dict[str, Any]] | None = None
    version: int | None = None


class QueueFirstParams(OfMessages, method="queue.first"):
    pass


class QueueLastParams(OfMessages, method="queue.last"):
    pass


class QueuePromoteParams(OfMessages, method="queue.promote"):
    pass


class QueueDemoteParams(OfMessages, method="queue.demote"):
    pass


class QueueRmParams(OfMessages, method="queue.rm"):
    pass


class QueueClearParams(InSession, method="queue.clear"):
    queue: Queue | None = None


class QueueUndoParams(InSession, method="queue.undo"):
    """Take back the newest removal, clearing, expiry, supersession, reject or aborted message."""
