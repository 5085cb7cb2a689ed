"""How far a client's connection has come, and how its parts tell each other.

States, and what leads from one to the next:

- ``new``: only hello is taken, for `connection.HELLO_S` s;
- ``open``: everything is;
- ``ending``: nothing more is read; what is under way is answered;
- ``closed``.
"""

from __future__ import annotations

from typing import Final, Literal

import trio

State = Literal["new", "open", "ending", "closed"]
Event = Literal["hello", "no more", "done", "gone"]

TABLE: Final[dict[State, dict[Event, State]]] = {
    "new": {"hello": "open", "no more": "ending", "gone": "closed"},
    "open": {"hello": "open", "no more": "ending", "gone": "closed"},
    "ending": {"hello": "ending", "done": "closed", "gone": "closed"},
    "closed": {},
}


class Life:
    """One connection's. ``scope`` holds all that is done for its client alone."""

    __slots__ = ("_changed", "scope", "state")

    def __init__(self) -> None:
        self.state: State = "new"
        self.scope = trio.CancelScope()
        self._changed: trio.Event | None = None  # there while somebody waits for a change

    def step(self, event: Event) -> None:
        self.state = TABLE[self.state].get(event, self.state)

    def lose(self, why: Event = "gone") -> None:
        """Nobody is there any more: end what is done for them alone."""
        self.step(why)
        self.scope.cancel()

    def close(self) -> None:
        self.state = "closed"

    def note(self) -> None:
        """Something has changed that somebody may wait for."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def change(self) -> None:
        """Returns after the next `note`."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()
