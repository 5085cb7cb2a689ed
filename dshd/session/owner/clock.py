"""What happens in a session because a moment has come: held messages come due, others expire.

The wall clock decides, however it jumps: it is looked at again after every change, and at least every
`LOOK_S`. While nothing has a time there is no task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import trio

from dshd.errors import DshError
from dshd.session.deciding import queueing
from dshd.session.disk.ledger import Ledger
from dshd.session.fold import inbox
from dshd.session.fold.state import State

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0  # how long a wall clock that jumps can go unnoticed


class Timed(Protocol):
    """The session, as its clock sees it."""

    id: str
    ledger: Ledger | None

    @property
    def state(self) -> State: ...

    @property
    def usable(self) -> bool: ...


class Clock:
    """``now`` gives Unix ms; ``start`` runs a coroutine function in the session nursery. ``watched``:
    whether a task waits for the next moment."""

    def __init__(self, session: Timed, now: Callable[[], int], start: Callable[..., None]) -> None:
        self.watched = False
        self._session = session
        self._now = now
        self._start = start

    def watch(self) -> None:
        if not self.watched and self._session.state.timed and self._session.usable:
            self.watched = True
            self._start(self._run)

    async def _run(self) -> None:
        session = self._session
        try:
            while session.ledger and session.usable:
                moment = inbox.next_moment(session.state.queues)
                if moment is None:
                    break
                wait = max(0.0, (moment - self._now()) / 1000)
                with trio.move_on_after(min(wait, LOOK_S)):
                    await session.ledger.changed.wait()
                if moment <= self._now():
                    await session.ledger.record(queueing.tick)
        except DshError as error:
            log.warning("session %s: due messages wait: %s", session.id, error)
            await trio.sleep(1)
        finally:
            self.watched = False
        self.watch()
