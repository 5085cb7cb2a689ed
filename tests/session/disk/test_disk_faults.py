"""A disk that fails at every call of the scripted run: what senders are told, and what is left.

A *full* disk is no fault: the sender hears that nothing was written, and the session goes on. A
disk that *failed* (EIO, a sync that failed once, a file that changed) ends the session's writing
until it is reopened; what was acknowledged is there, and other sessions never notice.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.errors import DshError, Faulted, NoSpace, Stalled
from dshd.log.codec import decode
from dshd.log.memory import Everything, MemoryDisk, Seeded
from dshd.session.owner.session import Session
from tests.amount import LONG
from tests.session.invariants import check_acknowledged, check_log, check_memory
from tests.session.rig import ME, World, call, followup, memory, say, settled, until
from tests.session.scripted import Account, play

LOG = "log.jsonl"
EVERY = 1 if LONG else 2  # of the calls where it matters less


def sent_ids(world: World, session: Session) -> dict[str, str]:
    """{text: id} of all messages that are in the log."""
    events = [e for e in world.events(session) if e.type == "inbox/spliced"]
    inserted = [m for e in events for op in e.data["ops"] for m in op["insert"]]
    return {m["content"][0]["text"]: m["id"] for m in inserted}


async def calls_of_the_run(name: str) -> int:
    """How many calls of this name the run makes on its log when nothing fails."""
    async with World().run() as world:
        session = await world.session()
        trace = memory(world).trace()
        await play(world, session, Account())
        return sum(called == name and path.endswith(f"{session.id}/{LOG}") for called, path in trace)


Strike = Callable[[MemoryDisk, str], None]


def fails(call: str, error: int, n: int, times: int = 1) -> Strike:
    """The n-th call of this name on the log fails."""
    return lambda disk, path: disk.fail(call, error, path=path, skip=n, times=times)


def short_write(n: int, take: int) -> Strike:
    return lambda disk, path: disk.short_write(take, path=path, skip=n)


@asynccontextmanager
async def struck(strike: Strike) -> AsyncIterator[tuple[World, Session, Account]]:
    """The run, with ``strike`` applied to the session's log before it; another session goes on."""
    async with World().run() as world:
        session, other = await world.session(), await world.session()
        account = Account()
        strike(memory(world), f"{session.id}/{LOG}")
        await play(world, session, account)
        world.gate.opened.set()
        world.script = [say("fine")]
        beside = await followup(other, "beside")
        assert (await settled(other, beside["message"]))["outcome"] == "completed"
        yield world, session, account


async def come_to_rest(world: World, session: Session) -> None:
    memory(world).calls.faults.clear()
    with trio.fail_after(60):
        await session.wait_idle()
        if session.state.parked:
            await session.wake(wire.WakeParams(), ME)
            await session.wait_idle()


def check_whole(world: World, session: Session, account: Account) -> None:
    """Nothing acknowledged is lost; nothing is there that was said not to be."""
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)
    check_acknowledged(session, account.acknowledged.values())
    there = sent_ids(world, session)
    for text, id in account.acknowledged.items():
        assert there[text] == id
    for text, error in account.refused.items():
        assert error.outcome in ("not-written", "unknown"), error
        if error.outcome == "not-written":
            assert text not in there, f"{text!r} was said not to be written"


# --- a short write, and a full disk -------------------------------------------------------------------


async def test_a_short_write_is_continued_and_nobody_notices(autojump_clock: Any) -> None:
    for n in range(0, await calls_of_the_run("write"), EVERY):
        async with struck(short_write(n, take=1 + n * 7)) as (world, session, account):
            assert not account.refused
            check_whole(world, session, account)
            assert all(session.state.receipts[id].ended for id in account.acknowledged.values())


async def test_a_write_without_room_is_told_as_not_written_and_the_session_goes_on(
    autojump_clock: Any,
) -> None:
    for n in range(await calls_of_the_run("write")):
        async with struck(fails("write", errno.ENOSPC, n)) as (world, session, account):
            refusals = account.refused.values()
            assert all(isinstance(e, NoSpace) and e.outcome == "not-written" for e in refusals)
            assert session.usable
            await come_to_rest(world, session)
            check_whole(world, session, account)
            assert all(session.state.receipts[id].ended for id in account.acknowledged.values())


