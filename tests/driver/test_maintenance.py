"""What maintenance holds up, and what is done when it is over."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from dshd.session.owner.session import Session
from tests.driver.test_compaction import SUMMARY, Held, Narrow, reasons, rests, talk
from tests.session.rig import ME, World, followup, say, settled


@pytest.fixture
def world() -> World:
    made = World()
    made.route = Narrow(made)
    return made


async def asked(nursery: trio.Nursery, session: Session) -> list[Any]:
    """Ask for a compaction; the list will hold what is answered."""
    answers: list[Any] = []

    async def compact() -> None:
        answers.append(await session.compact(ME))

    nursery.start_soon(compact)
    await trio.testing.wait_all_tasks_blocked()
    return answers


async def test_a_running_driver_that_breaks_off_for_it_goes_on_with_what_does_not_wake(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(say("fine"))
        world.script = [held, SUMMARY, say("next")]
        await followup(session, "go")
        await held.began.wait()
        quiet = await followup(session, "next, when you are there", no_wake=True)
        async with trio.open_nursery() as nursery:
            answers = await asked(nursery, session)
            held.go.set()
        assert (answers[0]["outcome"], answers[0]["turn"]) == ("done", None)
        assert (await settled(session, quiet["message"]))["text"] == "next"
        await rests(world, session)


async def test_what_does_not_wake_does_not_begin_with_the_end_of_maintenance_alone(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            await asked(nursery, session)
            await held.began.wait()
            quiet = await followup(session, "when you are there", no_wake=True)
            held.go.set()
        await rests(world, session)
        assert [m.id for m in session.state.queues["next-turn"]] == [quiet["message"]]


async def test_a_run_that_is_done_is_closed_when_its_maintenance_is_over(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            answers = await asked(nursery, session)
            await held.began.wait()
            await session.change({"run": True}, ME)
            assert not session.state.closed
            held.go.set()
        assert answers[0]["outcome"] == "done"
        assert reasons(world, session) == ["done"]
        with trio.fail_after(5):
            while not session.state.closed:
                await session.next_change()


async def test_nothing_is_compacted_behind_a_closing(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.close, False, ME)
            answers = await asked(nursery, session)
        assert session.state.closed
        assert answers[0]["outcome"] == "aborted"
        assert reasons(world, session) == []
