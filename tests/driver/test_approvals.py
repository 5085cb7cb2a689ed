"""Calls that a person must allow: asked, answered, and what becomes of the turn meanwhile."""

from __future__ import annotations

import errno
import json
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dshd import wire
from dshd.config import Approval, Budget, Config
from dshd.config import Driver as DriverConfig
from dshd.errors import Conflict, Denied, NoSpace, NotFound
from dshd.log.memory import MemoryDisk
from dshd.model.chunks import BlockStart, TextDelta
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.tools.tool import Rule
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, memory, say, settled, steer, until

ASK = [Rule("ask", tool="quick"), Rule("ask", tool="gate")]
HER = Peer(uid=1000, pid=99, tty="pts/9", client="dshctl")


def asking(*script: Any, config: Config | None = None) -> World:
    world = World(config=config)
    world.rules = list(ASK)
    world.script = list(script)
    return world


async def asks(session: Session, *ids: str) -> None:
    await until(session, lambda: [one.id for one in session.state.asks] == list(ids))
    await wait_all_tasks_blocked()


async def answer(world: World, id: str, given: Any = "allow", peer: Peer = ME, **more: Any) -> dict[str, Any]:
    params = wire.ApprovalAnswerParams(id=id, answer=given, **more)
    return await world.registry.approvals.answer(await world.registry.approvals.session_of(id), params, peer)


def index(world: World, session: Session, type: str, **data: Any) -> int:
    """Where the first such event stands in the log."""
    events = enumerate(world.events(session))
    found = [n for n, e in events if e.type == type and data.items() <= e.data.items()]
    assert found, f"no {type} {data}"
    return found[0]


def results(world: World, session: Session) -> list[tuple[str, str]]:
    return [
        (e.data["call"], e.data["content"][0]["text"])
        for e in world.events(session) if e.type == "tool/result"
    ]  # fmt: skip


async def test_a_call_that_is_asked_about_runs_once_it_is_allowed_and_not_before() -> None:
    said = [BlockStart(9, "text"), TextDelta(9, "I clean first."), *call("quick:x")]
    async with asking(said).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
        assert world.quick.runs == []
        assert session.show()["state"] == "asks"
        (need,) = session.show()["needs"]
        assert (need["kind"], need["id"], need["what"]) == ("approval", "a1", "quick x")
        (shown,) = world.registry.approvals.open()
        assert shown["arguments"] == '{"name": "x"}'
        assert shown["why"] == "I clean first."
        assert shown["rule"] == 'the rule on tool "quick" says ask'
        assert "tool/call" not in world.types(session)
        allowed = await answer(world, "a1")
        assert allowed["answer"] == "allow"
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"
        assert world.quick.runs == ["x"]
        assert results(world, session) == [("t1_1_1", "quick x")]
        order = [
            index(world, session, type)
            for type in (
                "assistant/message",
                "approval/asked",
                "approval/answered",
                "tool/call",
                "tool/result",
            )
        ]
        assert order == sorted(order)
        assert world.events(session)[order[1]].synced is None, "the question shares the answer's batch"
        check_log(world.events(session), quiet=True)
        check_memory(session, world.events(session))


