"""The driver: one per session, opens turns while there is something to do, and ends each of them.

Its promises:

- **A turn always ends.** Whatever the work ends with, `_close` writes `turn/end`, outside the
  work's scope; on a full disk from the reserve, or as soon as there is room; with less, if all that it ends
  with can't be written (`ending`). What fails around the work ends the turn as well (`_stumbled`).
- **No wake is lost.** "Is anything to be done?" and going idle are one step without a checkpoint;
  what becomes durable later pokes an idle driver.
- **Maintenance is done between turns.** What is asked for while a turn runs is done at its next step, or when
  it has ended; what wakes meanwhile waits for it.
- **An abort works at once.** `cancel` needs no disk. That the turn was aborted is read from the
  log, so which messages came before and which after is decided there.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import trio

from dshd.driver import ending, opening, places, turn
from dshd.driver.asking import hurry
from dshd.driver.compacting.maintenance import maintain
from dshd.driver.history import History
from dshd.driver.phases import Phase, Work
from dshd.driver.places import Seat
from dshd.driver.port import ROOM_POLL_S, Owner, Services
from dshd.driver.run import Run, route_of
from dshd.driver.wishes import Wish, Wishes
from dshd.errors import DshError, Internal, Invalid, NoSpace, log_refused
from dshd.hooks import causes
from dshd.model.errors import ModelError
from dshd.session.deciding import budget
from dshd.session.deciding.closing import Ending
from dshd.session.fold.state import State
from dshd.session.fold.turns import Abort
from dshd.session.shown.activities import IDLE, WAITS_FOR_ROOM, Activity, of_wait

log = logging.getLogger(__name__)

AGAIN_S = 60.0  # after a turn that could not be opened, for a reason that has no handling of its own


class Driver:
    """``start`` runs a coroutine function in the daemon's session nursery."""

    def __init__(self, owner: Owner, services: Services, start: Callable[..., None]) -> None:
        self._owner = owner
        self._services = services
        self._start = start
        self._history = History()
        self.phase = Phase()
        self.work: Work | None = None
        self.draining = False
        self._asked: str | None = None
        self._waits_for_room = False
        self._seat = Seat(services.places)
        self._line = trio.CancelScope()  # while it stands in line, with no turn open
        self._wishes = Wishes()
        self._broke_off = False  # for maintenance, with something left to do

    # --- from outside, all synchronous

    def poke(self) -> None:
        """Start working if the phase is idle and there is something to do."""
        if self.phase.name != "idle":
            wanted = self._wishes.waiting is None and self._may_open(self._owner.state.goes_on)
            if self.in_line and not wanted:
                self._line.cancel()
        elif self._wishes.waiting is not None and not self._left_open and self._may_open(True):
            self.phase.on("maintain")
            self.work = Work(0)  # there at once: who aborts now means this, not the turn after it
            self._start(self._maintain, self.work)
        elif self._left_open or self._may_open(self._is_wanted()):
            self.phase.on("wake")
            self._start(self._drive)

    def _is_wanted(self) -> bool:
        """Whether an idle driver is to start; one that broke off for maintenance goes on as if it had run."""
        broke_off, self._broke_off = self._broke_off, False
        return self._owner.state.goes_on if broke_off else self._owner.state.runnable

    def ask_compaction(self, by: Mapping[str, Any]) -> Wish:
        """Have the conversation compacted, as soon as there is a place for it: now if nothing runs."""
        wish = self._wishes.ask(by)
        self.poke()
        return wish

    @property
    def maintains(self) -> bool:
        """Whether the activity is maintenance, which is no turn's."""
        return self.phase.public == "maintenance"

    def cancel(self, cause: str, turn: int | None = None) -> bool:
        """Cancel the activity (of this turn, if given), at once. Whether there was one to cancel."""
        work = self.work
        if work is None and turn is None:
            self._asked = cause  # a turn may be opening: it heeds this first of all
            self._line.cancel()
        if work is None or (turn is not None and work.turn != turn):
            return False
        if work.cancel(cause):
            self.phase.on("abort")
        return True

    def abort(self, turn: int, asked: Abort, clears: Iterable[str]) -> bool:
        """Cancel this turn's work, at once. If the disk doesn't take the event that says so, what was
        asked is written with the turn's end. False: nobody works at this turn."""
        if self.work is None or self.work.turn != turn:
            return False
        self.work.remember(asked, clears)
        return self.cancel(asked.cause, turn)

    def hurry(self) -> None:
        """Something was said, or taken back: it may be in a hurry (`hurry`)."""
        cut = self.work.cut if self.work is not None else None
        if cut is not None and hurry.wanted(self._owner.state, self._services.now()):
            cut.cancel()

    def look_at_time(self) -> None:
        """A turn's time may be another now: of the one that runs, too."""
        if self.work is not None and self.work.turn:
            self._limit_time(self.work)

    def stop_at_boundary(self) -> None:
        """No new turn is opened, and the one that runs ends at its next step boundary; one that only waits
        is left as it is."""
        self.draining = True
        if self.work is not None:
            self.work.stop_at_boundary = True
            if self._owner.state.turn is not None and self._owner.state.turn.only_waits:
                self.cancel("shutdown")
        self._line.cancel()

    @property
    def would_wait(self) -> str | None:
        """What a turn that is to open now would wait for, in words."""
        full = self._seat.would_wait(route_of(self._owner.state))
        return self._seat.words if full else None

    @property
    def in_line(self) -> bool:
        """Whether it waits for a place before it opens a turn."""
        return self._seat.seeks and self.work is None

    def forget(self) -> None:
        """Let go of the history; it is derived anew when a turn needs it."""
        if self.phase.name == "idle":
            self._history = History()

    @property
    def activity(self) -> Activity:
        """What status shows."""
        if self.phase.public == "idle":
            return IDLE
        work = self.work
        if self._waits_for_room:
            return attrs.evolve(WAITS_FOR_ROOM, since=work.since if work else None)
        if self._seat.seeks:
            return Activity("running", self._seat.words, places.since(self._owner.state), "place")
        turn = self._owner.state.turn
        if turn is not None and turn.wait is not None and turn.wait.what == "provider":
            return of_wait(turn.wait)
        if work is None:
            return Activity(self.phase.public)
        return Activity(self.phase.public, work.doing, work.since, work.waits, work.until)

    # --- the loop

    def _may_open(self, wanted: bool) -> bool:
        return wanted and self._owner.usable and not self.draining and self._owner.state.turn is None

    @property
    def _left_open(self) -> bool:
        """Whether an earlier run has left a turn whose step waits: to be waited on with, or, if somebody has
        asked for that, stopped."""
        turn = self._owner.state.turn
        if turn is None or turn.wait is None or not self._owner.usable:
            return False
        return turn.abort is not None or not self.draining

    async def _drive(self) -> None:
        try:
            while self._left_open or (
                self._wishes.waiting is None and self._may_open(self._owner.state.goes_on)
            ):
                await self._one_turn()
                await trio.lowlevel.checkpoint()
        except Exception as error:
            await self._stumbled(error)
        finally:
            self.work = None  # a stop at once leaves it; nobody is to cancel it any more
            self._broke_off = self._wishes.waiting is not None and self._owner.state.goes_on
            self.phase.on("done")
        self._owner.rested()
        if self._wishes.waiting is not None:
            self.poke()

    async def _maintain(self, work: Work) -> None:
        wish = self._wishes.take()
        assert wish is not None
        run = Run(self._owner, self._services, work, self._history, 0, self._seat, wishes=self._wishes)
        try:
            await maintain(run, wish)
        except Exception:
            log.exception("session %s: what maintenance leaves open is not closed", self._owner.state.id)
        finally:
            self.work = None
            self.phase.on("done")
        self._owner.rested()
        self.poke()  # what woke the session meanwhile

    async def _stumbled(self, error: Exception) -> None:
        """Something failed around a turn: before its work, or after it. A turn that is open all the same, and
        doesn't wait for the next run, ends here; what can't be opened now is tried again later.

        Cancellation: as `_close`.
        """
        id = self._owner.state.id
        if isinstance(error, DshError):
            log.warning("session %s: the driver stops: %s", id, error)
        else:
            log.error("session %s: the driver stops", id, exc_info=error)
        self._start(self._again)
        left = self._owner.state.turn
        if left is None or not self._owner.usable or (self.draining and left.only_waits):
            return
        try:
            await self._close(ending.left(left.number, error))
        except DshError as problem:  # the log can't be written: recovery ends it
            log.warning("session %s: turn %d is left open: %s", id, left.number, problem)

    async def _again(self) -> None:
        """What kept a turn from opening may have passed; if not, it costs one try a minute."""
        await trio.sleep(AGAIN_S)
        self.poke()

    async def _one_turn(self) -> None:
        try:
            opened = self._resumed() if self._left_open else await self._seated()
            if opened is not None:
                await self._run(self._begun(opened))
        finally:
            self._seat.leave()

    async def _seated(self) -> opening.Opened | None:
        """Open a turn once there is a place for it; None if nothing is to be done any more."""
        state = self._owner.state
        with trio.CancelScope() as self._line:
            await self._seat.take(route_of(state), places.since(state))
        return await self._open() if self._seat.taken and not self.draining else None

    async def _run(self, run: Run) -> None:
        self.work = work = run.work
        self.phase.on("next")
        self._heed_abort(work)
        work.watch.go(trio.current_time())
        self._limit_time(work)
        how = await self._guarded(run)
        try:
            if how is not None:  # else its end is written already
                await self._close(ending.ways(run, how))
        finally:
            self.work = None

    def _resumed(self) -> opening.Opened:
        turn = self._owner.state.turn
        assert turn is not None
        return opening.Opened(turn.number, (), resumed=True)

    def _begun(self, opened: opening.Opened) -> Run:
        turn: Any = self._owner.state.turn
        watch = budget.Stopwatch(turn.worked / 1000 if turn is not None else 0.0)
        work = Work(opened.turn, stop_at_boundary=self.draining, watch=watch)
        return Run(
            self._owner, self._services, work, self._history, opened.turn, self._seat, claimed=opened.claimed,
            notices=(opened.notice,) if opened.notice else (), retry=opened.retry, resumed=opened.resumed,
            step=turn.step if opened.resumed else 0, capped=opened.resumed and turn.capped,
            wishes=self._wishes,
        )  # fmt: skip

    def _limit_time(self, work: Work) -> None:
        state = self._owner.state
        most = budget.limit(state, self._services.config(), ending.TIME, budget.Now())
        before = state.turn.before.worked / 1000 if state.turn is not None else 0.0
        work.may_work(most - before if most else math.inf)

    def _heed_abort(self, work: Work) -> None:
        """An abort or a stop may have come while the turn's beginning was on its way to disk."""
        if self._asked is not None:
            self.cancel(self._asked)
        turn = self._owner.state.turn
        if turn is not None and turn.number == work.turn and turn.abort is not None:
            self.cancel(turn.abort.cause)

    async def _open(self) -> opening.Opened | None:
        services = self._services
        with self._waiting_for_room():
            while True:
                try:
                    await services.days.known(services.config())
                    return await self._owner.record(
                        lambda s: opening.open_turn(s, self.stops, hooked=services.hooked)
                    )
                except NoSpace:
                    await self._room()
                    if not self._may_open(self._owner.state.goes_on):
                        return None

    def stops(self, state: State) -> budget.Stop | None:
        """The budget that keeps a turn from running now."""
        services, config = self._services, self._services.config()
        now = budget.Now(today=services.days.counted(config, services.now()))
        return budget.stops(state, config, now) or services.ties.stops(state)

    async def _guarded(self, run: Run) -> Ending | None:
        """The work in its scope, with every failure turned into the way the turn ends."""
        how: Ending | None = Ending(reason="interrupted", cause="shutdown")
        try:
            with run.work.scope:
                await self._owner.remember()
                how = await turn.work(run)
            return how
        except ModelError as error:
            return Ending(reason="error", error=error.to_json())
        except Exception as error:
            if log_refused(error):
                return Ending(reason="error", error={"code": "STORAGE", "message": error.message})
            log.exception("session %s: turn %d failed", self._owner.state.id, run.turn)
            return ending.failed(error)

    # --- the end

    async def _close(self, ways: Iterable[ending.Way]) -> None:
        """Write what the turn still owes, in the first way that can be written; waits for room if it must.

        Cancellation: only while waiting for room. Durability: `turn/end` is on disk on return,
        unless the log can't be written at all any more (then recovery writes it).
        """
        id, problem = self._owner.state.id, DshError("there is no way to end it")
        with self._waiting_for_room():
            for way in ways:
                try:
                    return await self._write_end(way)
                except (Invalid, Internal) as error:  # what was decided; other refusals are the log's
                    log.exception("session %s: a turn is ended with less", id)
                    problem = error
        self._owner.give_up(problem)

    async def _write_end(self, way: ending.Way) -> None:
        while self._owner.usable:
            try:
                return await self._owner.record(way)
            except NoSpace:
                if not self._services.reserve():
                    await self._room()

    async def _room(self) -> None:
        self._waits_for_room = True
        self._services.attention(causes.full())
        await trio.sleep(ROOM_POLL_S)

    @contextlib.contextmanager
    def _waiting_for_room(self) -> Iterator[None]:
        """Status shows the waiting from the first refusal on, also while it is tried again."""
        try:
            yield
        finally:
            self._waits_for_room = False
