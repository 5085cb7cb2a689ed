"""A session's life: its ledger and its driver, and what keeps the two going.

The driver's owner (`driver.port.Owner`). It opens with what the last daemon left, goes on by itself, by
the clock, and when a full disk has room again; it says when it rests, and is let go of. What one may ask
of it is above: `session`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from dshd.driver.driver import Driver
from dshd.driver.port import ROOM_POLL_S
from dshd.errors import Denied, DshError, Faulted, Internal, NoSpace, NotFound, Unavailable, one_line
from dshd.hooks import causes
from dshd.hooks.ends import TurnEnds
from dshd.log.codec import Event
from dshd.log.writer import LogWriter
from dshd.order import InOrder
from dshd.session.deciding import closing, jobbing, lifecycle, queueing
from dshd.session.deciding.scratch import Scratch
from dshd.session.disk.broken import Broken
from dshd.session.disk.ledger import Hooks, Ledger
from dshd.session.disk.proposals import contained
from dshd.session.disk.shelf import Shelf
from dshd.session.fold.events import file_name
from dshd.session.fold.state import State
from dshd.session.fold.who import SYSTEM, Peer
from dshd.session.owner.agents import Agents
from dshd.session.owner.clock import Clock
from dshd.session.owner.jobs import Jobs
from dshd.session.owner.keeping import Keeper
from dshd.session.owner.surroundings import Surroundings
from dshd.session.shown.activities import WAITS_FOR_ROOM, Activity

log = logging.getLogger(__name__)


class Live:
    """``partial``: what the open step of a crashed turn had streamed. ``used`` is when somebody last asked
    for it or it last changed, in Trio's time; ``holders``: how many requests hold it (`loading`).
    ``line``: of those who wait for room in its inbox."""

    def __init__(
        self,
        id: str,
        state: State,
        writer: LogWriter | None,
        around: Surroundings,
        *,
        broken: Broken | None = None,
        partial: Sequence[Mapping[str, Any]] = (),
        found: str = "clean",
        marked: bool = False,
        refold: Callable[[LogWriter], Awaitable[State]] | None = None,
        keeper: Callable[[Ledger], Keeper] | None = None,
    ) -> None:
        self.id = id
        self.broken = broken
        self.around = around
        self._state = state
        self._refold = refold
        self._waits_for_room = False
        self.line = InOrder()
        self.clock = Clock(self, around.services.now, around.start)
        self.shelf = Shelf(self._attach, self._detach, self._refers_to, around.start)
        self.driver = Driver(self, around.services, around.start)
        self.agents = Agents(self, id, around.services, around.start, around.kin)
        self.jobs = Jobs(self, id, around.services, around.start, around.kept_jobs)
        self.ends = TurnEnds(self, around.services, around.start)
        around.services.days.note(id, state.lately)
        around.board.note(id, state)
        self.ledger: Ledger | None = None
        if writer is not None:
            self.ledger = Ledger(state, writer, self._hooks(), self._prelude(partial, found))
            self.ledger.marked = marked
        self.keeper = keeper(self.ledger) if keeper is not None and self.ledger is not None else None
        self.used = trio.current_time()
        self.holders = 0
        if broken is not None:
            around.services.attention(causes.broken(state, id, broken.word, broken.error.message))
        self.gone = False
        self._gone: DshError | None = None

    # --- what the driver needs (driver.port.Owner)

    @property
    def state(self) -> State:
        return self.ledger.state if self.ledger is not None else self._state

    @property
    def usable(self) -> bool:
        return self.broken is None

    def rested(self) -> None:
        self.around.on_changed(self.id)
        if self.ledger is not None:
            self.ledger.changed.fire()

    def give_up(self, problem: Exception) -> None:
        log.error("session %s can't go on: %s", self.id, one_line(problem))
        said = f"how a turn of {self.name} ended can't be written: a mistake in dshd; see its log."
        self.around.start(self._faulted, Faulted(said, hint=f"dshctl reopen {self.id}"))

    async def remember(self) -> None:
        if self.keeper is not None:
            await self.keeper.surface()

    def post(self, decide: Callable[[Scratch], object]) -> object:
        return self.writable().post(decide)

    async def record(self, decide: Callable[[Scratch], Any]) -> Any:
        return await self.writable().record(decide)

    # --- after each batch

    def _hooks(self) -> Hooks:
        around = self.around
        return Hooks(
            start=around.start,
            now=around.services.now,
            mark=lambda: around.mark(self.id),
            unmark=lambda: around.unmark(self.id),
            tell=lambda first, lines: around.on_lines(self.id, first, lines),
            changed=self._changed,
            faulted=self._faulted,
            gone=lambda: self._why_gone() if self.gone else None,
        )

    def _changed(self, events: list[Event]) -> None:
        """Look at the new state: heed aborts, start the driver, watch the clock, close a run. Whichever of
        these looks fails, the others are taken: above all, the driver's."""
        for look in (self._note_abort, self._note_spent, self._note_changes, self._note_attention):
            contained(look, events)
        self.used = trio.current_time()
        contained(self.jobs.heed, events)
        contained(self.agents.heed, events)
        if any(event.type == "inbox/spliced" for event in events):
            contained(self.driver.hurry)
        contained(self._note_closed)
        for poke in (self._note_agents, self.ends.poke, self.driver.poke, self.clock.watch, self._close_run):
            contained(poke)
        contained(self.around.on_changed, self.id)
        if self.keeper is not None and self.keeper.due():
            self.around.start(self.keep)

    def _note_abort(self, events: list[Event]) -> None:
        turn = self.state.turn
        if turn is not None and turn.abort is not None:
            self.driver.cancel(turn.abort.cause, turn.number)

    def _note_spent(self, events: list[Event]) -> None:
        self.around.services.days.note(self.id, self.state.lately)
        self.around.board.note(self.id, self.state)

    def _note_changes(self, events: list[Event]) -> None:
        types = {event.type for event in events}
        if "turn/end" in types and self.state.settings.get("run"):
            self.around.board.run_ended(self.state)
        if "session/changed" in types:
            self.driver.look_at_time()
        if any(type.startswith("approval/") for type in types):
            self.around.on_approvals()
            self.around.kin.asked(self.state)

    def _note_attention(self, events: list[Event]) -> None:
        for notice in causes.notices(self.state, events):
            self.around.services.attention(notice)

    def _note_closed(self) -> None:
        if self.state.closed:
            self.around.services.servers.leave(self.id)

    def _note_agents(self) -> None:
        self.agents.poke()
        if self.state.settings.get("agent"):
            self.around.kin.changed(self.state)

    def _close_run(self) -> None:
        """A run that is done is closed, when its jobs have ended; those that nobody has kept end with it."""
        if self.ledger is None or not lifecycle.run_is_done(self.state):
            return
        if not self.state.running_jobs:
            self.ledger.post(lifecycle.close_run)
        elif any(job.kept is None for job in self.state.running_jobs):
            self.around.start(self.jobs.stop_all, "run")

    async def _faulted(self, error: Faulted) -> None:
        """The disk failed: what was not synced is withdrawn, running work is cancelled at once."""
        if self.broken is not None:
            return
        self.broken = Broken("faulted", error)
        self.around.on_changed(self.id)
        self.around.services.attention(causes.broken(self.state, self.id, "faulted", error.message))
        self.driver.cancel("fault")
        self.around.start(self.jobs.stop_all, "fault")
        if self.ledger is not None and self._refold is not None:
            try:
                again = await self._refold(self.ledger.writer)
                if again.seq >= self.ledger.writer.synced:  # else somebody has cut the file: what is known
                    self.ledger.state = again
                self.around.services.days.note(self.id, self.state.lately)
                self.around.board.note(self.id, self.state)
            except DshError as unreadable:
                log.error("session %s: %s", self.id, unreadable)
            self.around.on_reset(self.id, self.ledger.writer.synced)
            self.around.on_changed(self.id)

    def _prelude(self, partial: Sequence[Mapping[str, Any]], found: str) -> Callable[[Scratch], None]:
        around = self.around

        def prelude(s: Scratch) -> None:
            repaired, doubted, heard = s.state.repaired, s.state.doubted, s.state.time
            s.emit("session/opened", {"boot": around.boot, "version": around.version, "found": found})
            go_on = around.services.config().recovery.continue_interrupted
            closing.recover(
                s, partial, go_on and not repaired, heard=heard, describe=around.services.tools.describe,
                waits=not repaired, hooked=around.services.hooked,
            )  # fmt: skip
            jobbing.recover(s, *self.jobs.found())
            if repaired:
                queueing.hold_doubted(s, doubted)

        return prelude

    # --- going on

    async def start(self) -> None:
        """Go on where the last daemon stopped: close what a crash left open, then drive.

        On a full disk it returns all the same, and goes on by itself when there is room.
        Durability: the closing is on disk before the driver starts.
        """
        try:
            await self._go_on()
        except NoSpace as error:
            log.warning("session %s: %s", self.id, error)
            self._waits_for_room = True
            self.around.on_changed(self.id)
            self.around.start(self._go_on_with_room)

    async def _go_on(self) -> None:
        if self.ledger is None or self.broken is not None or self.gone:
            return
        if self.state.owes:
            await self.ledger.record(lambda s: None)
        await self.ledger.record(queueing.expire)
        self._waits_for_room = False
        self.jobs.resume()
        self.agents.resume()
        self.ends.poke()
        self.driver.poke()
        self.clock.watch()

    async def _go_on_with_room(self) -> None:
        try:
            while self._waits_for_room:
                if not self.around.services.reserve():
                    await trio.sleep(ROOM_POLL_S)
                with contextlib.suppress(NoSpace):
                    await self._go_on()
                    return
        except DshError as error:
            log.error("session %s does not go on: %s", self.id, error)
        finally:
            self._waits_for_room = False

    def try_now(self, why: str) -> None:
        """Have a step that waits for its provider try at once. Durability: none on return."""
        if self.ledger is not None and self.usable and lifecycle.waits_for_provider(self.state):
            self.ledger.post(lambda s: lifecycle.try_now(s, {**SYSTEM, "via": why}))

    async def go_on_if_owed(self) -> None:
        """A copied session may have an open turn that no start has closed; who waits needs its end."""
        if self.ledger is not None and self.ledger.owes and self.state.owes and self.usable:
            await self.start()
        self.driver.poke()
        self.clock.watch()

    # --- what it does now

    @property
    def activity(self) -> Activity:
        if self._waits_for_room:
            return WAITS_FOR_ROOM
        return self.driver.activity

    @property
    def _works(self) -> bool:
        return self.activity.phase != "idle"

    @property
    def at_rest(self) -> bool:
        """Nothing runs or waits, hooks and jobs neither, and nothing is on its way to disk."""
        works = self._works or self.ends.working or self.jobs.busy or self.agents.busy
        busy = works or self.state.turn is not None or self.state.pending > 0
        return not busy and not self.writes

    @property
    def writes(self) -> bool:
        """Something is on its way to disk."""
        writes = self.ledger is not None and not self.ledger.idle
        return writes or (self.keeper is not None and self.keeper.busy)

    @property
    def size(self) -> int:
        return self.ledger.writer.size if self.ledger is not None else 0

    @property
    def word(self) -> str | None:
        return self.broken.word if self.broken else None

    @property
    def quiet(self) -> bool:
        """Nothing runs, and nothing will before somebody asks or the clock does: the end of a subagent makes
        it go on."""
        quiet = (self.ledger is None or self.ledger.idle) and not self.agents.wakes
        return quiet and self.activity.phase == "idle" and self.state.turn is None and not self.state.runnable

    async def next_change(self) -> None:
        """Raises why the session is gone, if it was already: its last change may have been what was
        waited for."""
        self.refuse_if_gone()
        if self.ledger is None:
            await trio.sleep_forever()
        else:
            await self.ledger.changed.wait()

    def refuse_if_gone(self) -> None:
        """Raises why the session was let go of, if it was."""
        if self.gone:
            raise self._why_gone()

    def _why_gone(self) -> DshError:
        why = self._gone or Unavailable(f"session {self.name} was closed meanwhile; try again.")
        return type(why)(why.message, hint=why.hint, outcome="not-written")

    # --- who may change it

    def writable(self) -> Ledger:
        """The ledger. Raises what broke the session, and `Unavailable` if it was let go of."""
        if self.broken is not None:
            raise self.broken.refusal()
        self.refuse_if_gone()
        if self.ledger is None:
            raise Internal(f"session {self.id} has no log")
        return self.ledger

    def guard(self, peer: Peer) -> Ledger:
        """The ledger, for a peer that may change this session."""
        if peer.kind == "agent" and peer.session != self.id:
            raise Denied(f"a tool of another session may not change {self.state.name}.")
        return self.writable()

    def guard_person(self, peer: Peer) -> Ledger:
        if peer.kind == "agent":
            raise Denied("a tool may read and send to its own session, and nothing else.")
        return self.writable()

    @property
    def name(self) -> str:
        """What it is called. A copy of another, or one whose header is lost, goes by its directory."""
        return self.state.name if self.state.id == self.id else self.id

    def check_message(self, id: str) -> None:
        if id not in self.state.receipts:
            raise NotFound(f'no message "{id}"', hint=f"dshctl queue -s {self.state.name}")

    # --- attachments

    async def _attach(self, files: Mapping[str, bytes]) -> None:
        await self.around.attach(self.id, {file_name(sha): raw for sha, raw in files.items()})

    async def _detach(self, hashes: list[str]) -> None:
        await self.around.detach(self.id, [file_name(sha) for sha in hashes])

    def _refers_to(self, sha256: str) -> bool:
        return sha256 in self.state.files

    # --- memory

    @property
    def rests(self) -> bool:
        """Nothing runs, nothing will by itself, nothing is on its way, and nobody waits."""
        state, ledger = self.state, self.ledger
        waits = self.clock.watched or self._waits_for_room or self.shelf.busy or self.ends.working
        waits = waits or self.jobs.busy or self.agents.busy
        if waits or self.driver.phase.name != "idle" or (self.keeper is not None and self.keeper.busy):
            return False
        if ledger is None:
            return True
        moves = state.turn is not None or state.runnable or state.owes or bool(state.ends)
        return self.broken is None and not moves and ledger.rests

    def hold(self) -> Callable[[], None]:
        """Keep it loaded until what is returned is called."""
        self.used = trio.current_time()
        self.holders += 1
        return self._let_go_of

    def _let_go_of(self) -> None:
        self.used = trio.current_time()
        self.holders -= 1

    async def keep(self) -> None:
        """Write a checkpoint, if it is worth it."""
        if self.keeper is None or self.broken is not None:
            return
        await self.keeper.keep(lambda: self.driver.phase.name == "idle")
        if self.state.surface.cold is not None:
            self.driver.forget()

    async def recall(self, *names: tuple[str, str]) -> Callable[[], None]:
        """Have a message (``("m", id)``) or what a key stands for (``("k", key)``) in memory, however
        old, until what is returned is called."""
        return await self.keeper.recall(names) if self.keeper is not None else lambda: None

    # --- the end

    async def written(self) -> None:
        """Wait until what was asked is written."""
        while self.ledger is not None and not self.ledger.idle and not self.gone:
            await self.ledger.changed.wait()

    @property
    def _moves(self) -> bool:
        return self._works or self.ends.working or self.writes

    async def drain(self) -> None:
        """Wait until the running turn has ended and all that was asked is written."""
        while self.ledger is not None and not self.gone and self._moves:
            await self.ledger.changed.wait()
        if self.keeper is not None:
            await self.keeper.finish()

    def let_go(self, why: DshError | None = None) -> None:
        """Close the log's file. The session may still be looked at, and refuses to be changed; who waits
        for something to come of it is told ``why``."""
        self.gone, self._gone, self._waits_for_room = True, why, False
        self.ends.stop()
        if self.ledger is not None:
            self.ledger.writer.close(self._why_gone())
            self.ledger.changed.fire()