async def test_a_denied_call_is_a_result_with_the_reason_and_the_turn_goes_on() -> None:
    async with asking(call("quick:x", "look:y"), say("understood")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
        await answer(world, "a1", "deny", reason="use make clean.")
        result = await settled(session, receipt["message"])
        assert (result["outcome"], result["text"]) == ("completed", "understood")
        assert results(world, session) == [
            ("t1_1_1", "Denied by the user: use make clean. It was not run."), ("t1_1_2", "quick y"),
        ]  # fmt: skip
        assert b"use make clean" in world.requests[-1]
        assert world.quick.runs == []
        calls = [e.data["call"] for e in world.events(session) if e.type == "tool/call"]
        assert calls == ["t1_1_2"]
        check_log(world.events(session), quiet=True)


async def test_where_nobody_is_there_to_ask_the_call_is_denied_at_once_and_the_run_ends() -> None:
    async with asking(call("quick:x"), say("then not")).run() as world:
        session = await world.session()
        receipt = await followup(session, "work")
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"
        assert results(world, session)[0][1].startswith("denied: nobody to ask")
        assert world.quick.runs == []
        assert "approval/asked" not in world.types(session)


async def test_all_questions_of_an_answer_are_put_at_once_and_answered_in_any_order() -> None:
    async with asking(call("look:1", "quick:2", "look:3", "quick:4")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1", "a2")
        assert world.look.runs == ["1"], "what stands before runs, what stands behind has not begun"
        assert results(world, session) == [("t1_1_1", "quick 1")]
        await answer(world, "a2", "deny")
        await wait_all_tasks_blocked()
        assert [one["id"] for one in world.registry.approvals.open()] == ["a1"]
        assert world.look.runs == ["1"]
        await answer(world, "a1")
        await settled(session, receipt["message"])
        assert [id for id, _ in results(world, session)] == ["t1_1_1", "t1_1_2", "t1_1_3", "t1_1_4"]
        assert (world.look.runs, world.quick.runs) == (["1", "3"], ["2"])
        check_log(world.events(session), quiet=True)


async def test_the_first_answer_wins_and_a_second_is_told_who_was_first() -> None:
    async with asking(call("gate:x")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "work")
        await asks(session, "a1")
        await answer(world, "a1", peer=HER)
        with pytest.raises(Conflict, match=r"a1 is allowed already, by you \(pts/9\) at 20"):
            await answer(world, "a1", "deny")
        world.gate.opened.set()
        await until(session, lambda: session.quiet)
        with pytest.raises(Conflict, match="allowed already"):
            await answer(world, "a1", "deny")
        assert world.types(session).count("approval/answered") == 1
        with pytest.raises(NotFound, match="no approval"):
            await answer(world, "a77")


async def test_answers_at_the_same_instant_are_one_answer() -> None:
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "work")
        await asks(session, "a1")
        told: list[str] = []

        async def one(given: str) -> None:
            try:
                told.append((await answer(world, "a1", given))["answer"])
            except Conflict:
                told.append("late")

        async with trio.open_nursery() as nursery:
            for given in ("deny", "allow", "allow", "deny"):
                nursery.start_soon(one, given)
        assert told.count("late") == 3
        await until(session, lambda: session.quiet)
        assert world.types(session).count("approval/answered") == 1


async def test_what_nobody_answers_in_time_is_denied_and_the_model_is_told(autojump_clock: MockClock) -> None:
    config = Config(approval=Approval(expires=3600.0), budget=Budget(turn_time=60.0))
    async with asking(call("quick:x"), config=config).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        began = trio.current_time()
        result = await session.wait_message(receipt["message"], stay=True)
        assert result["outcome"] == "completed", "waiting counts to no budget"
        assert 3600 <= trio.current_time() - began < 3611
        assert results(world, session) == [
            ("t1_1_1", "Denied: a person was asked, and nobody answered in time. It was not run.")
        ]
        event = world.events(session)[index(world, session, "approval/answered")]
        assert event.data["answer"] == "deny"
        assert event.data["by"]["via"] == "clock"
        with pytest.raises(Conflict, match="nobody had answered"):
            await answer(world, "a1")


async def test_an_answer_that_comes_too_late_is_none_even_if_the_clock_was_not_looked_at() -> None:
    config = Config(approval=Approval(expires=3600.0))
    async with asking(call("quick:x"), config=config).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "work")
        await asks(session, "a1")
        world.clock_offset += 3_600_000
        with pytest.raises(Conflict, match="nobody had answered"):
            await answer(world, "a1")
        await until(session, lambda: session.quiet)
        assert world.quick.runs == []


async def test_on_a_full_disk_its_end_is_tried_again_now_and_then(autojump_clock: MockClock) -> None:
    config = Config(approval=Approval(expires=3600.0))
    async with asking(call("quick:x"), config=config).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
        disk, tries = world.disk, 0
        assert isinstance(disk, MemoryDisk)

        def count(call: str, path: str) -> None:
            nonlocal tries
            tries += call == "write" and path.endswith("log.jsonl")
            if tries > 500:  # else a loop without a pause would be one without an end
                disk.limit()

        disk.limit(free=0)
        disk.before(count)
        await trio.sleep(3600 + 60)
        assert session.state.asks
        assert 10 < tries < 200
        disk.limit()
        await session.wait_message(receipt["message"], stay=True)
        assert world.quick.runs == []
        assert session.state.approvals["a1"].answer == "deny"


