"""Planted bugs, one at a time: would the simulator notice?

Each is a patch of the real code while it runs, never an edit of it. ``python -m tests.sim --bugs`` tells
after how many histories each was found.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import attrs
import trio

from dshd.driver import step
from dshd.driver.asking import asking
from dshd.driver.compacting import compacting
from dshd.driver.driver import Driver
from dshd.driver.waiting import approvals
from dshd.errors import DshError
from dshd.hooks import ends
from dshd.log.disk import LogFile
from dshd.log.survey import Region
from dshd.prompt import compaction
from dshd.session.deciding import approving, closing, queueing, sending
from dshd.session.disk.ledger import Ledger
from dshd.session.fold import folding, inbox
from dshd.session.fold.events import splice
from dshd.session.fold.layer import Table
from dshd.session.fold.state import State
from dshd.session.registry.loader import Loader
from tests.sim.plan import Action, Plan, make
from tests.sim.play import play

Patches = Iterator[Any]


def ack_before_sync() -> Patches:
    """Callers are answered before the disk was asked."""
    decide, persist = Ledger._decide, Ledger._persist

    def remembering(self: Ledger, batch: Any) -> Any:
        self.batch = batch  # type: ignore[attr-defined]
        return decide(self, batch)

    async def early(self: Ledger, scratch: Any) -> None:
        for proposal in self.batch:  # type: ignore[attr-defined]
            proposal.settle()
        await persist(self, scratch)

    yield mock.patch.object(Ledger, "_decide", remembering)
    yield mock.patch.object(Ledger, "_persist", early)


def fold_before_sync() -> Patches:
    """Memory is changed, and looked at, before the batch is on disk."""
    persist = Ledger._persist

    async def early(self: Ledger, scratch: Any) -> None:
        self.state = scratch.state
        await persist(self, scratch)

    yield mock.patch.object(Ledger, "_persist", early)


def tell_before_sync() -> Patches:
    """Followers are told of what is not on disk yet."""
    persist, fold = Ledger._persist, Ledger._fold

    async def early(self: Ledger, scratch: Any) -> None:
        self._hooks.tell(scratch.events[0].seq, scratch.lines)
        await persist(self, scratch)

    def quiet(self: Ledger, scratch: Any, batch: Any) -> None:
        hooks, self._hooks = self._hooks, attrs.evolve(self._hooks, tell=lambda first, lines: None)
        try:
            fold(self, scratch, batch)
        finally:
            self._hooks = hooks

    yield mock.patch.object(Ledger, "_persist", early)
    yield mock.patch.object(Ledger, "_fold", quiet)


def decision_on_folded_state() -> Patches:
    """A send's key is looked up in the durable state, not in what the batch already holds."""
    by_key = sending._by_key

    def blind(s: Any, *rest: Any) -> Any:
        seen = copy.copy(s)
        seen.state = s._base
        return by_key(seen, *rest)

    yield mock.patch.object(sending, "_by_key", blind)


def claim_lost_on_crash() -> Patches:
    """Recovery forgets what the crashed turn had claimed."""
    back = closing._return_claimed

    def forgetful(s: Any, ending: Any) -> None:
        if not ending.recovery:
            back(s, ending)

    yield mock.patch.object(closing, "_return_claimed", forgetful)


def latch_dropped() -> Patches:
    """Between "is anything to be done?" and going idle there is a gap, and nobody asks again."""

    async def drive(self: Driver) -> None:
        try:
            while self._may_open(self._owner.state.goes_on):
                await self._one_turn()
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        except DshError:
            pass
        finally:
            self.work = None
            self.phase.on("done")
        self._owner.rested()

    yield mock.patch.object(Driver, "_drive", drive)


def _on_load(change: Callable[[Any], None]) -> Any:
    load = Loader._load

    async def changed(self: Loader, id: str) -> Any:
        session = await load(self, id)
        if session.ledger is not None:
            change(session.ledger.state)
        return session

    return mock.patch.object(Loader, "_load", changed)


def key_forgotten() -> Patches:
    """Keys do not survive a restart."""

    def forget(state: Any) -> None:
        state.keys = Table()

    yield _on_load(forget)


def parked_forgotten() -> Patches:
    """That a session is parked does not survive a restart."""

    def forget(state: Any) -> None:
        state.parked = None

    yield _on_load(forget)


