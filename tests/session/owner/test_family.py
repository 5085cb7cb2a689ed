"""What a subagent asks or does is told to whoever waits for the session that it works for."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dshd import wire
from dshd.model.chunks import Usage
from dshd.session.owner.session import Session
from dshd.tools.tool import Rule
from tests.session.owner.test_agents import START, Family, agent, child_of, family, gate, waiting
from tests.session.owner.test_waiting import at_once
from tests.session.rig import ME, call, followup, inject, say, settled, until

NEST = [agent(action="start", prompt="further down"), agent(action="wait"), say("middle")]


def asking(*parent: Any, child: Any = (), deep: Any = ()) -> Family:
    world = family(*parent, child=child)
    world.deep = list(deep)
    world.rules = [Rule("ask", tool="quick")]
    return world


async def asked(world: Family) -> dict[str, Any]:
    with trio.fail_after(10):
        while not world.registry.approvals.open():
            await wait_all_tasks_blocked()
    (found,) = world.registry.approvals.open()
    return found


async def allow(world: Family, id: str) -> None:
    params = wire.ApprovalAnswerParams(id=id, answer="allow")
    await world.registry.approvals.answer(await world.registry.approvals.session_of(id), params, ME)


async def began(world: Family) -> tuple[Session, str]:
    session = await world.session(ask="wait")
    return session, (await followup(session, "PARENT"))["message"]


@pytest.mark.parametrize("deep", [False, True], ids=["its child", "its child's child"])
async def test_who_waits_for_a_turn_that_waits_for_a_subagent_is_told_what_that_asks(deep: bool) -> None:
    quick = [call("quick:x"), say("done")]
    lower = {"child": NEST, "deep": quick} if deep else {"child": quick}
    async with asking(START, agent(action="wait"), say("thanks"), **lower).run() as world:
        session, message = await began(world)
        results: list[Any] = []

        async def wait() -> None:
            results.append(await session.wait_message(message))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)  # from before it is asked
            question = await asked(world)
            with trio.fail_after(5):
                while not results:
                    await wait_all_tasks_blocked()
        assert (results[0]["exit"], [one["id"] for one in results[0]["approvals"]]) == (16, ["a1"])
        assert question["works_for"][-1] == {"id": session.id, "name": session.name}
        assert len(question["works_for"]) == 1 + deep
        assert world.registry.approvals.open(session.id) == [question]
        shown = session.answer(message, 1)
        assert (shown["exit"], shown["approvals"]) == (16, [question])
        for waiter in (session.wait_message(message), session.wait_idle()):
            result = await at_once(waiter)
            assert result is not None
            assert (result["exit"], result["approvals"]) == (16, [question])
        assert await at_once(session.wait_message(message, asked=["a1"])) is None, "who was asked waits on"
        why = session.why(message)
        assert (why["reason"], why["hint"]) == ("agent-asks", "dshctl allow a1")
        assert f"subagent {question['session']}, which needs your answer to a1 (quick x)." in why["sentence"]
        await allow(world, "a1")
        assert (await settled(session, message))["text"] == "thanks"


async def waiter(session: Session, message: str, results: list[Any]) -> None:
    results.append(await session.wait_message(message))


async def told_of(results: list[Any]) -> list[str]:
    await wait_all_tasks_blocked()
    assert [result["exit"] for result in results] == [16]
    return [one["id"] for one in results[0]["approvals"]]


async def test_who_waits_is_told_at_once_though_nothing_is_written_for_the_session_itself() -> None:
    opened = trio.Event()

    async def asks() -> Any:
        await opened.wait()
        return [chunk for chunk in call("quick:x") if not isinstance(chunk, Usage)]

    async with asking(START, agent(action="wait"), child=[asks]).run() as world:
        session, message = await began(world)
        await waiting(session)
        results: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiter, session, message, results)
            await wait_all_tasks_blocked()
            seq = session.state.seq
            opened.set()
            await asked(world)
            assert await told_of(results) == ["a1"]
            assert session.state.seq == seq


async def test_who_waits_is_told_at_once_when_the_turn_comes_to_wait_for_one_that_asks() -> None:
    async with asking(START, call("gate:g"), child=[call("quick:x")]).run() as world:
        session, message = await began(world)
        await asked(world)
        await world.gate.began.wait()
        results: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiter, session, message, results)
            await wait_all_tasks_blocked()
            assert results == []
            nursery.start_soon(session.agents.wait, None)
            assert await told_of(results) == ["a1"]
            nursery.cancel_scope.cancel()


async def test_what_is_asked_below_a_subagent_that_has_nothing_to_do_itself_counts_too() -> None:
    lower = {"child": [agent(action="start", prompt="further down"), say("later")], "deep": [call("quick:x")]}
    async with asking(START, agent(action="wait"), **lower).run() as world:
        session, message = await began(world)
        await waiting(session)
        await asked(world)
        child = await child_of(world, session)
        await until(child, lambda: child.state.turn is None)
        result = await at_once(session.wait_message(message))
        assert result is not None
        assert result["exit"] == 16


async def test_what_a_subagent_asks_holds_up_nobody_whose_turn_goes_on_beside_it() -> None:
    async with asking(START, call("gate:g"), say("x"), say("y"), child=[call("quick:x")]).run() as world:
        session, message = await began(world)
        await asked(world)
        await world.gate.began.wait()
        assert await at_once(session.wait_message(message)) is None
        assert session.why(message)["reason"] == "entered"
        result = await at_once(session.wait_idle())
        assert result is not None
        assert result["exit"] == 16, "it is not at rest before that is answered"
        world.gate.opened.set()
        assert (await settled(session, message))["text"] == "x"


async def test_why_names_the_subagents_that_a_turn_waits_for() -> None:
    opened, slow = gate()
    async with family(START, agent(action="wait"), say("thanks"), child=[slow]).run() as world:
        session = await world.session()
        message = (await followup(session, "PARENT"))["message"]
        await waiting(session)
        child = await child_of(world, session)
        why = session.why(message)
        assert (why["reason"], why["what"], why["hint"]) == (
            "agents", child.id, f"dshctl agents -s {session.name}",
        )  # fmt: skip
        assert f"which waits for the subagent {child.id}." in why["sentence"]
        opened.set()
        await settled(session, message)


async def test_a_session_is_not_at_rest_while_a_subagent_works_whose_end_wakes_it() -> None:
    opened, slow = gate()
    async with family(START, say("started"), say("thanks"), child=[slow]).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        assert await at_once(session.wait_idle()) is None
        fact = await inject(session, "it is Monday")
        assert await at_once(session.wait_message(fact["message"])) is None, "it rides along with that"
        opened.set()
        with trio.fail_after(5):
            result = await session.wait_idle()
        assert (result["exit"], result["text"]) == (0, "thanks")


async def test_a_parked_session_is_not_waited_for_though_a_subagent_works() -> None:
    _, slow = gate()
    async with family(START, call("gate:g"), child=[slow]).run() as world:
        session = await world.session()
        await followup(session, "PARENT")
        await world.gate.began.wait()
        await session.abort(wire.AbortParams(tree=False), ME)
        assert session.state.running_agents
        result = await at_once(session.wait_idle())
        assert result is not None
        assert result["exit"] == 0


async def test_an_abort_says_which_subagents_it_stopped_and_which_go_on() -> None:
    _, slow = gate()
    async with family(START, say("x"), child=[slow]).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        child = await child_of(world, session)
        await until(child, lambda: child.state.turn is not None)
        left = await session.abort(wire.AbortParams(tree=False), ME)
        assert (left["turn"], left["agents"], left["goes_on"]) == (None, [], [child.id])
        done = await session.abort(wire.AbortParams(), ME)
        assert (done["agents"], done["goes_on"]) == ([child.id], [])


async def test_a_row_says_what_a_subagent_waits_for() -> None:
    async with asking(START, say("x"), child=[call("quick:x"), say("done")]).run() as world:
        session, message = await began(world)
        await settled(session, message)
        await asked(world)
        (row,) = await world.registry.kin.rows(None, False)
        assert (row["state"], row["waits"], row["asks"]) == ("running", "approval", ["a1"])
        assert row["doing"] == "waits for a1: quick x"
        await allow(world, "a1")
        await until(session, lambda: not session.state.running_agents)
        (row,) = await world.registry.kin.rows(None, True)
        assert (row["waits"], row["doing"], row["asks"]) == (None, None, [])


async def test_an_interrupt_stops_those_that_the_stopped_turn_has_started_and_wakes_nobody_for_it() -> None:
    _, slow = gate()
    more = [say("started"), START, call("gate:g"), say("other"), say("never")]
    async with family(START, *more, child=[slow, slow]).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        first = await child_of(world, session)
        await followup(session, "more")
        await world.gate.began.wait()
        second = await child_of(world, session)
        await until(second, lambda: second.state.turn is not None)
        sent = await session.interrupt(wire.InterruptParams(text="leave that"), ME)
        assert (await settled(session, sent["message"]))["text"] == "other"
        await until(session, lambda: [one.id for one in session.state.running_agents] == [first.id])
        await until(second, lambda: second.state.turn is None)
        await wait_all_tasks_blocked()
        assert session.state.last_turn == 3
        assert first.state.turn is not None
