"""What the sessions need of the process they live in."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from dshd.log.threads import Threads
from dshd.session.owner.loading import Upkeep


def _no_one(id: str) -> None:
    pass


@attrs.frozen(kw_only=True)
class Host:
    """``start`` runs a coroutine function in the daemon's session nursery; ``threads`` write. ``on_lines`` is
    given what was written (session, first seq, lines), ``on_reset`` that a session's lines end at a seq
    again, ``on_gone`` that one was removed. ``boot`` names this run of the daemon; ``what_ends_us`` says what
    may end it before a send is due. Without ``upkeep`` nothing is unloaded."""

    start: Callable[..., None]
    threads: Threads
    on_lines: Callable[[str, int, list[bytes]], None]
    on_reset: Callable[[str, int], None]
    on_gone: Callable[[str], None] = _no_one
    what_ends_us: Callable[[], str | None] = lambda: None
    boot: str
    version: str
    upkeep: Upkeep | None = None