def synced_ignored() -> Patches:
    """What a later line proves to have been durable is cut away like a torn tail."""
    yield mock.patch.object(Region, "proven", lambda self, synced: self.first == 0)


def move_in_two_events() -> Patches:
    """A promoted message is taken out by one event and put in by the next."""
    emit, move = queueing._emit, queueing.move

    def two(s: Any, cause: str, by: Any, ops: Any) -> None:
        if cause != "move":
            emit(s, cause, by, ops)
            return
        moved = [m for op in ops for m in op["insert"]]
        to_held = {"queue": "held", "remove": [], "insert": moved, "before": None}
        emit(s, cause, by, [*(op for op in ops if op["remove"]), to_held])
        after = [op for op in ops if op["insert"]]
        emit(s, cause, by, [splice("held", remove=[m["id"] for m in moved]), *after])

    yield mock.patch.object(queueing, "_emit", two)
    yield mock.patch.object(queueing, "move", move)


def requeued_at_the_wrong_end() -> Patches:
    """What was claimed and not entered goes behind what waits."""
    back = inbox.return_ops

    def behind(*args: Any, **more: Any) -> Any:
        return [{**op, "before": None} for op in back(*args, **more)]

    yield mock.patch.object(inbox, "return_ops", behind)


def second_sync_believed() -> Patches:
    """A sync that fails is tried again, and its success believed."""
    sync = LogFile.sync

    def again(self: LogFile) -> None:
        try:
            sync(self)
        except OSError:
            sync(self)

    yield mock.patch.object(LogFile, "sync", again)


def opening_not_synced() -> Patches:
    """What the page cache shows after a kill is believed without a sync."""
    from dshd.log import recovery

    judge = recovery.open_log

    def unsynced(*args: Any, **more: Any) -> Any:
        with mock.patch.object(LogFile, "sync"):
            return judge(*args, **more)

    yield mock.patch.object(recovery, "open_log", unsynced)


def cache_believed() -> Patches:
    """What a kill in the middle of a failed sync left in the page cache is believed after another sync."""
    yield mock.patch.object(LogFile, "write_again")


def abort_without_parking() -> Patches:
    """The fold of an abort doesn't park."""
    fold = folding.APPLIERS["abort/requested"]

    def unparked(s: Any, event: Any) -> None:
        parked = s.parked
        fold(s, event)
        s.parked = parked

    yield mock.patch.dict(folding.APPLIERS, {"abort/requested": unparked})


def wait_closed_by_recovery() -> Patches:
    """An opening closes a turn that only waits."""
    recover = closing.recover

    def closes(*args: Any, **more: Any) -> None:
        recover(*args, **{**more, "waits": False})

    yield mock.patch.object(closing, "recover", closes)
    yield mock.patch.object(State, "owes", property(lambda self: self.turn is not None or self.repaired))


def wait_told_before_sync() -> Patches:
    """That a step waits is told, and waited for, before it is on disk."""
    yield _soon(asking, "_emit_wait")


def _soon(module: Any, name: str) -> Any:
    """What this writes is told, and acted on, before it is on disk."""
    emit = getattr(module, name)

    def soon(s: Any, *rest: Any) -> Any:
        urgent = s.urgent
        found = emit(s, *rest)
        s.urgent = urgent
        return found

    return mock.patch.object(module, name, soon)


def surface_replaced_before_sync() -> Patches:
    """A summary stands for what it sums up before it is on disk."""
    yield _soon(compacting, "_commit")


def compaction_left_open_by_recovery() -> Patches:
    """An opening forgets that a compaction is open."""
    close = closing.close_compaction

    def forgetful(s: Any, *args: Any, **more: Any) -> None:
        if not more.get("recovery"):
            close(s, *args, **more)

    yield mock.patch.object(closing, "close_compaction", forgetful)


def cut_between_call_and_result() -> Patches:
    """A conversation is cut anywhere."""
    yield mock.patch.object(compaction, "balanced", lambda entries: list(range(1, len(list(entries)))))


def compacted_again_and_again() -> Patches:
    """What has failed is tried again before each step."""
    fail = compacting.before_step

    async def tireless(run: Any) -> None:
        await fail(run)
        run.compact_from = 0

    yield mock.patch.object(compacting, "before_step", tireless)


