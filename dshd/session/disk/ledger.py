"""The owner of one session's log: proposals in, decided batches on disk, state and callers after.

The one loop that matters (`Ledger._commit`):

1. take the proposals that wait; decide each in order on a scratch;
2. write and, if anything in it is *now*, sync the batch;
3. without a checkpoint: the scratch becomes the state, followers are told, callers wake in order;
4. whoever is concerned (the driver) looks at the new state.

Nothing is decided while a batch is on its way. If it fails, the scratch is dropped: proposals
that shared the batch are tried again one by one when the disk is full, and all refused on a
fault. A proposal that turns out to be a bug is refused alone, and the others are decided anew.

The first batch after an opening begins with what the opening owes: `session/opened`, and the end
of a turn that a crash left open. A batch that would hold nothing else is not written for a mere
question: reading never writes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import trio

from dshd.errors import DshError, Faulted, Internal, NoSpace
from dshd.log.codec import Event
from dshd.log.writer import LogWriter
from dshd.session.deciding.scratch import Scratch
from dshd.session.disk.proposals import BUG, Decide, Proposal, Signal, contained, decide_one, refuse, settle
from dshd.session.fold.events import SOON_SYNC_S
from dshd.session.fold.state import State

log = logging.getLogger(__name__)
T = TypeVar("T")

DEADLINE_S = 10.0
MOST_IN_A_BATCH = 512
UNMARK_AFTER_S = 2.0


@attrs.frozen(kw_only=True)
class Hooks:
    """What a ledger calls; ``tell`` and ``changed`` right after a batch, without a checkpoint.

    ``start`` runs a coroutine function in the session nursery; ``mark`` makes the session's
    active marker durable, ``unmark`` takes it away; ``tell`` gets (first seq, lines);
    ``faulted`` is told why all that was not synced is withdrawn; ``gone`` says why the session was let
    go of, once it was: then the log's file is closed, and who came late is refused.
    """

    start: Callable[..., None]
    now: Callable[[], int]
    mark: Callable[[], Awaitable[None]]
    unmark: Callable[[], Awaitable[None]]
    tell: Callable[[int, list[bytes]], None]
    changed: Callable[[list[Event]], None]
    faulted: Callable[[Faulted], Awaitable[None]]
    gone: Callable[[], DshError | None] = lambda: None


class Ledger:
    """``prelude`` emits what an opening owes; it is dropped once it is durable."""

    def __init__(self, state: State, writer: LogWriter, hooks: Hooks, prelude: Decide[None] | None) -> None:
        self.state = state
        self.writer = writer
        self.changed = Signal()
        self.marked = False
        self.busy = False
        self._hooks = hooks
        self._prelude = prelude
        self._waiting: list[Proposal[Any]] = []
        self._batch: list[Proposal[Any]] = []
        self._watched = False
        self._sync_wanted = False
        self._sync_armed = False
        self._unmark_wanted = False
        self._unmark_armed = False

    # --- proposing

    def post(self, decide: Decide[T]) -> Proposal[T]:
        """Queue a proposal and go on. Synchronous; what is posted first is decided first."""
        return self._queue(Proposal(decide))

    def offer(self, decide: Decide[T], tell: Callable[[Proposal[T]], None]) -> None:
        """`propose` for one who has no task to wait in: ``tell`` is called instead, with what to `unwrap`.

        It is called in the step in which the proposal becomes durable, in the order of the proposals;
        what it does for others must not fail, and what it raises is only logged.
        """
        self._queue(Proposal(decide, trio.current_time() + DEADLINE_S, tell))
        self._watch()

    async def propose(self, decide: Decide[T]) -> T:
        """Queue a proposal and wait for its answer, at most `DEADLINE_S`.

        Raises what ``decide`` refused with, `NoSpace`, `Faulted`, or `Stalled` (outcome unknown:
        the proposal stays queued).

        Cancellation: only the waiting ends; the proposal is decided all the same.
        Durability: what it emitted is on disk when this returns (*soon* events: written).
        """
        proposal = self._queue(Proposal(decide, trio.current_time() + DEADLINE_S))
        self._watch()
        await proposal.done.wait()
        return proposal.unwrap()

    async def record(self, decide: Decide[T]) -> T:
        """`propose` for the driver: shielded, and as patient as the disk is slow."""
        task = trio.lowlevel.current_task()
        proposal = self._queue(Proposal(decide, tell=lambda _: trio.lowlevel.reschedule(task)))
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return proposal.unwrap()

    def _queue(self, proposal: Proposal[T]) -> Proposal[T]:
        self._waiting.append(proposal)
        self._run()
        return proposal

    def _watch(self) -> None:
        """See to it that nobody waits longer than they want to: one task for all, not a timer for each."""
        if not self._watched:
            self._watched = True
            self._hooks.start(self._look_for_overdue)

    async def _look_for_overdue(self) -> None:
        try:
            while due := [p.due for p in self._unsettled() if p.due is not None and not p.overdue]:
                await trio.sleep_until(min(due))
                for proposal in self._unsettled():
                    if proposal.due is not None and proposal.due <= trio.current_time():
                        proposal.give_up()
        finally:
            self._watched = False

    def _unsettled(self) -> list[Proposal[Any]]:
        return [p for p in (*self._batch, *self._waiting) if not p.settled]

    @property
    def wrote(self) -> bool:
        """Whether anything was written since the opening."""
        return self._prelude is None

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is on its way."""
        return not self.busy and not self._waiting

    @property
    def rests(self) -> bool:
        """Nothing is on its way or will be soon, all is durable, and nobody waits for a change."""
        later = self._sync_armed or self._unmark_armed
        return self.idle and not later and not self.changed.awaited and self.writer.rests

    @property
    def owes(self) -> bool:
        """Whether the opening still has something to write before anything else."""
        return self._prelude is not None

    # --- the loop

    def _run(self) -> None:
        if not self.busy:
            self.busy = True
            self._hooks.start(self._write)

    async def _write(self) -> None:
        with trio.CancelScope(shield=True):
            try:
                if not any(proposal.awaited for proposal in self._waiting):
                    await trio.lowlevel.checkpoint()  # what else its proposer has in hand shares the write
                while self._waiting or self._sync_wanted or self._unmark_wanted:
                    await self._one_round()
            finally:
                self.busy = False
        self.changed.fire()

    async def _one_round(self) -> None:
        batch = self._batch = self._waiting[:MOST_IN_A_BATCH]
        del self._waiting[:MOST_IN_A_BATCH]
        try:
            if (gone := self._hooks.gone()) is not None:
                self._come_late(batch, gone)
            else:
                await (self._commit(batch) if batch else self._housekeeping())
        except DshError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("a batch failed")
        if unsettled := [p for p in batch if not p.settled]:
            refuse(unsettled, Internal(BUG, outcome="unknown"))
        self._batch = []

    def _come_late(self, batch: list[Proposal[Any]], why: DshError) -> None:
        """What was proposed by who had the session in hand before it was let go of."""
        self._sync_wanted = self._unmark_wanted = False
        refuse(batch, why)

    async def _housekeeping(self) -> None:
        """What is done only while no proposal waits. In here, so that it can't meet a batch: a
        marker taken away while a batch makes it would be missing after a crash."""
        if self._sync_wanted or self._unmark_wanted:
            self._sync_wanted = False
            await self._sync()  # also of what says that the marker is needed no more
        if self._unmark_wanted:
            self._unmark_wanted = False
            if self.marked and not self.state.active and self.writer.usable:
                self.marked = False
                await self._hooks.unmark()

    async def _sync(self) -> None:
        try:
            await self.writer.sync()
        except Faulted as error:
            await self._hooks.faulted(error)

    async def _commit(self, batch: list[Proposal[Any]]) -> None:
        scratch = self._decide(batch)
        if not scratch.events:
            settle(batch)
            return
        try:
            await self._persist(scratch)
        except NoSpace as error:
            await self._one_by_one(batch, error)
        except DshError as error:
            error.outcome = error.outcome or "not-written"  # of the marker: then nothing was tried
            refuse(batch, error)
            if isinstance(error, Faulted):
                await self._hooks.faulted(error)
        else:
            self._fold(scratch, batch)

    async def _one_by_one(self, batch: list[Proposal[Any]], error: NoSpace) -> None:
        if len(batch) == 1:
            refuse(batch, error)
            return
        for proposal in batch:
            proposal.error = None  # what was refused was so on a scratch that is no more
            await self._commit([proposal])

    async def _persist(self, scratch: Scratch) -> None:
        self.writer.refuse_if_ended()
        if scratch.state.active and not self.marked:
            await self._hooks.mark()
            self.marked = True
        sync = scratch.urgent or self._sync_wanted
        await self.writer.append(b"".join(scratch.lines), scratch.state.seq, sync=sync)
        self._sync_wanted = self._sync_wanted and not sync

    def _fold(self, scratch: Scratch, batch: list[Proposal[Any]]) -> None:
        """Nobody who looks at the new state can undo it, or keep it from the others, by failing."""
        self.state = scratch.merge()
        self._prelude = None
        settle(batch)
        contained(self._hooks.tell, scratch.events[0].seq, scratch.lines)
        if not scratch.urgent:
            self._arm_sync()
        if self.marked and not self.state.active:
            self._arm_unmark()
        contained(self._hooks.changed, scratch.events)
        self.changed.fire()

    # --- deciding

    def _decide(self, batch: list[Proposal[Any]]) -> Scratch:
        """A scratch on which every proposal of the batch was decided, in order."""
        while True:
            scratch = self._fresh()
            owed = len(scratch.events)
            if all(decide_one(scratch, p) for p in batch if p.error is None):
                break
        if len(scratch.events) == owed and not (owed and self.state.owes):
            scratch = self._blank()
        return scratch

    def _blank(self) -> Scratch:
        return Scratch(self.state, self._hooks.now(), self.writer.synced)

    def _fresh(self) -> Scratch:
        scratch = self._blank()
        if self._prelude is not None:
            self._prelude(scratch)
        return scratch

    # --- later

    def _arm_sync(self) -> None:
        if not self._sync_armed:
            self._sync_armed = True
            self._hooks.start(self._sync_later)

    async def _sync_later(self) -> None:
        try:
            await trio.sleep(SOON_SYNC_S)
        finally:
            self._sync_armed = False
        if self.writer.usable and self.writer.size > self.writer.synced_size:
            self._sync_wanted = True
            self._run()

    def _arm_unmark(self) -> None:
        if not self._unmark_armed:
            self._unmark_armed = True
            self._hooks.start(self._unmark_later)

    async def _unmark_later(self) -> None:
        """After a while, so that a session that works in short turns doesn't pay for each."""
        try:
            await trio.sleep(UNMARK_AFTER_S)
        finally:
            self._unmark_armed = False
        if self.marked and not self.state.active and self.writer.usable:
            self._unmark_wanted = True
            self._run()