async def test_an_abort_ends_the_question_and_says_so_to_who_comes_late() -> None:
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
        aborted = await session.abort(wire.AbortParams(), HER)
        assert aborted["outcome"] == "aborted"
        assert (await settled(session, receipt["message"]))["outcome"] == "aborted"
        event = world.events(session)[index(world, session, "approval/answered")]
        assert event.data["answer"] == "withdrawn"
        assert event.data["by"]["tty"] == "pts/9"
        with pytest.raises(Conflict, match="no longer asked: the user aborted the turn"):
            await answer(world, "a1")
        assert world.registry.approvals.open() == []
        assert world.quick.runs == []
        check_log(world.events(session), quiet=True)


@pytest.mark.parametrize("how", ["close", "rm"])
async def test_who_closes_or_removes_a_session_that_asks_must_say_so(how: str) -> None:
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "work")
        await asks(session, "a1")
        with pytest.raises(Conflict):
            await session.close(False, ME)
        with pytest.raises(Conflict):
            await world.registry.delete(session.id, False, ME)
        if how == "close":
            await session.close(True, ME)
            assert session.state.approvals["a1"].answer == "withdrawn"
        else:
            await world.registry.delete(session.id, True, ME)
        assert world.registry.approvals.open() == []
        with pytest.raises(Conflict if how == "close" else NotFound):
            await answer(world, "a1")


async def test_allowed_for_the_session_is_this_very_thing_until_it_is_taken_back() -> None:
    x, y = call("quick:x"), call("quick:y")
    async with asking(x, say("1"), x, y, say("2"), x, say("3")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "one")
        await asks(session, "a1")
        await answer(world, "a1", scope="session")
        await until(session, lambda: session.quiet)
        await followup(session, "two")
        await asks(session, "a2")
        assert world.quick.runs == ["x", "x"]
        await answer(world, "a2", "deny")
        await until(session, lambda: session.quiet)
        (listed,) = await world.registry.approvals.allowed()
        assert (listed["id"], listed["scope"], listed["tool"]) == ("a1", "session", "quick")
        await world.registry.approvals.forget("a1", ME)
        assert await world.registry.approvals.allowed() == []
        with pytest.raises(NotFound, match="a1 allows nothing any more"):
            await world.registry.approvals.forget("a1", ME)
        await followup(session, "three")
        await asks(session, "a3")
        check_memory(session, world.events(session))


async def test_allowed_for_always_holds_in_every_session_and_after_a_restart() -> None:
    async with asking(call("quick:x"), say("1"), call("quick:x"), say("2")).run() as world:
        session = await world.session(ask="wait", name="one")
        await followup(session, "one")
        await asks(session, "a1")
        await answer(world, "a1", scope="always")
        await until(session, lambda: session.quiet)
        other = await world.session(ask="wait", name="two")
        await followup(other, "two")
        await until(other, lambda: other.quiet and world.quick.runs == ["x", "x"])
        await world.registry.drain(1)
    after = world.crash()
    after.script = [call("quick:x"), say("3"), call("quick:x")]
    async with after.run():
        session = await after.again(session)
        await followup(session, "three")
        await until(session, lambda: session.quiet and after.quick.runs == ["x"])
        assert [one["scope"] for one in await after.registry.approvals.allowed()] == ["always"]
        await after.registry.approvals.forget("a1", ME)
        await followup(session, "four")
        await asks(session, "a2")
        assert session.state.approvals["a2"].id == "a2", "a number is never given twice"


async def test_an_allow_is_for_what_was_asked_and_no_rule_that_denies_is_lifted() -> None:
    async with asking(call("quick:x"), say("1"), call("quick:x"), say("2")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "one")
        await asks(session, "a1")
        await answer(world, "a1", scope="always")
        await until(session, lambda: session.quiet)
        world.rules.append(Rule("deny", tool="quick"))
        await followup(session, "two")
        await until(session, lambda: session.quiet)
        assert world.quick.runs == ["x"]
        assert results(world, session)[-1][1].startswith("denied: the rule on tool")


