"""The owner's loop: group commit, what a failing proposal or onlooker may not do, and *soon* events."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from dshd import wire
from dshd.errors import Conflict, Internal, NoSpace, Stalled
from dshd.session.fold.events import SOON_SYNC_S
from dshd.session.fold.layer import SHORT
from dshd.session.owner.session import Session
from tests.session.invariants import check_memory
from tests.session.rig import ME, World, call, followup, inject, memory, say, settled

LOG = "log.jsonl"


async def at_once(*acts: Any) -> list[Any]:
    """Do all in one tick; results and exceptions in the order of ``acts``."""
    found: list[Any] = [None] * len(acts)

    async def one(n: int, act: Any) -> None:
        try:
            found[n] = await act
        except Exception as error:
            found[n] = error

    async with trio.open_nursery() as nursery:
        for n, act in enumerate(acts):
            nursery.start_soon(one, n, act)
    return found


async def in_one_batch(world: World, session: Session, *acts: Any) -> list[Any]:
    """Do all, in this order, while the disk is busy with something else."""
    found: list[Any] = [None] * len(acts)
    free = trio.Event()
    memory(world).pause = free.wait

    async def one(n: int, act: Any) -> None:
        try:
            found[n] = await act
        except Exception as error:
            found[n] = error

    async with trio.open_nursery() as nursery:
        nursery.start_soon(inject, session, "first")
        await trio.testing.wait_all_tasks_blocked()
        for n, act in enumerate(acts):
            nursery.start_soon(one, n, act)
            await trio.testing.wait_all_tasks_blocked()
        memory(world).pause = trio.lowlevel.checkpoint
        free.set()
    return found


async def test_waiting_sends_share_a_sync() -> None:
    async with World().run() as world:
        session = await world.session()
        await inject(session, "first")
        before = memory(world).counts["fdatasync"]
        await at_once(*(inject(session, f"t{n}") for n in range(100)))
        assert memory(world).counts["fdatasync"] - before <= 3
        assert session.state.pending == 101


async def test_what_nobody_waits_for_shares_a_write_with_what_follows_in_the_same_moment() -> None:
    async with World().run() as world:
        session = await world.session()
        ledger = session.ledger
        assert ledger is not None
        await inject(session, "first")
        before = memory(world).counts["write"]
        for _ in range(10):
            ledger.post(lambda s: s.emit("todo/write", {"items": []}))
            await trio.lowlevel.checkpoint()
            await ledger.record(lambda s: s.emit("todo/write", {"items": []}))
        assert memory(world).counts["write"] - before == 10


async def test_nobody_is_answered_or_told_before_the_sync() -> None:
    async with World().run() as world:
        session = await world.session()
        seen: list[tuple[int, int]] = []

        def look(name: str, path: str) -> None:
            if name == "fdatasync" and path.endswith(LOG):
                seen.append((session.state.pending, len(world.told.get(session.id, ()))))

        memory(world).before(look)
        await inject(session, "x")
        memory(world).before(None)
        assert seen == [(0, 0)]
        assert session.state.pending == 1


async def test_a_proposal_that_is_a_bug_is_refused_alone() -> None:
    async with World().run() as world:
        session = await world.session()
        assert session.ledger is not None

        def bug(s: Any) -> None:
            s.emit("todo/write", {"items": []})
            raise ZeroDivisionError("a bug")

        results = await at_once(
            inject(session, "a"),
            session.ledger.propose(bug),
            inject(session, "b", key="k"),
            inject(session, "c"),
        )
        assert isinstance(results[1], Internal)
        assert results[1].outcome == "not-written"
        assert [m.text for m in session.state.queues["next-step"]].count("a") == 1
        assert session.state.pending == 3
        assert "todo/write" not in world.types(session)


async def test_an_onlooker_that_fails_changes_nothing_for_anybody() -> None:
    class Failing(World):
        def on_lines(self, id: str, first: int, lines: list[bytes]) -> None:
            super().on_lines(id, first, lines)
            raise LookupError("a follower's bug")

    async with Failing().run() as world:
        world.script = [call("quick"), say("done")]
        session = await world.session()
        sent = await followup(session, "x")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        check_memory(session, world.events(session))


async def test_what_an_opening_owes_and_cannot_do_is_told_instead_of_waited_for() -> None:
    async with World().run() as world:
        session = await world.session()
        assert session.ledger is not None

        def broken(s: Any) -> None:
            raise ZeroDivisionError("a bug")

        session.ledger._prelude = broken
        with trio.fail_after(5), pytest.raises(Internal):
            await inject(session, "x")
        session.ledger._prelude = None
        await inject(session, "y")


# --- a batch that found no room -------------------------------------------------------------------------


async def test_a_batch_without_room_is_tried_one_by_one_and_what_fits_is_written() -> None:
    async with World().run() as world:
        session = await world.session()
        memory(world).limit(free=3000)
        big, small = await in_one_batch(world, session, inject(session, "x" * 5000), inject(session, "small"))
        memory(world).limit()
        assert isinstance(big, NoSpace)
        assert small["state"] == "pending"
        assert [m.text for m in session.state.queues["next-step"]] == ["first", "small"]
        check_memory(session, world.events(session))


async def test_a_long_queue_is_as_it_was_after_a_batch_that_failed() -> None:
    async with World().run() as world:
        session = await world.session()
        await at_once(*(inject(session, f"t{n}") for n in range(SHORT + 1)))
        before = session.state.queues["next-step"]
        memory(world).fail("write", errno.ENOSPC)
        with pytest.raises(NoSpace):
            await inject(session, "refused")
        await inject(session, "last")
        texts = [m.text for m in session.state.queues["next-step"]]
        assert texts == [*(m.text for m in before), "last"]
        assert len(before) == SHORT + 1
        check_memory(session, world.events(session))


async def test_who_was_refused_because_of_somebody_whose_write_failed_is_decided_anew() -> None:
    async with World().run() as world:
        session = await world.session()
        memory(world).limit(free=3000)
        first, second, third = await in_one_batch(
            world, session, inject(session, "x" * 5000, key="k"), inject(session, "y", key="k"),
            inject(session, "y", key="k"),
        )  # fmt: skip
        memory(world).limit()
        assert isinstance(first, NoSpace)
        assert (second["duplicate"], third["duplicate"]) == (False, True)
        assert second["message"] == third["message"]


async def test_who_is_second_with_another_text_under_a_key_is_refused_if_the_first_was_written() -> None:
    async with World().run() as world:
        session = await world.session()
        first, second = await in_one_batch(
            world, session, inject(session, "a", key="k"), inject(session, "b", key="k")
        )
        assert first["state"] == "pending"
        assert isinstance(second, Conflict)
        assert session.state.pending == 2


async def test_a_marker_that_cannot_be_made_refuses_the_send_and_says_nothing_was_written() -> None:
    async with World().run() as world:
        session = await world.session()
        memory(world).fail("fsync", errno.EIO, path="active", times=-1)
        memory(world).fail("create", errno.EACCES, path=session.id, times=-1)
        (refused,) = await at_once(followup(session, "x"))
        assert refused.outcome == "not-written"
        memory(world).calls.faults.clear()
        assert session.usable
        sent = await followup(session, "y")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"


# --- soon events ----------------------------------------------------------------------------------------


async def until_synced(world: World, session: Session) -> float:
    began = trio.current_time()
    assert session.ledger is not None
    writer = session.ledger.writer
    with trio.fail_after(10):
        while writer.synced_size < writer.size:  # noqa: ASYNC110 - the mock clock jumps
            await trio.sleep(0.05)
    return trio.current_time() - began


async def test_soon_events_are_told_at_once_and_synced_after_a_second_at_the_latest(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        session = await world.session()
        assert session.ledger is not None
        await inject(session, "x")
        told, syncs = len(world.told[session.id]), memory(world).counts["fdatasync"]
        await session.ledger.propose(lambda s: s.emit("todo/write", {"items": []}))
        assert len(world.told[session.id]) == told + 1
        assert memory(world).counts["fdatasync"] == syncs
        assert await until_synced(world, session) <= SOON_SYNC_S + 0.1


async def test_soon_events_that_never_end_are_synced_all_the_same(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        ledger = session.ledger
        assert ledger is not None
        await inject(session, "x")

        def more(s: Any) -> None:
            s.emit("todo/write", {"items": []})

        async def keep_posting() -> None:
            while True:
                for _ in range(3):
                    ledger.post(more)
                await trio.sleep(0.01)

        oldest = 0.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_posting)
            for _ in range(100):
                await trio.sleep(0.05)
                behind = ledger.writer.size > ledger.writer.synced_size
                oldest = oldest + 0.05 if behind and ledger.writer.synced < ledger.state.seq - 700 else 0.0
                assert oldest <= SOON_SYNC_S + 0.2
            nursery.cancel_scope.cancel()
        assert ledger.writer.synced > 0


# --- a disk that does not answer ------------------------------------------------------------------------


async def test_a_sender_is_told_after_ten_seconds_that_the_outcome_is_not_known(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        free = trio.Event()
        memory(world).pause = free.wait
        began = trio.current_time()
        with pytest.raises(Stalled) as refused:
            await inject(session, "x", key="k")
        assert (refused.value.outcome, refused.value.exit_status) == ("unknown", 75)
        assert 9 < trio.current_time() - began < 11
        memory(world).pause = trio.lowlevel.checkpoint
        free.set()
        again = await inject(session, "x", key="k")
        assert again["duplicate"], "what stalled was written after all"
        assert session.state.pending == 1


async def test_an_abort_stops_the_work_at_once_though_the_disk_does_not_answer(autojump_clock: Any) -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        sent = await followup(session, "work")
        await world.gate.began.wait()
        free = trio.Event()
        memory(world).pause = free.wait
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at_once, session.abort(wire.AbortParams(), ME))
            await trio.sleep(1)
            assert session.driver.work is not None
            assert session.driver.work.scope.cancelled_caught, "the tool went on"
            await trio.sleep(20)
            memory(world).pause = trio.lowlevel.checkpoint
            free.set()
        assert (await settled(session, sent["message"]))["outcome"] == "aborted"


async def test_one_session_whose_disk_does_not_answer_does_not_hold_up_another() -> None:
    async with World().run() as world:
        slow, quick = await world.session(), await world.session()
        await inject(slow, "x")
        free = trio.Event()
        assert slow.ledger is not None
        append = slow.ledger.writer.append

        async def stalls(*args: Any, **more: Any) -> None:
            await free.wait()
            await append(*args, **more)

        slow.ledger.writer.append = stalls  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inject, slow, "y")
            await trio.testing.wait_all_tasks_blocked()
            sent = await followup(quick, "z")
            assert (await settled(quick, sent["message"]))["outcome"] == "completed"
            free.set()
        assert slow.state.pending == 2
