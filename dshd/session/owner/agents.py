"""The subagents of one session: started, looked after to their end, told of once.

Each is a session of its own, which `House` makes, finds and stops. Whatever becomes of it is told here
(`Agents.child`), after each of its batches, and written down in this session's log; so what was missed in a
crash is found by looking again (`Agents.resume`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import trio

from dshd.driver.port import ROOM_POLL_S, Owner, Services
from dshd.errors import Conflict, DshError, NoSpace, Stalled
from dshd.log.codec import Event
from dshd.session.deciding import subagenting
from dshd.session.fold.state import State
from dshd.session.fold.subagents import Subagent

log = logging.getLogger(__name__)
Json = dict[str, Any]

STOP_LIMIT_S: Final = 15.0  # for one to end when it is told to


class House(Protocol):
    """Where the sessions of subagents are (`registry.kin`)."""

    async def fresh_id(self) -> str: ...

    async def make(self, parent: str, one: Subagent) -> State:
        """The session of this subagent, made if it isn't there, with its prompt. Durability: on disk."""
        ...

    async def say(self, parent: str, id: str, text: str) -> None: ...

    async def abort(self, id: str, by: Any) -> State | None:
        """Stop what it does, and clear what waits; how it is then. None: it isn't there."""
        ...

    async def close_all(self, parent: str, by: Any) -> None:
        """Close those of its sessions that are open still."""
        ...

    def changed(self, state: State) -> None:
        """Something became of a subagent's session."""
        ...

    def asked(self, state: State) -> None:
        """A subagent's session has asked a person something, or has an answer."""
        ...

    def asks(self, id: str) -> list[Json]:
        """The questions of this subagent and of those below it that keep it from its end."""
        ...


