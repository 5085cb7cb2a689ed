"""A log: read, and followed."""

from __future__ import annotations

from dshd.wire.params import InSession, Params, Position


class LogReadParams(InSession, method="log.read"):
    """A piece of a log, as ``log.event`` notifications, then the answer.

    Chosen by the last ``turns`` turns, by ``turn`` ``(first, last)``, by ``since`` (Unix ms), or by
    ``after``; none of them: the whole log. ``chunks``: with ``assistant/chunk`` events.
    """

    after: Position | None = None
    turns: int | None = None
    turn: tuple[int, int] | None = None
    since: int | None = None
    chunks: bool = False


class LogFollowParams(InSession, method="log.follow"):
    """Stream from ``after`` (None: from the start, or the last ``turns`` turns; 0: only what comes).

    ``all``: every session, each from its place in ``positions``, others from now on.
    """

    after: Position | None = None
    turns: int | None = None
    chunks: bool = True
    all: bool = False
    positions: dict[str, Position] = {}  # noqa: RUF012 - never changed


class LogUnfollowParams(Params, method="log.unfollow"):
    """``session`` is the id that `log.follow` answered; None ends all of this connection's."""

    session: str | None = None
