"""Hooks of `turn_end`: run when a turn's end is durable, in the order of the turns, beside what comes next.

That they are owed is written in the batch of `turn/end` (`hook/due`), each try, durably, before it is made
(`hook/begun`), and that all is done behind it (`hook/done`). So after a crash at any instant they run for
every turn that ended: once as a rule, and twice if the daemon died while they ran (the second time is told
that it is one, by ``again``). What has failed to come to an end that often is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs
import trio

from dshd.errors import DshError
from dshd.hooks import payload
from dshd.hooks.causes import about
from dshd.hooks.gates import ran
from dshd.hooks.payload import About
from dshd.hooks.runner import name_of
from dshd.session.fold.state import State

log = logging.getLogger(__name__)

MOST_TRIES: Final = 2
AGAIN_S: Final = 60.0  # what the disk refused is tried again, at the next change or after this


class Owner(Protocol):
    """The session: its state, and its log."""

    @property
    def state(self) -> State: ...

    @property
    def usable(self) -> bool: ...

    def rested(self) -> None: ...

    async def record(self, decide: Callable[[Any], Any]) -> Any: ...


class TurnEnds:
    """One session's. ``services``: the daemon's (`driver.port.Services`); ``start`` runs a coroutine function
    beside everything else."""

    def __init__(self, owner: Owner, services: Any, start: Callable[..., None]) -> None:
        self._owner, self._services, self._start = owner, services, start
        self._scope: trio.CancelScope | None = None
        self._stopped = False
        self._asked = trio.Event()

    @property
    def working(self) -> bool:
        return self._scope is not None

    def poke(self) -> None:
        """Run what is owed, if it doesn't run already."""
        self._asked.set()
        if self._owner.state.ends and self._owner.usable and not self.working and not self._stopped:
            self._scope = trio.CancelScope()
            self._start(self._work, self._scope)

    def stop(self) -> None:
        """End what runs; the next start runs it again."""
        self._stopped = True
        if self._scope is not None:
            self._scope.cancel()

    async def _work(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                while self._owner.state.ends and self._owner.usable:
                    await self._next()
        finally:
            self._scope = None
        self._owner.rested()

    async def _next(self) -> None:
        turn = min(self._owner.state.ends)
        try:
            await self._one(turn, self._owner.state.ends[turn])
        except DshError as error:  # the disk is full, say
            log.warning("session %s: hooks of turn_end wait: %s", self._owner.state.id, error)
            self._asked = trio.Event()
            with trio.move_on_after(AGAIN_S):
                await self._asked.wait()

    async def _one(self, turn: int, tries: int) -> None:
        about_turn = {"event": "turn_end", "turn": turn}
        hooks = self._services.hooks.of("turn_end")
        if tries >= MOST_TRIES:
            log.warning("session %s: hooks of turn %d's end were cut off twice", self._owner.state.id, turn)
        elif hooks:
            await self._owner.record(lambda s: _begin(s, about_turn))
            await trio.lowlevel.checkpoint_if_cancelled()
            for hook in hooks:
                await self._run(hook, turn, tries > 0)
        await self._owner.record(lambda s: s.emit("hook/done", about_turn))

    async def _run(self, hook: Any, turn: int, again: bool) -> None:
        services, state = self._services, self._owner.state
        here = attrs.evolve(about(state, services.hooks.log(state.id)), turn=turn)
        place = services.hooks.place(here.dir, services.environment(state))
        run = await services.hooks.run(hook, place, _payload(here, state, turn, again))
        if run.answer.outcome == "failed":
            what = f"hook {name_of(hook)} (turn_end)"
            log.warning("session %s: %s failed: %s", state.id, what, run.answer.reason)
        await self._owner.record(lambda s: s.emit("hook/ran", ran(hook, run, {"turn": turn})))


def _begin(s: Any, about_turn: dict[str, Any]) -> None:
    """How often it is tried is decided by this, so it is synced like a *now* event."""
    s.emit("hook/begun", about_turn)
    s.urgent = True


def _payload(here: About, state: State, turn: int, again: bool) -> dict[str, Any]:
    ended = state.turns.get(turn)
    reason, cause, answer = (ended.reason, ended.cause, ended.answer) if ended is not None else ("", None, "")
    return payload.payload("turn_end", here, **payload.of_end(reason, cause, answer, again))
