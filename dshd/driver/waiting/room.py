"""Waiting for room on a full disk, where nothing has begun that waiting would lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from dshd.driver.port import ROOM_POLL_S
from dshd.driver.run import Run
from dshd.errors import NoSpace
from dshd.hooks import causes
from dshd.session.deciding.scratch import Scratch
from dshd.session.shown.activities import WAITS_FOR_ROOM

T = TypeVar("T")
Decide = Callable[[Scratch], T]


async def when_room(run: Run, decide: Decide[T]) -> T:
    """Record it; on a full disk as soon as there is room. Ending the turn there would park what a person
    left to run unattended."""
    while True:
        try:
            return await run.owner.record(decide)
        except NoSpace:
            run.services.attention(causes.full())
            run.says(WAITS_FOR_ROOM.doing, waits=WAITS_FOR_ROOM.waits)
            await trio.sleep(ROOM_POLL_S)