async def test_a_disk_that_is_full_for_a_while_stops_and_loses_nothing(autojump_clock: Any) -> None:
    for n in range(0, await calls_of_the_run("write"), 3):
        async with struck(fails("write", errno.ENOSPC, n, times=4)) as (world, session, account):
            await come_to_rest(world, session)
            check_whole(world, session, account)


# --- a disk that failed -------------------------------------------------------------------------------

FAULTS: dict[str, tuple[str, int]] = {
    "EIO on write": ("write", errno.EIO),
    "EIO on sync": ("fdatasync", errno.EIO),
    "no space, said by the sync": ("fdatasync", errno.ENOSPC),
}


async def reopened(world: World, session: Session) -> Session:
    again, view = await world.registry.reopen(session, ME)
    assert view["state"] not in ("faulted", "damaged")
    return again


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_first_failure_faults_one_session_and_reopening_makes_it_whole(
    fault: str, autojump_clock: Any
) -> None:
    name, error = FAULTS[fault]
    for n in range(await calls_of_the_run(name)):
        async with struck(fails(name, error, n)) as (world, session, account):
            if memory(world).calls.faults:
                continue  # there were fewer calls this time
            assert session.word == "faulted"
            check_told(session, account)
            assert session.activity.phase == "idle", "work went on"
            check_withdrawn(world, session)
            again = await reopened(world, session)
            check_acknowledged(again, account.acknowledged.values())
            await come_to_rest(world, again)
            check_whole(world, again, account)


def check_told(session: Session, account: Account) -> None:
    """One request at most was under way when the disk failed; all later ones did nothing."""
    refusals = list(account.refused.values())
    assert all(isinstance(e, Faulted) for e in refusals)
    assert all(e.hint == f"dshctl reopen {session.id}" for e in refusals)
    assert [e.outcome for e in refusals].count("unknown") <= 1
    assert all(e.outcome == "not-written" for e in refusals[1:])