class Agents:
    """``start`` runs a coroutine function in the session nursery."""

    def __init__(
        self, owner: Owner, id: str, services: Services, start: Callable[..., None], house: House
    ) -> None:
        self._owner = owner
        self._id = id
        self._services = services
        self._start = start
        self._house = house
        self._awaited: set[str] = set()  # of these a call tells
        self._quiet: set[str] = set()  # of these nobody needs to be told
        self._ending: set[str] = set()

    @property
    def busy(self) -> bool:
        return any(not one.told for one in self._owner.state.agents.values())

    @property
    def wakes(self) -> bool:
        """Whether the end of one will have this session go on, if nobody says anything before."""
        parked = self._owner.state.parked
        return bool(self._owner.state.running_agents) and (parked is None or parked.by == "error")

    def awaited(self) -> list[str]:
        """Those at work that a call waits for."""
        return [one.id for one in self._owner.state.running_agents if one.id in self._awaited]

    def asks(self, *, all: bool = False) -> list[Json]:
        """What a person is to answer before the calls that wait for subagents can end (``all``: before all
        subagents can), the oldest first."""
        running = [one.id for one in self._owner.state.running_agents]
        found = [asked for id in running if all or id in self._awaited for asked in self._house.asks(id)]
        return sorted(found, key=lambda asked: asked["asked_at"])

    # --- what the tool asks (`tools.agents.Kin`)

    async def start(self, prompt: str, context: str, call: str) -> str:
        id = await self._house.fresh_id()
        await self._owner.record(lambda s: subagenting.start(s, id, call, prompt, context))
        problem: DshError | None = None
        with trio.CancelScope(shield=True):
            try:
                await self._house.make(self._id, self._owner.state.agents[id])
            except DshError as error:
                problem = error
            if problem is not None:
                self._quiet.add(id)
                await self._write_end(id, "failed", problem.message, {})
                raise problem
        return id

    async def steer(self, id: str, text: str) -> None:
        if not subagenting.of(self._owner.state, id).runs:
            raise Conflict(f"{id} has ended; start another.", outcome="not-written")
        await self._house.say(self._id, id, text)

    async def wait(self, id: str | None) -> list[tuple[str, str, bool]]:
        agents = self._owner.state.agents
        ids = [one.id for one in agents.values() if not one.told] if id is None else [id]
        for one in ids:
            subagenting.of(self._owner.state, one)
        self._awaited.update(ids)
        self._owner.rested()  # who waits for this session now waits for them, too
        try:
            while any(self._owner.state.agents[one].runs for one in ids):
                await self._owner.next_change()
        except BaseException:
            self._awaited.difference_update(ids)
            self.poke()
            raise
        found = [self._owner.state.agents[one] for one in ids]
        return [(one.id, subagenting.said(one), not one.told) for one in found]

    async def stop(self, id: str) -> str:
        if not subagenting.of(self._owner.state, id).runs:
            raise Conflict(f"{id} has ended.", outcome="not-written")
        await self._stop(id, {"kind": "agent", "via": self._id})
        return subagenting.said(self._owner.state.agents[id])

    # --- stopping

    def heed(self, events: list[Event]) -> None:
        """An interrupt stops those that the turn has started which it stops. An abort's are stopped by who
        asks for it (`stop_all`), for it may leave them."""
        for event in events:
            if event.type == "inbox/spliced" and "interrupts" in event.data:
                by, turn = event.data.get("by"), event.data["interrupts"]
                for one in self._owner.state.running_agents:
                    if one.turn == turn:
                        self._start(self._stop_with_turn, one.id, by)

    async def _stop_with_turn(self, id: str, by: Any) -> None:
        try:
            await self._stop(id, by)
        except DshError as error:
            log.warning("subagent %s: %s", id, error)

    async def stop_all(self, by: Any) -> None:
        async with trio.open_nursery() as nursery:
            for one in self._owner.state.running_agents:
                nursery.start_soon(self._stop, one.id, by)

    async def _stop(self, id: str, by: Any) -> None:
        """Whoever asks for it is told; nobody else has to be."""
        self._quiet.add(id)
        state = await self._house.abort(id, by)
        if state is None or (state.turn is None and not state.runnable):
            self._ends(id, *_result(state), {} if state is None else state.spent)
        with trio.move_on_after(STOP_LIMIT_S):
            while self._owner.usable and self._owner.state.agents[id].runs:
                await self._owner.next_change()
            return
        raise Stalled(f"{id} is stopped, but has not ended for {STOP_LIMIT_S:.0f} s.", outcome="unknown")

    async def close_all(self, by: Any) -> None:
        if self._owner.state.agents:
            await self._house.close_all(self._id, by)

    # --- what becomes of them

    def child(self, state: State) -> None:
        """How one of them is now. Synchronous."""
        one = self._owner.state.agents.get(state.id)
        if one is None or not one.runs or not self._owner.usable:
            return
        if subagenting.is_over(state):
            self._ends(state.id, *subagenting.result(state), state.spent)
        elif state.spent and dict(one.spent) != dict(state.spent):
            usage = dict(state.spent)
            self._owner.post(lambda s: subagenting.spent(s, state.id, usage))

    def _ends(self, id: str, outcome: str, text: str, usage: Mapping[str, Any]) -> None:
        if id not in self._ending:
            self._ending.add(id)
            self._start(self._write_end, id, outcome, text, dict(usage))

    async def _write_end(self, id: str, outcome: str, text: str, usage: Mapping[str, Any]) -> None:
        quiet = id in self._quiet
        try:
            while self._owner.usable:
                try:
                    await self._owner.record(
                        lambda s: subagenting.end(s, id, outcome, text, usage, quiet=quiet)
                    )
                    return
                except NoSpace:
                    await trio.sleep(ROOM_POLL_S)
        except DshError as error:
            log.warning("that subagent %s has ended is not written: %s", id, error)
        finally:
            self._ending.discard(id)
            self._quiet.discard(id)

    def poke(self) -> None:
        """Tell of those that have ended, unless a call does it."""
        state = self._owner.state
        if not state.agents or not self._owner.usable:
            return
        if state.turn is None:
            self._awaited.clear()
        for one in state.untold_agents:
            if one.id not in self._awaited:
                id = one.id
                self._owner.post(lambda s, id=id: subagenting.tell(s, id))  # type: ignore[misc]

    def resume(self) -> None:
        """Look after those again that an earlier daemon has left at work."""
        for one in self._owner.state.running_agents:
            self._start(self._look_after, one)
        self.poke()

    async def _look_after(self, one: Subagent) -> None:
        try:
            self.child(await self._house.make(self._id, one))
        except DshError as error:
            log.warning("subagent %s: %s", one.id, error)
            self._ends(one.id, "failed", error.message, one.spent)


def _result(state: State | None) -> tuple[str, str]:
    if state is None or not state.last_turn:
        return "aborted", ""
    return subagenting.result(state)