def answered_twice() -> Patches:
    """A question that was answered can be answered again."""
    yield mock.patch.object(approving, "check_open", lambda state, id: state.approvals[id])


def allowed_twice_runs_twice() -> Patches:
    """A call that was allowed runs once more."""
    run_tools = step.run_tools

    async def again(run: Any, groups: Any) -> None:
        await run_tools(run, groups)
        await run_tools(run, [group for group in groups if approvals.of(run, group[0]) is not None])

    yield mock.patch.object(step, "run_tools", again)


def runs_before_allowed() -> Patches:
    """A call that a person must allow doesn't wait for that."""

    async def at_once(run: Any, call: Any) -> None:
        await trio.lowlevel.checkpoint()

    yield mock.patch.object(step, "_may_run", at_once)


def end_never_told_after_crash() -> Patches:
    """Hooks are not told of what ended before a restart."""

    def forget(state: Any) -> None:
        state.ends = {}

    yield _on_load(forget)


def end_not_owed_by_recovery() -> Patches:
    """Of a turn that a recovery closes no hook is to be told."""
    recover = closing.recover
    yield mock.patch.object(closing, "recover", lambda *a, **more: recover(*a, **{**more, "hooked": False}))


def end_told_before_sync() -> Patches:
    """That a hook is about to be told of an end is not on disk when it is."""
    yield _soon(ends, "_begin")


BUGS: dict[str, Callable[[], Patches]] = {
    bug.__name__: bug
    for bug in (
        ack_before_sync, fold_before_sync, tell_before_sync, decision_on_folded_state, claim_lost_on_crash,
        latch_dropped, key_forgotten, parked_forgotten, synced_ignored, move_in_two_events,
        requeued_at_the_wrong_end, second_sync_believed, opening_not_synced, cache_believed,
        abort_without_parking, wait_closed_by_recovery, wait_told_before_sync, surface_replaced_before_sync,
        compaction_left_open_by_recovery, cut_between_call_and_result, compacted_again_and_again,
        answered_twice, allowed_twice_runs_twice, runs_before_allowed, end_never_told_after_crash,
        end_not_owed_by_recovery, end_told_before_sync,
    )
}  # fmt: skip


def planted(name: str) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for patch in BUGS[name]():
        stack.enter_context(patch)
    return stack


_CREATE = Action("create", 0, {"text": False, "key": None, "run": False})
_SEND = Action("send", -1, {"verb": "followup", "no_wake": False, "first": False, "key": None, "as_": None,
                            "only": None})  # fmt: skip
_ALLOW = {"at": 0, "answer": "allow", "scope": "once"}

# What draws seldom bring about; these are played first, with any bug.
FIRST = (
    Plan(  # a question is answered once more
        seed=1,
        actions=(_CREATE, _SEND, *(Action("answer", 1.1, {**_ALLOW, "again": n % 2 == 1}) for n in range(6))),
        answers=(("call", tuple(("work", 3.0, f"{n}") for n in range(9)), False),),
        asks=3000.0,
    ),
    Plan(  # a conversation that is too large, and can't be summed up
        seed=2,
        actions=(_CREATE, _SEND),
        answers=(
            ("call", tuple(("work", 0, f"{n}") for n in range(8)), False),
            *[("call", (("nothing", 0, "."),), False)] * 3,
        ),
        windows=(1050,),
        summaries=(("error", "AUTH", False, None),) * 8,
    ),
)


def find(name: str, most: int, seconds: float = 600.0) -> tuple[int, str | None]:
    """How many histories it took, and what was found (None: nothing)."""
    end, histories = time.monotonic() + seconds, 0
    plans = itertools.chain(FIRST, map(make, itertools.count()))
    with planted(name):
        while histories < most and time.monotonic() < end:
            past = play(next(plans))
            histories += past.counts["histories"]
            if past.finds:
                return histories, past.finds[0]
    return histories, None


def report(only: str | None = None, most: int = 20_000) -> int:
    missed = 0
    for name in [only] if only else BUGS:
        begun = time.monotonic()
        count, found = find(name, most)
        missed += found is None
        print(f"{name:28} {count:6} histories {time.monotonic() - begun:6.1f} s  {found or 'NOT FOUND'}",
              flush=True)  # fmt: skip
    return 1 if missed else 0