def check_withdrawn(world: World, session: Session) -> None:
    """Followers were told to go back to what the log still holds, and to no more."""
    assert [id for id, _ in world.resets] == [session.id]
    _, to = world.resets[0]
    told = {decode(line).seq: line for line in world.told.get(session.id, ())}
    held = [line for seq, line in sorted(told.items()) if seq <= to]
    on_disk = memory(world).read_bytes(world.store.log_path(session.id)).splitlines(keepends=True)
    assert held == on_disk[1:]  # the header was not told, it was there before


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_restart_leaves_the_fault_too(fault: str, autojump_clock: Any) -> None:
    name, error = FAULTS[fault]
    for n in range(0, await calls_of_the_run(name), EVERY):
        async with struck(fails(name, error, n)) as (world, session, account):
            disk = memory(world)
        ways = (
            disk.copy,
            disk.crash,
            partial(disk.crash, Everything()),
            partial(disk.crash, Seeded(Random(n))),
        )
        await check_restarted(ways[n // EVERY % len(ways)](), session.id, account)


async def check_restarted(disk: MemoryDisk, id: str, account: Account) -> None:
    world = World(disk)
    world.gate.opened.set()
    async with world.run():
        session = await world.registry.get(id)
        assert session.broken is None
        check_acknowledged(session, account.acknowledged.values())
        await come_to_rest(world, session)
        check_whole(world, session, account)


async def test_work_is_cancelled_at_once_when_the_disk_fails_under_it() -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        sent = await followup(session, "work")
        await world.gate.began.wait()
        memory(world).fail("fdatasync", errno.EIO, path=LOG)
        with pytest.raises(Faulted) as refused:
            await followup(session, "more")
        assert refused.value.outcome == "unknown"
        await until(session, lambda: session.activity.phase == "idle")
        assert (await settled(session, sent["message"]))["exit"] == 7
        for ask in (session.wait_idle(), session.abort(wire.AbortParams(), ME), followup(session, "again")):
            with pytest.raises(Faulted) as refused:
                await ask
            assert refused.value.outcome == "not-written"
        assert session.show()["state"] == "faulted"
        again = await reopened(world, session)
        assert again.state.turns[1].reason == "interrupted"
        calls = [e.data for e in world.events(again) if e.type == "tool/result"]
        assert calls[0]["error"]["code"] == "OUTCOME_UNKNOWN"


# --- a log that changes under the daemon ----------------------------------------------------------------


def replace_by_another(disk: MemoryDisk, path: Path) -> None:
    disk.write_atomic(path, disk.read_bytes(path))


def remove(disk: MemoryDisk, path: Path) -> None:
    disk.unlink(path)


def grow(disk: MemoryDisk, path: Path) -> None:
    file = disk.open_log(path)
    file.append(b"somebody else's line\n")
    file.close()


def cut(disk: MemoryDisk, path: Path) -> None:
    file = disk.open_log(path)
    file.truncate(file.size - 1)
    file.sync()
    file.close()


def give_a_second_name(disk: MemoryDisk, path: Path) -> None:
    disk.keep_synced(path, "second")


@pytest.mark.parametrize("change", [replace_by_another, remove, grow, give_a_second_name])
async def test_a_log_that_changed_under_the_daemon_faults_and_what_was_acknowledged_is_kept(
    change: Callable[[MemoryDisk, Path], None],
) -> None:
    async with World().run() as world:
        session = await world.session()
        first = await followup(session, "before")
        await settled(session, first["message"])
        change(memory(world), world.store.log_path(session.id))
        with pytest.raises(Faulted) as refused:
            await followup(session, "after")
        assert refused.value.outcome == "not-written"
        assert session.state.receipts[first["message"]].outcome == "completed"
        again = await reopened(world, session)
        assert again.state.receipts[first["message"]].outcome == "completed"
        assert "after" not in sent_ids(world, again)
        second = await followup(again, "and on")
        assert (await settled(again, second["message"]))["outcome"] == "completed"
        check_log(world.events(again), quiet=True)


async def test_a_log_that_lost_durable_bytes_ends_as_damaged_not_as_shorter() -> None:
    async with World().run() as world:
        session = await world.session()
        first = await followup(session, "before")
        await settled(session, first["message"])
        cut(memory(world), world.store.log_path(session.id))
        with pytest.raises(Faulted):
            await followup(session, "after")
        with pytest.raises(DshError) as refused:
            await world.registry.reopen(session, ME)
        assert "shorter" in refused.value.message


async def test_two_that_reopen_at_once_get_one_session() -> None:
    async with World().run() as world:
        session = await world.session()
        memory(world).fail("fdatasync", errno.EIO, path=LOG)
        with pytest.raises(Faulted):
            await followup(session, "x")
        found: list[Session] = []

        async def reopen() -> None:
            found.append(await reopened(world, session))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(reopen)
        assert len({id(s) for s in found}) == 1
        sent = await followup(found[0], "y")
        assert (await settled(found[0], sent["message"]))["outcome"] == "completed"


# --- a turn on a full disk ------------------------------------------------------------------------------


async def test_a_running_turn_on_a_full_disk_stops_waits_and_ends_when_there_is_room(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        world.script = [call("quick"), call("gate"), say("never asked")]
        session = await world.session()
        sent = await followup(session, "work")
        await world.gate.began.wait()
        world.store.reserve.release()
        memory(world).limit(free=0)
        asked = len(world.requests)
        world.gate.opened.set()
        await until_clock(lambda: session.activity.waits == "disk full")
        view = session.show()
        assert (view["state"], view["doing"]) == ("waiting", "waiting (disk full)")
        with pytest.raises(NoSpace):
            await followup(session, "no room for this")
        await trio.sleep(100)
        assert session.state.turn is not None
        assert len(world.requests) == asked, "something new was started"
        memory(world).limit()
        result = await settled(session, sent["message"])
        assert (result["outcome"], result["exit"], result["error"]["code"]) == ("error", 75, "STORAGE")
        events = world.events(session)
        results = [e.data for e in events if e.type == "tool/result"]
        assert results[-1]["content"][0]["text"] == "gate is open", "a finished call lost its result"
        check_log(events, quiet=True)


async def until_clock(holds: Callable[[], bool]) -> None:
    with trio.fail_after(600):
        while not holds():  # noqa: ASYNC110 - the mock clock jumps
            await trio.sleep(0.1)


async def test_the_reserve_gives_room_for_the_end_of_a_turn_and_is_taken_back(autojump_clock: Any) -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        sent = await followup(session, "work")
        await world.gate.began.wait()
        assert world.store.reserve.held
        memory(world).limit(free=0)
        world.gate.opened.set()
        assert (await settled(session, sent["message"]))["outcome"] == "error"
        assert not world.store.reserve.held
        memory(world).limit()
        await until_clock(lambda: world.store.reserve.held)


class Fills(World):
    """The disk is full from the moment on at which a turn has ended."""

    def on_lines(self, id: str, first: int, lines: list[bytes]) -> None:
        super().on_lines(id, first, lines)
        if any(b'"type":"turn/end"' in line for line in lines):
            memory(self).limit(free=0)


async def test_queued_work_that_finds_no_room_to_begin_begins_when_there_is_some(autojump_clock: Any) -> None:
    async with Fills().run() as world:
        world.script = [call("gate"), say("one"), say("two")]
        session = await world.session()
        first = await followup(session, "work")
        second = await followup(session, "next")
        await world.gate.began.wait()
        world.store.reserve.release()
        world.gate.opened.set()
        assert (await settled(session, first["message"]))["outcome"] == "completed"
        await until_clock(lambda: session.activity.waits == "disk full")
        assert session.show()["state"] == "waiting"
        assert session.message(second["message"])["state"] == "pending"
        memory(world).limit()
        assert (await settled(session, second["message"]))["text"] == "two"


class FillsAtTheGate(World):
    """The disk is full from the moment on at which a turn has begun; its step has not."""

    def on_lines(self, id: str, first: int, lines: list[bytes]) -> None:
        super().on_lines(id, first, lines)
        if any(b'"type":"turn/start"' in line for line in lines):
            memory(self).limit(free=0)


async def test_a_turn_that_has_not_entered_waits_for_room_and_goes_on(autojump_clock: Any) -> None:
    async with FillsAtTheGate().run() as world:
        world.script = [say("done")]
        world.store.reserve.release()
        session = await world.session()
        sent = await followup(session, "work")
        await until_clock(lambda: session.activity.waits == "disk full")
        view = session.show()
        assert (view["state"], view["doing"]) == ("waiting", "waiting (disk full)")
        memory(world).limit()
        result = await settled(session, sent["message"])
        assert (result["outcome"], result["text"]) == ("completed", "done")
        assert session.state.parked is None
        check_log(world.events(session), quiet=True)


async def test_an_abort_reaches_a_turn_that_waits_for_room_at_the_gate(autojump_clock: Any) -> None:
    async with FillsAtTheGate().run() as world:
        world.store.reserve.release()
        session = await world.session()
        sent = await followup(session, "work")
        await until_clock(lambda: session.activity.waits == "disk full")
        session.driver.cancel("user")
        await until_clock(lambda: session.driver.work is None or session.driver.work.cause == "user")
        memory(world).limit()
        assert (await settled(session, sent["message"]))["outcome"] in {"aborted", "interrupted"}


async def left_by_a_crash_on_a_full_disk() -> tuple[World, Session, Any, Any]:
    """The world after it, its session, and two receipts: of the turn that ran, and of what waits."""
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        first = await followup(session, "work")
        await world.gate.began.wait()
        second = await followup(session, "later")
        after = world.crash()
    after.store.reserve.release()
    memory(after).limit(free=0)
    return after, session, first, second


async def test_a_start_on_a_full_disk_goes_on_when_there_is_room(autojump_clock: Any) -> None:
    after, session, first, second = await left_by_a_crash_on_a_full_disk()
    async with after.run():
        again = await after.again(session)
        await trio.sleep(5)
        assert again.state.turn is not None
        assert again.show()["doing"] == "waiting (disk full)"
        memory(after).limit()
        assert (await settled(again, first["message"]))["outcome"] == "interrupted"
        assert (await settled(again, second["message"]))["outcome"] == "completed"
        await again.wait_idle()
        assert again.show()["doing"] is None


async def test_an_abort_of_a_turn_that_a_crash_left_on_a_full_disk_promises_nothing(
    autojump_clock: Any,
) -> None:
    after, session, _, second = await left_by_a_crash_on_a_full_disk()
    async with after.run():
        again = await after.again(session)
        assert again.state.turn is not None
        with pytest.raises(NoSpace) as refused:
            await again.abort(wire.AbortParams(disposition="clear"), ME)
        assert refused.value.outcome == "not-written"
        memory(after).limit()
        assert (await settled(again, second["message"]))["outcome"] == "completed"


async def test_a_torn_tail_that_has_no_room_to_be_set_aside_waits_for_it(autojump_clock: Any) -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        first = await followup(session, "work")
        await world.gate.began.wait()
        path = world.store.log_path(session.id)
        after = world.crash()
    disk = memory(after)
    disk.poke(path, disk.peek(path) + b'{"seq":')
    after.store.reserve.release()
    disk.limit(free=0)
    async with after.run():
        await trio.sleep(5)
        assert session.id not in after.registry.loaded
        disk.limit()
        await until_clock(lambda: session.id in after.registry.loaded)
        again = await after.again(session)
        assert (await settled(again, first["message"]))["outcome"] == "interrupted"


@pytest.mark.parametrize("disposition", ["keep", "clear", "continue"])
async def test_an_abort_on_a_full_disk_works_at_once_and_what_it_asked_for_holds(
    disposition: Any, autojump_clock: Any
) -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        sent = await followup(session, "work")
        waits = await followup(session, "later")
        await world.gate.began.wait()
        world.store.reserve.release()
        memory(world).limit(free=0)
        with pytest.raises(Stalled) as refused:
            await session.abort(wire.AbortParams(disposition=disposition, reason="enough"), ME)
        assert refused.value.outcome == "unknown"
        assert session.activity.waits == "disk full"
        memory(world).limit()
        assert (await settled(session, sent["message"]))["outcome"] == "aborted"
        asked = next(e.data for e in world.events(session) if e.type == "abort/requested")
        assert (asked["disposition"], asked["reason"], asked["by"]["tty"]) == (disposition, "enough", "pts/3")
        assert (session.state.parked is not None) == (disposition != "continue")
        later = await session.wait_message(waits["message"])
        assert later["outcome"] == {"keep": None, "clear": "cleared", "continue": "completed"}[disposition]


async def test_an_abort_on_a_full_disk_is_answered_once_the_reserve_took_its_events() -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        await followup(session, "work")
        waits = await followup(session, "later")
        await world.gate.began.wait()
        memory(world).limit(free=0)
        answer = await session.abort(wire.AbortParams(disposition="clear"), ME)
        assert (answer["outcome"], answer["cleared"]) == ("aborted", [waits["message"]])
        assert session.message(waits["message"])["state"] == "cleared"


async def test_without_a_free_inode_a_send_is_refused_and_later_taken(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        await trio.sleep(5)
        memory(world).limit(files=0)
        with pytest.raises(NoSpace) as refused:
            await followup(session, "x")
        assert refused.value.outcome == "not-written"
        memory(world).limit()
        sent = await followup(session, "y")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        assert "x" not in sent_ids(world, session)


async def test_a_file_that_is_only_useful_may_fail_to_be_written(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await followup(session, "x")
        await settled(session, sent["message"])
        memory(world).fail("create", errno.ENOSPC, times=-1)
        await world.registry.drain(10)
        memory(world).calls.faults.clear()
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        assert again.state.receipts[sent["message"]].outcome == "completed"


async def test_a_session_that_a_failing_disk_kept_from_opening_is_opened_a_minute_later(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await followup(session, "x")
        after = world.crash()
    memory(after).fail("fdatasync", errno.EIO, path=f"{session.id}/{LOG}")
    async with after.run():
        await trio.sleep(70)
        again = after.registry.loaded[session.id]
        assert again.state.receipts[sent["message"]].outcome == "completed"
