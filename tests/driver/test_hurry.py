"""``steer --now``: the step is cut short, the turn goes on, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dshd import wire
from dshd.errors import Denied, Invalid
from dshd.model.chunks import BlockStart, TextDelta
from dshd.model.errors import ModelError
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.tools.tool import Rule
from tests.session.background import Command, Foreground
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, of_type, say, settled, steer, until


def world_of(*script: Any) -> World:
    world = World()
    world.script = list(script)
    return world


def results(world: World, session: Session) -> list[tuple[str, str, str | None]]:
    """(call, the beginning of its text, code) of each."""
    return [
        (r["call"], r["content"][0]["text"].partition(":")[0], (r.get("error") or {}).get("code"))
        for r in of_type(world, session, "tool/result")
    ]


def entered(world: World, session: Session) -> list[tuple[str, int, int]]:
    """(text, turn, step) of what people said."""
    return [
        (m["content"][0]["text"], m["turn"], m["step"])
        for m in of_type(world, session, "user/message") if m["source"]["kind"] == "user"
    ]  # fmt: skip


def endless() -> Any:
    async def wait() -> None:
        await trio.sleep_forever()

    return wait


async def hasty(session: Session, text: str = "now") -> dict[str, Any]:
    return await steer(session, text, now=True)


async def test_calls_are_stopped_or_skipped_and_the_next_step_comes_at_once() -> None:
    async with world_of(call("quick:a", "gate:b", "quick:c"), say("turned")).run() as world:
        session = await world.session()
        first = await followup(session, "work")
        with trio.fail_after(5):
            await world.gate.began.wait()
        await inject(session, "by the way")
        await hasty(session)
        done = await settled(session, first["message"])
        assert (done["outcome"], done["text"], done["turn"]) == ("completed", "turned", 1)
        assert results(world, session) == [
            ("t1_1_1", "quick a", None), ("t1_1_2", "Stopped", "STOPPED"), ("t1_1_3", "Skipped", "SKIPPED"),
        ]  # fmt: skip
        assert entered(world, session) == [("work", 1, 1), ("by the way", 1, 2), ("now", 1, 2)]
        assert world.quick.runs == ["a"]
        check_log(world.events(session))
        check_memory(session, world.events(session))


async def test_a_plain_steer_cuts_nothing_short() -> None:
    async with world_of(call("gate:b"), say("done")).run() as world:
        session = await world.session()
        first = await followup(session, "work")
        with trio.fail_after(5):
            await world.gate.began.wait()
        await steer(session, "later")
        await wait_all_tasks_blocked()
        assert not results(world, session)
        world.gate.opened.set()
        await settled(session, first["message"])
        assert results(world, session) == [("t1_1_1", "gate is open", None)]


async def test_what_has_streamed_is_kept_as_an_interrupted_answer() -> None:
    streaming = [BlockStart(0, "text"), TextDelta(0, "I begin with"), endless()]
    async with world_of(streaming, say("turned")).run() as world:
        session = await world.session()
        first = await followup(session, "work")
        await until(session, lambda: session.driver.work and session.driver.work.doing == "model: scripted")
        await wait_all_tasks_blocked()
        await hasty(session)
        assert (await settled(session, first["message"]))["text"] == "turned"
        answers = of_type(world, session, "assistant/message")
        assert [(a["content"][0]["text"], a.get("interrupted")) for a in answers] == [
            ("I begin with", True), ("turned", None),
        ]  # fmt: skip
        assert entered(world, session)[1] == ("now", 1, 2)
        check_log(world.events(session))


async def test_a_step_of_which_nothing_has_streamed_leaves_no_answer() -> None:
    async with world_of([endless()], say("turned")).run() as world:
        session = await world.session()
        first = await followup(session, "work")
        await wait_all_tasks_blocked()
        await hasty(session)
        assert (await settled(session, first["message"]))["text"] == "turned"
        assert len(of_type(world, session, "assistant/message")) == 1
        assert len(of_type(world, session, "step/end")) == 2


async def test_a_step_that_waits_for_its_provider_waits_no_longer() -> None:
    later = ModelError("RATE_LIMIT", "slow down", retry_after=3600.0)
    async with world_of(later, say("turned")).run() as world:
        session = await world.session(patience=7200.0)
        first = await followup(session, "work")
        await until(session, lambda: session.show()["state"] == "waiting")
        await hasty(session)
        assert (await settled(session, first["message"]))["text"] == "turned"
        await wait_all_tasks_blocked()
        assert not session.driver._seat.taken, "the place that it took again is given up"


async def test_a_question_is_withdrawn_and_its_call_skipped() -> None:
    world = world_of(call("quick:x"), say("turned"))
    world.rules = [Rule("ask", tool="quick")]
    async with world.run():
        session = await world.session(ask="wait")
        first = await followup(session, "work")
        await until(session, lambda: session.state.asks)
        await hasty(session)
        with trio.fail_after(5):
            assert (await session.wait_message(first["message"], stay=True))["text"] == "turned"
        assert [a["answer"] for a in of_type(world, session, "approval/answered")] == ["withdrawn"]
        assert results(world, session) == [("t1_1_1", "Skipped", "SKIPPED")]
        assert world.quick.runs == []


async def test_a_command_goes_on_as_a_job_and_its_end_is_told() -> None:
    world = world_of(call("fg:make"), say("turned"), say("fine"))
    command = Command(code=3)
    tool = Foreground(commands={"make": command})
    world.tools.add(tool)
    async with world.run():
        session = await world.session()
        first = await followup(session, "work")
        with trio.fail_after(5):
            await tool.began.wait()
        await hasty(session)
        await settled(session, first["message"])
        (result,) = of_type(world, session, "tool/result")
        assert "goes on in the background, as j1" in result["content"][0]["text"]
        assert not result["is_error"]
        types = world.types(session)
        assert types.index("job/started") < types.index("tool/result")
        command.end.set()
        await until(session, lambda: not session.state.running_jobs)
        (told,) = session.state.queues["next-step"]
        assert "Job j1 (make) has ended: exit 3" in told.text
        check_log(world.events(session))


async def test_an_abort_right_behind_it_ends_the_job() -> None:
    world = world_of(call("fg:make"), say("turned"))
    tool = Foreground()
    world.tools.add(tool)
    async with world.run():
        session = await world.session()
        await followup(session, "work")
        with trio.fail_after(5):
            await tool.began.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hasty, session)
                nursery.start_soon(session.abort, wire.AbortParams(), ME)
        await until(session, lambda: session.state.turn is None and not session.state.running_jobs)
        check_log(world.events(session))


async def test_while_nothing_runs_it_starts_a_turn_like_any_steer() -> None:
    async with world_of(say("hello")).run() as world:
        session = await world.session()
        receipt = await hasty(session)
        assert receipt["now"] is True
        assert (await settled(session, receipt["message"]))["text"] == "hello"
        assert len(world.requests) == 1


async def test_one_that_is_held_back_cuts_nothing_short() -> None:
    """Its turn was aborted and parked it; a retry runs without it."""
    async with world_of(call("gate:a"), call("gate:b"), say("x")).run() as world:
        session = await world.session()
        first = await followup(session, "work")
        with trio.fail_after(5):
            await world.gate.began.wait()
        world.gate.began = trio.Event()
        await session.abort(wire.AbortParams(), ME)
        parked = await steer(session, "parked", now=True, no_wake=False, as_="hook")
        assert parked["parked"] is not None
        await session.retry(wire.RetryParams(message=first["message"]), ME)
        with trio.fail_after(5):
            await world.gate.began.wait()
        await wait_all_tasks_blocked()
        assert session.state.turn is not None
        assert session.state.turn.step == 1
        world.gate.opened.set()
        await settled(session, first["message"])


async def test_a_crash_before_it_took_effect_loses_neither_it_nor_a_result() -> None:
    world = world_of(call("gate:b"))
    async with world.run():
        session = await world.session()
        await followup(session, "work")
        with trio.fail_after(5):
            await world.gate.began.wait()
        session.driver.hurry = lambda: None  # type: ignore[method-assign]
        receipt = await hasty(session)
    again = world.crash()
    again.script = [say("after")]
    async with again.run():
        session = await again.again(session)
        assert (await settled(session, receipt["message"]))["text"] == "after"
        assert results(again, session) == [
            (
                "t1_1_1",
                "The daemon stopped while this call ran",
                "OUTCOME_UNKNOWN",
            ),
        ]
        check_log(again.events(session))


async def test_it_is_a_persons_and_a_steers() -> None:
    async with world_of().run() as world:
        session = await world.session()
        tool = Peer(uid=1000, pid=5, kind="agent", session=session.id)
        with pytest.raises(Denied, match="can't cut a step short"):
            await session.send(wire.SendParams(verb="steer", text="x", now=True), tool)
        for verb, more in (("followup", {}), ("steer", {"no_wake": True}), ("steer", {"hold": True})):
            params: dict[str, Any] = {"verb": verb, **more}
            with pytest.raises(Invalid, match="--now"):
                wire.SendParams(text="x", now=True, **params).check()