async def test_what_is_said_while_it_waits_joins_the_next_step() -> None:
    async with asking(call("quick:x"), say("done")).run() as world:
        session = await world.session(ask="wait")
        first = await followup(session, "work")
        await asks(session, "a1")
        for send in (steer, inject, followup):
            receipt = await send(session, "yes, allow a1")
            assert receipt["state"] == "pending"
            why = session.why(receipt["message"])
            assert why["sentence"] == "Waits for your answer to a1 (quick x)."
            assert why["hint"] == "dshctl allow a1"
        assert session.why(first["message"])["reason"] == "asks"
        assert [one.id for one in session.state.asks] == ["a1"], "no text answers an approval"
        await answer(world, "a1")
        await settled(session, first["message"])
        steps = [(e.data["turn"], e.data["step"]) for e in world.events(session)
                 if e.type == "user/message" and e.data["source"]["kind"] == "user"]  # fmt: skip
        assert steps[:3] == [(1, 1), (1, 2), (1, 2)]


async def test_who_waits_is_told_at_once_that_an_answer_is_wanted_unless_they_know_or_stay() -> None:
    async with asking(call("quick:x", "quick:y"), say("done")).run() as world:
        session = await world.session(ask="wait")
        first = await followup(session, "work")
        behind = await followup(session, "more")
        await asks(session, "a1", "a2")
        for message in (first, behind):
            result = await settled(session, message["message"])
            assert (result["exit"], result["outcome"]) == (16, None)
            assert [one["id"] for one in result["approvals"]] == ["a1", "a2"]
        assert (await session.wait_idle())["exit"] == 16
        got: list[dict[str, Any]] = []

        async def wait(**more: Any) -> None:
            got.append(await session.wait_message(first["message"], **more))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: wait(asked=("a1", "a2")))
            nursery.start_soon(lambda: wait(stay=True))
            await wait_all_tasks_blocked()
            assert got == []
            await answer(world, "a1")
            await answer(world, "a2")
        assert [one["outcome"] for one in got] == ["completed", "completed"]


async def test_a_tool_can_answer_nothing() -> None:
    agent = Peer(uid=1000, pid=1, kind="agent")
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "work")
        await asks(session, "a1")
        own = attrs.evolve(agent, session=session.id)
        for peer in (agent, own):
            for given in ("allow", "deny"):
                with pytest.raises(Denied):
                    await answer(world, "a1", given, peer)
            with pytest.raises(Denied):
                await world.registry.approvals.forget("a1", peer)
        assert [one.id for one in session.state.asks] == ["a1"]


async def test_numbers_count_up_through_all_sessions_and_are_made_again_if_their_file_is_lost() -> None:
    async with asking(call("quick:x"), call("quick:y")).run() as world:
        one, two = await world.session(ask="wait", name="one"), await world.session(ask="wait", name="two")
        await followup(one, "work")
        await asks(one, "a1")
        await followup(two, "work")
        await asks(two, "a2")
        assert [(a["id"], a["name"]) for a in world.registry.approvals.open()] == [
            ("a1", "one"),
            ("a2", "two"),
        ]
        await one.abort(wire.AbortParams(), ME)
    for damage in ("gone", "garbled"):
        after = world.crash()
        path = after.store.state / "ids.json"
        after.disk.unlink(path)
        if damage == "garbled":
            after.disk.write_atomic(path, b"{")
        after.script = [call("quick:z")]
        async with after.run():
            again = await after.again(one)
            await followup(again, "work")
            await asks(again, "a3")
            assert (await after.registry.approvals.session_of("a2")).id == two.id


