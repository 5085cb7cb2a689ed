"""Schedules of all sessions: added, looked at, changed, fired.

| a schedule that           | is in the log of | is fired by                                              |
|---------------------------|------------------|----------------------------------------------------------|
| sends to a session        | that session     | one batch: the message and what became of it             |
| makes a new run each time | `schedules.HOME` | making the run under the key of the instant, then noting |
|                           |                  | that: who comes again after a crash makes it no second   |
|                           |                  | time                                                     |

`HOME` is a log like a session's, made with the first schedule, that nobody can send to.
How runs are made is in `scheduled_runs`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import attrs
import trio

from dshd import wire
from dshd.driver.port import Services
from dshd.errors import Conflict, Denied, DshError, Invalid, NotFound
from dshd.log.store import Store
from dshd.session.deciding import firing, scheduling, when
from dshd.session.deciding.scheduling import Wanted
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import events
from dshd.session.fold.events import VERSION
from dshd.session.fold.schedules import HOME, Firing, Schedule, When
from dshd.session.fold.state import State
from dshd.session.fold.who import Peer
from dshd.session.owner import loading
from dshd.session.owner.board import Board
from dshd.session.owner.session import Session
from dshd.session.registry import environment
from dshd.session.registry.creating import Creator
from dshd.session.registry.hops import Hops
from dshd.session.registry.listing import Listing
from dshd.session.registry.loader import Loader
from dshd.session.registry.numbers import Numbers
from dshd.session.registry.scheduled_runs import Runs
from dshd.session.shown import scheduled

log = logging.getLogger(__name__)
Json = dict[str, Any]


class Scheduler:
    def __init__(
        self, store: Store, hops: Hops, listing: Listing, loader: Loader, creator: Creator,
        services: Services, board: Board, numbers: Numbers,
        what_ends_us: Callable[[], str | None],
    ) -> None:  # fmt: skip
        self._store = store
        self._hops = hops
        self._listing = listing
        self._loader = loader
        self._runs = Runs(store, hops, listing, creator, services)
        self._services = services
        self._board = board
        self._numbers = numbers
        self._what_ends_us = what_ends_us
        self._making = trio.Lock()
        self._ready = trio.Event()

    def ready(self) -> None:
        """All that have schedules have told the board."""
        self._ready.set()

    # --- the log that belongs to no session

    async def home(self) -> Session | None:
        """None if there was never a schedule that makes runs."""
        if not await self._hops.read(lambda: self._store.exists(HOME)):
            return None
        return await self._loader.get(HOME)

    async def _made_home(self) -> Session:
        async with self._making:
            found = await self.home()
            if found is None:
                await self._hops.write(self._make)
                found = await self._loader.get(HOME)
            return found

    def _make(self) -> None:
        s = Scratch(State(), self._services.now(), -1)
        own = {
            "version": VERSION,
            "id": HOME,
            "name": HOME,
            "created": s.now,
            "dir": "/",
            "origin": "schedules",
            "depth": 0,
        }
        s.emit("session/header", events.header(own))
        self._store.create(HOME, b"".join(s.lines))

    # --- adding

    def check(self, p: wire.ScheduleAddParams) -> None:
        """Raises `Invalid` and `Full` for what is wrong wherever it is to be sent."""
        p.check()
        self._wanted(p).check()

    async def add(self, session: Session | None, p: wire.ScheduleAddParams, peer: Peer) -> Json:
        """``session`` None: a new run each time (``p.run``).

        Raises `Invalid` (when), `Conflict`, `Full`, and of a run what making it would.
        Durability: on return it is on disk.
        """
        if peer.kind == "agent":
            raise Denied("a tool can't add schedules.", outcome="not-written")
        wanted = self._wanted(p)
        wanted.check()
        if session is None:
            id, where = await self._add_run(wanted, p, peer), HOME
        else:
            id, where = await self._add_to(session, wanted, peer), session.id
        return {**await self._row(where, id), "warning": self._what_ends_us()}

    def _wanted(self, p: wire.ScheduleAddParams) -> Wanted:
        run = None
        if p.run is not None:
            plain, _secret = environment.parted(p.run.env)
            run = p.run.replace(env=plain, terminal=False).to_json()
        when = _when(p, self._services.now())
        return Wanted(when=when, typed=p.typed, text=p.text, overlap=p.overlap, catch_up=p.catch_up, run=run)

    async def _add_to(self, session: Session, wanted: Wanted, peer: Peer) -> str:
        """Decided twice, for the number is taken in between."""
        ledger, by = session.guard_person(peer), peer.source()
        await ledger.propose(lambda s: scheduling.add(Scratch(s.state, s.now, -1), "c0", wanted, by))
        (id,) = await self.take_numbers(session.id, 1)
        await ledger.propose(lambda s: scheduling.add(s, id, wanted, by))
        return id

    async def _add_run(self, wanted: Wanted, p: wire.ScheduleAddParams, peer: Peer) -> str:
        assert p.run is not None
        await self._runs.check(p.run.replace(text=p.text), peer)
        by = peer.source()
        home = await self._made_home()
        (id,) = await self.take_numbers(HOME, 1)
        await self._runs.keep(id, p.run.env)
        await home.writable().propose(lambda s: scheduling.add(s, id, wanted, by))
        return id

    async def take_numbers(self, session: str, count: int) -> list[str]:
        """Ids for schedules of a session, after all that there are: some came with a session from elsewhere.

        Durability: on return nobody else gets them.
        """
        newest = max((int(one.id[1:]) for _, one in self._board.all()), default=0)
        return await self._numbers.take("c", count, session, least=newest + 1)

    # --- looking

    async def rows(self, session: str | None) -> list[Json]:
        """``schedule`` objects of a session, or of all, the next first; not those that are over."""
        await self._ready.wait()
        found = self._board.all()
        rows = [
            scheduled.schedule(one, self._listing.view(id), scheduling.coming(one))
            for id, one in found
            if not one.over and session in (None, id)
        ]
        return sorted(rows, key=lambda row: (row["next_at"] is None, row["next_at"] or 0, row["id"]))

    async def summary(self) -> Json:
        """What `status` says: how many, the next, and what was refused last time and needs somebody."""
        rows = await self.rows(None) if self._ready.is_set() else []
        refused = [row for row in rows if row["last"] and row["last"]["skipped"] == "refused"]
        due = [row for row in rows if row["next_at"] is not None]
        return {"count": len(rows), "next": due[0] if due else None, "refused": refused}

    async def log(self, id: str) -> Json:
        """The schedule with its ``firings``, the newest last (`schedules.KEPT` of them)."""
        session = await self._session_of(id)
        found = scheduling.of(session.state, id)
        firings = [await self._firing(session, found, one) for one in found.firings]
        return {**await self._row(session.id, id), "firings": firings}

    async def _row(self, session: str, id: str) -> Json:
        found = scheduling.of(State(schedules=self._board.of(session)), id)
        return scheduled.schedule(found, self._listing.view(session), scheduling.coming(found))

    async def _session_of(self, id: str) -> Session:
        """The session, or `HOME`, that has this one. Raises `NotFound`."""
        await self._ready.wait()
        if not id.startswith("c") or not id[1:].isdecimal():
            raise Invalid(f'"{id}" is not the id of a schedule', hint="dshctl schedule ls")
        where = self._board.where(id) or await self._numbers.session_of(id)
        if where is None:
            raise NotFound(f"no schedule {id}", hint="dshctl schedule ls")
        with contextlib.suppress(NotFound):
            session = await self._loader.get(where)
            if id in session.state.schedules:
                return session
        raise NotFound(f"schedule {id} was removed.", hint="dshctl schedule ls")

    async def _firing(self, session: Session, found: Schedule, one: Firing) -> Json:
        state = self._state(session, one)
        if one.session is not None and state in ("closed", "idle", "parked"):
            one = attrs.evolve(one, outcome=await self._outcome(one.session))
        return scheduled.firing(found, one, None if one.outcome is not None else state)

    async def _outcome(self, run: str) -> str | None:
        """How a run has ended whose end is not noted: a crash came between the two."""
        try:
            state = (await self._loader.get(run)).state
        except DshError:
            return None
        turn = state.turns.get(state.last_turn)
        return turn.reason if turn is not None else None

    def _state(self, session: Session, one: Firing) -> str | None:
        """Where what was sent is now, if its end is not known."""
        if one.message is None or one.outcome is not None:
            return None
        if one.session is not None:
            view = self._listing.view(one.session)
            return "removed" if view is None else str(view["state"])
        receipt = session.state.receipts.get(one.message)
        return None if receipt is None else receipt.state

    # --- changing

    async def change(self, op: str, id: str, peer: Peer) -> Json:
        """``op``: rm, pause or resume; what it was, or is now."""
        session = await self._session_of(id)
        ledger, by = session.guard_person(peer), peer.source()
        before = await self._row(session.id, id)
        decide = {"rm": scheduling.remove, "pause": scheduling.pause, "resume": scheduling.resume}[op]
        await ledger.propose(lambda s: decide(s, id, by))
        if op != "rm":
            return await self._row(session.id, id)
        if session.id == HOME:
            await self._runs.forget(id)
        return before

    async def run(self, id: str, peer: Peer) -> Json:
        """Fire it now; the schedule, with what became of that as ``last``."""
        session = await self._session_of(id)
        ledger, by = session.guard_person(peer), peer.source()
        if session.id == HOME:
            one = scheduling.of(session.state, id)
            await self._runs.fire(session, firing.at_once(one, self._services.now(), by))
        else:
            await ledger.propose(lambda s: _run_now(s, id, by, self._most))
        return await self._row(session.id, id)

    @property
    def _most(self) -> int:
        return int(self._services.config().inbox.max_pending)

    # --- firing

    async def fire(self, id: str) -> None:
        """Settle what is due in this session. Raises what the disk refuses with; then nothing is settled."""
        await self._ready.wait()
        if self._loader.draining:
            await trio.sleep_forever()
        with loading.holding():
            session = await self._loader.get(id)
            if id == HOME:
                await self._runs.fire_due(session)
            else:
                await self._recall(session)
                await session.writable().record(lambda s: firing.tick(s, self._most))

    async def _recall(self, session: Session) -> None:
        """What is decided on may have left memory long ago."""
        for one in session.state.schedules.values():
            if one.due is not None and one.due <= self._services.now():
                names = [("k", firing.key_of(one.id, one.due))]
                names += [("m", one.sent.message)] if one.sent and one.sent.message else []
                for instant in filter(None, (firing.due(one, self._services.now()),)):
                    names.append(("k", instant.key))
                loading.hold_or_drop(await session.recall(*names))

    # --- what a run's end tells

    async def ended(self, key: str, outcome: str) -> None:
        """Of the run with this key."""
        home = await self.home()
        if home is not None and home.usable:
            await self._runs.ended(home, key, outcome)


def _when(p: wire.ScheduleAddParams, now: int) -> When:
    if p.cron is not None:
        return when.cron(p.cron, p.zone)
    if p.every is not None:
        return when.every(round(p.every * 1000), now, p.zone)
    return when.at(p.at or 0, p.zone)


def _run_now(s: Scratch, id: str, by: Json, most: int) -> None:
    if s.state.closed:
        raise Conflict(f"not fired: session {s.state.name} is closed.", outcome="not-written")
    firing.settle(s, firing.at_once(scheduling.of(s.state, id), s.now, by), most)
