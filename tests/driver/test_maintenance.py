"""Compaction because somebody asked: between turns it is maintenance; what that holds up, and what is done
when it is over."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.errors import Conflict, DshError
from dshd.log.memory import MemoryDisk
from tests.driver.narrow import (
    FULL,
    LONG,
    SUMMARY,
    Held,
    asked,
    narrow,
    of,
    reasons,
    rests,
    talk,
)
from tests.session.rig import ME, World, call, followup, say, settled, steer


@pytest.fixture
def world() -> World:
    return narrow()


async def test_between_turns_it_is_maintenance_and_a_wake_meanwhile_is_latched(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held, say("fine")]
        async with trio.open_nursery() as nursery:
            answers = await asked(nursery, session)
            more = await asked(nursery, session)
            await held.began.wait()
            shown = session.show()
            assert (shown["phase"], shown["state"], shown["turn"]) == ("maintenance", "running", 3)
            assert shown["doing"].startswith("compacting (")
            receipt = await steer(session, "go on")
            assert receipt["phase"] == "maintenance"
            why = session.why(receipt["message"])
            assert why["reason"] == "maintenance"
            assert why["sentence"] == "The conversation is compacted first; then it is next."
            with pytest.raises(Conflict, match="is compacting its conversation"):
                await followup(session, "not sent", if_idle=True)
            await trio.testing.wait_all_tasks_blocked()
            assert session.state.turn is None
            held.go.set()
        assert (await settled(session, receipt["message"]))["text"] == "fine"
        assert [a["outcome"] for a in answers + more] == ["done", "done"]
        assert answers[0]["after"] < answers[0]["before"]
        assert reasons(world, session) == ["done"], "two who ask at once share it"
        await rests(world, session)
        assert session.show()["phase"] == "idle"


async def test_there_may_be_nothing_to_compact(world: World) -> None:
    async with world.run():
        session = await world.session()
        events = len(world.events(session))
        answer = await session.compact(ME)
        assert (answer["outcome"], answer["exit"]) == ("nothing", 0)
        assert len(world.events(session)) == events
        assert world.requests == []


async def test_while_a_turn_runs_it_is_done_at_the_next_step(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        world.script = [call("gate"), SUMMARY, say("fine")]
        sent = await followup(session, "go")
        await world.gate.began.wait()
        async with trio.open_nursery() as nursery:
            answers = await asked(nursery, session)
            assert not of(world, session, "compaction/start")
            world.gate.opened.set()
        (answer,) = answers
        assert (answer["outcome"], answer["turn"]) == ("done", 4)
        result = await settled(session, sent["message"])
        assert (result["text"], result["steps"]) == ("fine", 2)
        await rests(world, session)


async def test_asked_in_a_turns_last_step_it_is_done_when_the_turn_has_ended(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(say("fine"))
        world.script = [held, SUMMARY, say("next")]
        await followup(session, "go")
        next_one = await followup(session, "next")
        await held.began.wait()
        async with trio.open_nursery() as nursery:
            answers = await asked(nursery, session)
            held.go.set()
        assert (answers[0]["outcome"], answers[0]["turn"]) == ("done", None)
        assert (await settled(session, next_one["message"]))["text"] == "next"
        await rests(world, session)


async def test_an_abort_of_maintenance_touches_no_turn_and_parks_nothing(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        before = [entry.seq for entry in session.state.surface]
        held = Held(SUMMARY)
        world.script = [held, say("fine")]
        async with trio.open_nursery() as nursery:
            answers = await asked(nursery, session)
            await held.began.wait()
            waits = await followup(session, "go on")
            stopped = await session.abort(wire.AbortParams(), ME)
        assert (stopped["turn"], stopped["parked"]) == (None, None)
        assert stopped["doing"].startswith("compacting")
        assert (answers[0]["outcome"], answers[0]["exit"]) == ("aborted", 12)
        assert [entry.seq for entry in session.state.surface][: len(before)] == before
        assert not of(world, session, "abort/requested")
        assert (await settled(session, waits["message"]))["text"] == "fine"
        assert reasons(world, session) == ["aborted"]
        await rests(world, session)


async def test_an_abort_in_the_instant_of_its_beginning_means_it_and_no_turn_after_it(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        async with trio.open_nursery() as nursery:
            answers = await asked(nursery, session, settle=False)
            while session.driver.phase.name != "maintenance":
                await trio.lowlevel.checkpoint()
            await session.abort(wire.AbortParams(), ME)
        assert answers[0]["outcome"] == "aborted"
        world.script = [say("fine")]
        later = await followup(session, "go on")
        assert (await settled(session, later["message"]))["text"] == "fine"
        assert not of(world, session, "abort/requested")
        await rests(world, session)


async def test_what_the_disk_refuses_is_its_outcome_and_no_mistake_of_ours(
    world: World, caplog: pytest.LogCaptureFixture, autojump_clock: Any
) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        await rests(world, session)
        world.script = [SUMMARY]
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        await trio.sleep(60)
        assert not world.store.is_marked(session.id)
        disk.fail("fsync", errno.EIO, path="active", times=-1)
        answer = await session.compact(ME)
        assert (answer["outcome"], "can't" in answer["error"]["message"]) == ("failed", True)
        assert not [record for record in caplog.records if record.exc_info]
        disk.heal()


async def test_an_overflow_that_was_mended_makes_a_threshold_that_failed_count_no_more(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        world.script = [say(" "), FULL, SUMMARY, call("prints:10000"), SUMMARY, say("fine")]
        sent = await followup(session, f"part 4: {LONG}")
        assert (await settled(session, sent["message"]))["text"] == "fine"
        causes = [(e.data["cause"]) for e in of(world, session, "compaction/start")]
        assert causes == ["threshold", "overflow", "threshold"]
        assert reasons(world, session) == ["failed", "done", "done"]
        await rests(world, session)


async def test_a_session_is_not_closed_under_its_maintenance_but_with_it(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.compact, ME)
            await held.began.wait()
            with pytest.raises(Conflict, match="is compacting its conversation"):
                await session.close(False, ME)
            with pytest.raises(Conflict, match="is compacting its conversation"):
                await world.registry.delete(session.id, False, ME)
            with trio.fail_after(5):
                await session.close(True, ME)
        assert reasons(world, session) == ["aborted"]
        assert session.state.closed
        with pytest.raises(Conflict, match="is closed"):
            await session.compact(ME)
        await rests(world, session)


async def test_maintenance_is_ended_by_a_removal(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            failed: list[DshError] = []

            async def compact() -> None:
                try:
                    await session.compact(ME)
                except DshError as error:
                    failed.append(error)

            nursery.start_soon(compact)
            await held.began.wait()
            with trio.fail_after(5):
                await world.registry.delete(session.id, True, ME)
        assert [error.code for error in failed] in ([], ["NOT_FOUND"])


# --- what it holds up ------------------------------------------------------------------------------


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
