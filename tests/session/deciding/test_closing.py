"""Closing and removing: what is about to go on is refused or given up for good, who comes late is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from dshd import wire
from dshd.config import Config, Recovery
from dshd.errors import Conflict, NotFound
from dshd.log.memory import Everything, MemoryDisk
from dshd.model.errors import ModelError
from dshd.session.owner.session import Session
from dshd.session.shown.activities import WAITS_FOR_ROOM
from tests.session.invariants import check_log
from tests.session.rig import ME, World, call, followup, say, settled, until

Owed = Callable[[World], Awaitable[tuple[Session, str]]]


async def to_go_on(world: World) -> tuple[Session, str]:
    """A session whose turn has ended at a boundary, as a planned stop ends it, and that turn's message."""
    session = await world.session()
    world.script = [call("gate")]
    sent = await followup(session, "work")
    with trio.fail_after(5):
        await world.gate.began.wait()
    session.driver.stop_at_boundary()
    world.gate.opened.set()
    await until(session, lambda: session.state.resume == 1 and session.activity.phase == "idle")
    return session, str(sent["message"])


async def to_retry(world: World) -> tuple[Session, str]:
    """A session whose turn has failed and is to be retried, while the daemon stops."""
    session = await world.session()
    world.script = [ModelError("AUTH", "no")]
    sent = await followup(session, "work")
    await settled(session, sent["message"])
    session.driver.draining = True
    await session.retry(wire.RetryParams(), ME)
    return session, str(sent["message"])


owed = pytest.mark.parametrize("owed", [to_go_on, to_retry], ids=lambda owed: owed.__name__)


@owed
@pytest.mark.parametrize("what", ["close", "remove"])
async def test_what_is_about_to_go_on_is_neither_closed_nor_removed_unless_forced(
    what: str, owed: Owed
) -> None:
    async with World().run() as world:
        session, _ = await owed(world)

        async def end(force: bool) -> None:
            with trio.fail_after(5):
                if what == "close":
                    await session.close(force, ME)
                else:
                    await world.registry.delete(session.id, force, ME)

        with pytest.raises(Conflict, match=r"is about to go on with turn 1\."):
            await end(False)
        assert not session.state.closed
        await end(True)
        assert session.state.closed if what == "close" else world.store.ids() == []


@owed
async def test_who_waits_for_what_a_closing_gives_up_is_told_how_it_ended(owed: Owed) -> None:
    async with World().run() as world:
        session, id = await owed(world)
        results: list[dict[str, Any]] = []

        async def wait() -> None:
            results.append(await session.wait_message(id))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                assert not results
                await session.close(True, ME)
        assert results[0]["outcome"] == session.state.turns[1].reason


async def test_what_a_closing_gave_up_stays_so_when_the_session_is_opened_again() -> None:
    async with World().run() as world:
        session, id = await to_go_on(world)
        await session.close(True, ME)
        after = world.crash(Everything())
    async with after.run():
        again = await after.registry.get(session.id)
        with trio.fail_after(5):
            assert (await again.wait_message(id))["exit"] == 14
            await again.reopen(ME)
            await again.wait_idle()
            assert (await again.wait_message(id))["outcome"] == "interrupted"
        assert again.state.last_turn == 1
        check_log(after.events(again), quiet=True)


@pytest.mark.parametrize("clear", [False, True])
async def test_closing_before_an_opening_goes_on_with_a_turn_is_refused_or_gives_it_up(clear: bool) -> None:
    """The opening waits for room; with room, what it writes and the closing are one batch."""
    config = Config(recovery=Recovery(continue_interrupted=True))
    async with World(config=config).run() as world:
        session = await world.session()
        world.script = [call("gate")]
        sent = await followup(session, "work")
        with trio.fail_after(5):
            await world.gate.began.wait()
        after = world.crash(Everything())
    after.script = [say("went on")]
    disk = after.disk
    assert isinstance(disk, MemoryDisk)
    after.store.prepare()
    after.store.reserve.release()
    disk.limit(free=0)
    async with after.run():
        again = await after.registry.get(session.id)
        await trio.testing.wait_all_tasks_blocked()
        assert again.activity is WAITS_FOR_ROOM
        disk.limit()
        with trio.fail_after(5):
            if clear:
                await again.close(True, ME)
                assert again.state.closed
            else:
                with pytest.raises(Conflict, match=r"is about to go on with turn 1\."):
                    await again.close(False, ME)
            result = await again.wait_message(sent["message"])
        assert (result["outcome"] == "completed") is not clear
        check_log(after.events(again), quiet=True)


# --- who comes late -----------------------------------------------------------------------------------------


async def test_a_send_that_reopens_a_session_while_it_is_removed_is_told_that_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waits for its turn to take the name; when that comes, the log's file is closed."""
    async with World().run() as world:
        session = await world.session(name="tea")
        await session.close(False, ME)
        refused: list[NotFound] = []

        async def send() -> None:
            with pytest.raises(NotFound, match="was removed") as told:
                await followup(session, "late")
            refused.append(told.value)

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery, session.around.reopening("another", "s0000000"):
                nursery.start_soon(send)
                await trio.testing.wait_all_tasks_blocked()
                await world.registry.delete(session.id, False, ME)
        assert refused[0].outcome == "not-written"
    assert not caplog.records