# --- restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("given", ["allow", "deny"])
async def test_a_question_outlives_the_daemon_and_the_next_heeds_its_answer(how: str, given: str) -> None:
    async with asking(call("look:1", "quick:2", "look:3"), say("done")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
        assert session.state.turn is not None
        assert session.state.turn.only_waits
        if how == "stop":
            with trio.fail_after(5):
                await world.registry.drain(30)
    after = world.crash()
    after.script = [say("done")]
    async with after.run():
        session = await after.again(session)
        await asks(session, "a1")
        assert session.show()["state"] == "asks"
        assert session.activity.waits == "approval"
        assert "turn/end" not in after.types(session)
        assert after.look.runs == []
        await answer(after, "a1", given)
        result = await settled(session, receipt["message"])
        assert (result["outcome"], result["text"]) == ("completed", "done")
        assert after.quick.runs == (["2"] if given == "allow" else [])
        assert after.look.runs == ["3"]
        assert [id for id, _ in results(after, session)] == ["t1_1_1", "t1_1_2", "t1_1_3"]
        assert after.types(session).count("approval/asked") == 1
        assert after.types(session).count("approval/answered") == 1
        assert after.types(session).count("turn/start") == 1
        check_log(after.events(session), quiet=True)
        check_memory(session, after.events(session))


async def test_a_question_that_a_crash_took_from_its_batch_is_put_by_the_next_daemon() -> None:
    async with asking(call("quick:1", "look:2", "quick:3")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1", "a2")
        second = index(world, session, "approval/asked", id="a2")
    after = world.crash()
    path, disk = after.store.log_path(session.id), memory(after)
    disk.poke(path, b"".join(disk.peek(path).splitlines(keepends=True)[:second]))
    async with after.run():
        session = await after.again(session)
        await asks(session, "a1", "a3")
        asked = [e.data["call"] for e in after.events(session) if e.type == "approval/asked"]
        assert asked == ["t1_1_1", "t1_1_3"]
        await answer(after, "a1")
        await asks(session, "a3")
        assert after.quick.runs == ["1"]
        await answer(after, "a3")
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"
        assert after.quick.runs == ["1", "3"]
        check_log(after.events(session), quiet=True)
        check_memory(session, after.events(session))


async def test_what_the_rules_ask_about_since_a_restart_is_asked_about_in_a_step_that_waited() -> None:
    async with asking(call("quick:1", "look:2"), say("done")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
    after = world.crash()
    after.rules = [*ASK, Rule("ask", tool="look")]
    after.script = [say("done")]
    async with after.run():
        session = await after.again(session)
        await asks(session, "a1", "a2")
        await answer(after, "a2")
        await answer(after, "a1", "deny")
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"
        assert (after.quick.runs, after.look.runs) == ([], ["2"])
        check_log(after.events(session), quiet=True)


@pytest.mark.parametrize("given", ["allow", "deny"])
async def test_an_answer_that_was_acknowledged_counts_though_the_daemon_died_before_it_could_heed_it(
    given: str,
) -> None:
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
    between = world.crash()
    async with between.run():
        session = await between.again(session)
        session.driver.draining = True  # nobody heeds it here
        session.driver.cancel("shutdown")
        await until(session, lambda: session.activity.phase == "idle")
        await answer(between, "a1", given)
        assert between.quick.runs == []
    after = between.crash()
    async with after.run():
        session = await after.again(session)
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"
        assert after.quick.runs == (["x"] if given == "allow" else [])
        assert "approval/answered" in after.types(session)
        check_log(after.events(session), quiet=True)


async def test_a_call_that_was_allowed_and_had_started_is_of_unknown_outcome_and_not_run_again() -> None:
    async with asking(call("gate:x", "gate:y")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "work")
        await asks(session, "a1", "a2")
        await answer(world, "a1")
        await world.gate.began.wait()
        assert not session.state.turn.only_waits  # type: ignore[union-attr]
    after = world.crash()
    async with after.run():
        session = await after.again(session)
        await until(session, lambda: session.state.turn is None)
        assert after.gate.runs == []
        said = [(e.data["call"], e.data["error"]["code"]) for e in after.events(session)
                if e.type == "tool/result"]  # fmt: skip
        assert said == [("t1_1_1", "OUTCOME_UNKNOWN"), ("t1_1_2", "NOT_STARTED")]
        assert session.state.approvals["a2"].answer == "withdrawn"
        with pytest.raises(Conflict, match="no longer asked"):
            await answer(after, "a2")
        check_log(after.events(session), quiet=True)


async def test_a_crash_in_the_middle_of_recovery_denies_nothing_in_a_persons_name() -> None:
    async with asking(call("gate:x", "quick:y")).run() as world:
        session = await world.session(ask="wait")
        await followup(session, "work")
        await asks(session, "a1", "a2")
        await answer(world, "a1")
        await world.gate.began.wait()
        second = world.crash()
    async with second.run():
        closed = await second.again(session)
        await until(closed, lambda: closed.state.turn is None)
        third = second.crash()
    log = third.store.log_path(session.id)
    lines = memory(third).peek(log).splitlines(keepends=True)
    kept = next(n for n, line in enumerate(lines, 1) if b'"type":"tool/result"' in line)
    memory(third).poke(log, b"".join(lines[:kept]))  # the question is withdrawn, and its call has no result
    async with third.run():
        again = await third.again(session)
        await until(again, lambda: again.state.turn is None)
        said = [(e.data["call"], e.data["error"]["code"]) for e in third.events(again)
                if e.type == "tool/result"]  # fmt: skip
        assert said == [("t1_1_1", "OUTCOME_UNKNOWN"), ("t1_1_2", "NOT_STARTED")]
        assert third.quick.runs == []
        check_log(third.events(again), quiet=True)


async def test_what_expired_while_no_daemon_ran_is_denied_by_the_next(autojump_clock: MockClock) -> None:
    config = Config(approval=Approval(expires=3600.0))
    async with asking(call("quick:x"), config=config).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
    after = world.crash()
    after.clock_offset += 3_600_000
    async with after.run():
        session = await after.again(session)
        assert (await session.wait_message(receipt["message"], stay=True))["outcome"] == "completed"
        assert after.quick.runs == []
        assert session.state.approvals["a1"].answer == "deny"


async def test_a_turn_that_waits_since_before_the_start_is_aborted_as_any_other() -> None:
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
    after = world.crash()
    async with after.run():
        session = await after.again(session)
        await asks(session, "a1")
        assert (await session.abort(wire.AbortParams(), ME))["outcome"] == "aborted"
        assert (await settled(session, receipt["message"]))["outcome"] == "aborted"
        assert session.state.approvals["a1"].answer == "withdrawn"
        check_log(after.events(session), quiet=True)


async def test_a_turn_that_waits_for_an_answer_holds_no_place() -> None:
    config = Config(driver=DriverConfig(max_running=1))
    async with asking(call("quick:x"), say("other"), say("done"), config=config).run() as world:
        session, other = await world.session(ask="wait", name="one"), await world.session(name="two")
        receipt = await followup(session, "work")
        await asks(session, "a1")
        second = await followup(other, "work")
        assert (await settled(other, second["message"]))["text"] == "other"
        await answer(world, "a1")
        assert (await settled(session, receipt["message"]))["text"] == "done"


async def test_questions_are_not_put_about_calls_that_make_no_sense() -> None:
    async with asking(call("quick:x"), say("ok")).run() as world:
        world.quick.schema["required"] = ["other"]
        world.tools = type(world.tools)([world.gate, world.quick, world.look])
        session = await world.session(ask="wait")
        await followup(session, "work")
        await until(session, lambda: session.quiet)
        assert "approval/asked" not in world.types(session)


def test_a_grant_is_written_as_json_and_read_again() -> None:
    from dshd.tools.grants import Grant

    grant = Grant(tool="bash", dir="/home", command="rm -rf 'x y'\n")
    assert Grant.from_json(json.loads(json.dumps(grant.to_json()))) == grant


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_where_no_question_can_be_numbered_the_turn_ends_for_the_disk(number: int) -> None:
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        begins = say("ok")

        async def answers() -> Any:
            disk.fail("rename", number)
            return call("quick:x")

        world.script = [answers, begins]
        receipt = await followup(session, "work")
        result = await settled(session, receipt["message"])
        assert (result["outcome"], result["error"]["code"], result["exit"]) == ("error", "STORAGE", 75)
        assert world.quick.runs == []
        assert "approval/asked" not in world.types(session)


async def test_an_answer_that_the_disk_does_not_take_is_none_and_can_be_given_again() -> None:
    async with asking(call("quick:x")).run() as world:
        session = await world.session(ask="wait")
        receipt = await followup(session, "work")
        await asks(session, "a1")
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        disk.limit(free=0)
        with pytest.raises(NoSpace):
            await answer(world, "a1")
        await wait_all_tasks_blocked()
        assert [one.id for one in session.state.asks] == ["a1"]
        assert world.quick.runs == []
        disk.limit()
        await answer(world, "a1")
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"
