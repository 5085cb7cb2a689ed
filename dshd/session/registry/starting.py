"""One session opened at the daemon's start, whatever its files are like: now, later, or not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from dshd.driver.port import ROOM_POLL_S
from dshd.errors import Damaged, DshError, NoSpace, NotFound
from dshd.session.owner.session import Session

log = logging.getLogger(__name__)

AGAIN_S: Final = 60.0  # after an opening that failed


class Starting:
    """``make_room`` gives up the reserve and says whether there was one."""

    def __init__(
        self, get: Callable[[str], Awaitable[Session]], make_room: Callable[[], bool],
        start: Callable[..., None],
    ) -> None:  # fmt: skip
        self._get = get
        self._make_room = make_room
        self._start = start

    async def one(self, id: str) -> None:
        """Load it and let it go on. Raises nothing: one session is not the end of the others."""
        try:
            session = await self._get(id)
            await session.start()
        except NoSpace as error:
            log.warning("session %s is opened when there is room: %s", id, error)
            self._start(self._with_room, id)
        except (Damaged, NotFound) as error:
            log.error("session %s was not opened: %s", id, error)
        except DshError as error:
            log.error("session %s was not opened: %s; tried again in a minute", id, error)
            self._start(self._again, id)
        except Exception:  # the boundary: a mistake of ours in one session is not the end of the others
            log.exception("session %s was not opened", id)

    async def _again(self, id: str) -> None:
        """Its files could not be read or written, for what reason ever; it has work to do."""
        await trio.sleep(AGAIN_S)
        await self.one(id)

    async def _with_room(self, id: str) -> None:
        """A torn tail could not be set aside: the disk is full."""
        if not self._make_room():
            await trio.sleep(ROOM_POLL_S)
        await self.one(id)
