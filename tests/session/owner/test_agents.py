"""Subagents: started, waited for, steered, stopped; told of once, whatever dies; and what they share."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dshd import wire
from dshd.config import Budget, Config
from dshd.errors import Conflict, DshError
from dshd.model.chunks import BlockStart, Chunk, Finish, ToolCallDelta, Usage
from dshd.session.deciding import subagenting
from dshd.session.owner.session import Session
from dshd.tools.agents import Agent
from dshd.tools.tool import ToolContext, ToolOutput, failure
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, memory, of_type, say, settled, until

Answer = Callable[[str], Any]  # is given the request; the answer, or a coroutine function that gives one


def agent(**args: Any) -> list[Chunk]:
    """An answer that calls the tool."""
    return [
        BlockStart(0, "tool-call", id="p0", name="agent"), ToolCallDelta(0, json.dumps(args)),
        Usage({"input": 10, "output": 2}), Finish("tool-calls"),
    ]  # fmt: skip


class Told(Agent):
    """Refusals become results, as in the real registry."""

    async def run(self, args: Any, ctx: ToolContext) -> ToolOutput:
        try:
            return await super().run(args, ctx)
        except DshError as error:
            return failure(error.message, error.code)


class Family(World):
    """``parent``, ``child`` and ``deep`` answer, in order: to requests that say PARENT, else CHILD, else
    neither."""

    def __init__(self, disk: Any = None, **more: Any) -> None:
        super().__init__(disk, **more)
        self.parent: list[Any] = []
        self.child: list[Any] = []
        self.deep: list[Any] = []
        self.tools.add(Told())
        self.script = [self._answer] * 200

    async def _answer(self) -> Any:
        await trio.lowlevel.checkpoint()
        body = self.requests[-1].decode()
        mine = self.parent if "PARENT" in body else self.child if "CHILD" in body else self.deep
        item = mine.pop(0) if mine else say("done")
        return await item() if callable(item) else item

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Family]:
        async with super().run():
            yield self

    def crash(self, survivor: Any = None) -> Family:
        after = super().crash(survivor)
        family = Family(after.disk, config=self.config)
        family.clock_offset = after.clock_offset
        return family


def family(*parent: Any, child: Any = (), config: Config | None = None) -> Family:
    world = Family(config=config)
    world.parent, world.child = list(parent), list(child)
    return world


async def child_of(world: Family, session: Session) -> Session:
    await until(session, lambda: session.state.agents)
    (one,) = list(session.state.agents)[-1:]
    return await world.registry.get(one)


def told(world: Family, session: Session) -> list[str]:
    """The messages that told of an end."""
    return [
        m["content"][0]["text"]
        for m in of_type(world, session, "user/message") if m["source"]["kind"] == "agent"
    ]  # fmt: skip


def gate() -> tuple[trio.Event, Any]:
    opened = trio.Event()

    async def wait() -> Any:
        await opened.wait()
        return say("the child's answer")

    return opened, wait


async def waiting(session: Session) -> None:
    """Its turn has come to where it waits for a subagent."""
    with trio.fail_after(10):
        while session.show()["waits"] != "agent":
            await wait_all_tasks_blocked()


START = agent(action="start", prompt="CHILD: look")


async def test_its_answer_wakes_its_parent_and_is_told_once() -> None:
    opened, slow = gate()
    async with family(START, say("started"), say("thanks"), child=[slow]).run() as world:
        session = await world.session()
        first = await followup(session, "PARENT")
        assert (await settled(session, first["message"]))["text"] == "started"
        child = await child_of(world, session)
        types = world.types(session)
        assert types.index("subagent/started") < types.index("tool/result")
        assert child.state.header is not None
        assert (child.state.header["parent"], child.state.header["depth"]) == (session.id, 1)
        assert child.state.settings["mode"] == session.state.settings["mode"]
        assert not child.row().implicit
        assert not session.rests
        opened.set()
        await until(session, lambda: session.state.last_turn == 2 and session.state.turn is None)
        assert told(world, session) == [
            f"Subagent {child.id} has ended: completed.\nthe child's answer"
        ]
        await until(child, lambda: child.state.closed)
        check_log(world.events(session))
        check_memory(session, world.events(session))


async def test_a_call_that_waits_for_it_gets_the_answer_and_no_message_comes() -> None:
    opened, slow = gate()
    config = Config()
    async with family(START, agent(action="wait"), say("both"), child=[slow], config=config).run() as world:
        session = await world.session()
        first = await followup(session, "PARENT")
        await waiting(session)
        assert not session.driver._seat.taken, "who only waits holds no place"
        opened.set()
        assert (await settled(session, first["message"]))["text"] == "both"
        results = of_type(world, session, "tool/result")
        assert "the child's answer" in results[1]["content"][0]["text"]
        assert [t["by"] for t in of_type(world, session, "subagent/told")] == ["call"]
        assert told(world, session) == []
        assert session.state.pending == 0
        check_memory(session, world.events(session))


async def test_it_is_steered_and_stopped_by_the_model() -> None:
    _, slow = gate()
    world = family(child=[slow])
    async with world.run():
        session = await world.session()
        world.parent = [START, say("x")]
        await settled(session, (await followup(session, "PARENT"))["message"])
        child = await child_of(world, session)
        world.parent = [agent(action="steer", agent=child.id, prompt="also this"), say("y")]
        await settled(session, (await followup(session, "more"))["message"])
        (waits,) = child.state.queues["next-step"]
        assert (waits.text, waits.kind, waits.source["via"]) == ("also this", "agent", session.id)
        world.parent = [agent(action="stop", agent=child.id), say("z")]
        await settled(session, (await followup(session, "stop it"))["message"])
        assert "has ended: aborted" in of_type(world, session, "tool/result")[-1]["content"][0]["text"]
        assert not session.state.running_agents
        assert told(world, session) == []


async def test_an_abort_stops_the_tree_and_no_tree_leaves_it() -> None:
    for tree in (True, False):
        _, slow = gate()
        async with family(START, call("gate:g"), say("x"), child=[slow]).run() as world:
            session = await world.session()
            await followup(session, "PARENT")
            with trio.fail_after(5):
                await world.gate.began.wait()
            child = await child_of(world, session)
            await until(child, lambda: child.state.turn is not None)  # noqa: B023
            await session.abort(wire.AbortParams(tree=tree), ME)
            assert (child.state.turn is None) == tree
            assert bool(session.state.running_agents) != tree


async def test_closing_and_removing_takes_them_along() -> None:
    _, slow = gate()
    async with family(START, say("x"), child=[slow]).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        child = await child_of(world, session)
        with pytest.raises(Conflict, match="has 1 subagent at work"):
            await session.close(False, ME)
        with pytest.raises(Conflict, match="has 1 subagent at work"):
            await world.registry.delete(session.id, False, ME)
        await session.close(True, ME)
        assert child.state.closed
        await world.registry.delete(session.id, True, ME)
        assert not world.store.exists(child.id)


async def test_none_is_started_too_deep() -> None:
    nest = [agent(action="start", prompt="further down"), agent(action="wait"), say("middle")]
    async with family(START, agent(action="wait"), say("top"), child=nest).run() as world:
        world.deep = [START, say("I did it myself")]
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        assert len(world.store.ids()) == 3
        (refused,) = [
            r
            for id in world.store.ids()
            for r in of_type(world, await world.registry.get(id), "tool/result")
            if r["is_error"]
        ]
        assert "has no subagents: do it yourself" in refused["content"][0]["text"]


async def test_what_it_spends_counts_to_its_parents_budget_and_stops_both() -> None:
    config = Config(budget=Budget(turn_tokens=40))
    busy = [call("quick:a")] * 9
    async with family(START, agent(action="wait"), say("x"), child=busy, config=config).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        child = await child_of(world, session)
        assert session.state.spent["input"] == sum(
            m["usage"]["input"]
            for one in (session, child)
            for m in of_type(world, one, "assistant/message")
        )
        ended = of_type(world, child, "turn/end")[0]
        assert (ended["reason"], ended["cause"]) == ("budget", "turn_tokens")
        assert len(of_type(world, child, "assistant/message")) < 4
        await until(child, lambda: child.state.closed)  # its parent was told: nobody needs to deal with it
        assert session.show()["needs"][0]["kind"] == "parked"


async def test_a_crash_of_both_is_told_once_and_nothing_is_started_twice() -> None:
    _, slow = gate()
    world = family(START, agent(action="wait"), child=[slow])
    async with world.run():
        session = await world.session()
        await followup(session, "PARENT")
        await waiting(session)
        child = await child_of(world, session)
        await until(child, lambda: child.state.turn is not None)
    after = world.crash()
    after.parent = [say("go on")]
    async with after.run():
        session = await after.registry.get(session.id)
        await until(session, lambda: told(after, session))
        await until(session, lambda: session.state.turn is None)
        assert told(after, session) == [f"Subagent {child.id} has ended: interrupted.\n(crash)"]
        assert sorted(after.store.ids()) == sorted([session.id, child.id])
        check_log(after.events(session))
        check_memory(session, after.events(session))


async def test_a_crash_that_keeps_the_result_and_takes_the_note_that_it_told_tells_nothing_twice() -> None:
    async with family(START, agent(action="wait"), say("both")).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        lines = world.types(session)
    after = world.crash()
    path, disk = after.store.log_path(session.id), memory(after)
    kept = disk.peek(path).splitlines(keepends=True)[: lines.index("subagent/told")]
    assert b"has ended" in kept[-1]
    assert b'"type":"tool/result"' in kept[-1]
    disk.poke(path, b"".join(kept))
    async with after.run():
        session = await after.registry.get(session.id)
        await session.start()
        with trio.fail_after(5):
            await session.wait_idle()
        await wait_all_tasks_blocked()
        assert told(after, session) == []
        assert all(one.told for one in session.state.agents.values())
        check_log(after.events(session))
        check_memory(session, after.events(session))


async def test_one_that_was_noted_and_not_made_is_made_at_the_next_start() -> None:
    world = family(call("gate:g"))
    async with world.run():
        session = await world.session()
        await followup(session, "PARENT")
        with trio.fail_after(5):
            await world.gate.began.wait()
        id = await world.registry.kin.fresh_id()
        await session.record(lambda s: subagenting.start(s, id, "t1_1_1", "CHILD: look", "fresh"))
    after = world.crash()
    after.child = [say("late answer")]
    async with after.run():
        session = await after.registry.get(session.id)
        await until(session, lambda: told(after, session))
        assert told(after, session) == [f"Subagent {id} has ended: completed.\nlate answer"]


async def test_a_fork_of_its_parents_history_begins_where_the_turn_did() -> None:
    start = agent(action="start", prompt="CHILD: look", context="fork")
    async with family(say("hello"), start, agent(action="wait"), say("x")).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT one"))["message"])
        await settled(session, (await followup(session, "two"))["message"])
        child = await child_of(world, session)
        said = [m["content"][0]["text"] for m in of_type(world, child, "user/message")]
        assert "PARENT one" in said
        assert "two" not in said
        assert said[-2:].count("CHILD: look") == 1
        assert child.state.settings["agent"] == session.id
        assert len(of_type(world, session, "subagent/ended")) == 1


async def test_no_more_than_the_limit_work_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subagenting, "MOST", 1)
    _, slow = gate()
    async with family(START, START, say("x"), child=[slow]).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "PARENT"))["message"])
        assert "1 runs already" in of_type(world, session, "tool/result")[1]["content"][0]["text"]
        assert len(world.store.ids()) == 2


async def test_it_may_do_no_more_than_its_parent_may_now() -> None:
    _, slow = gate()
    async with family(START, say("x"), child=[slow]).run() as world:
        session = await world.session(net=True)
        await settled(session, (await followup(session, "PARENT"))["message"])
        child = await child_of(world, session)
        ties = world.registry.services.ties
        assert ties.bounds(child.state, "full", True) == ("full", True)
        await session.change({"mode": "read-only", "net": False}, ME)
        assert ties.bounds(child.state, "full", True) == ("read-only", False)
        assert ties.bounds(session.state, "full", True) == ("full", True)
