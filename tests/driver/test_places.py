"""How many turns work at once, who is next, and what doesn't stand in the way of others."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dshd import wire
from dshd.config import Config
from dshd.driver.places import Places, Seat
from dshd.model.errors import ModelError
from dshd.session.owner.session import Session
from tests.driver.test_waits import ended, later, waiting
from tests.session.rig import ME, World, followup, say


def small(most: int = 1, **more: Any) -> World:
    config = Config()
    return World(config=attrs.evolve(config, driver=attrs.evolve(config.driver, max_running=most)), **more)


@attrs.define(eq=False)
class Slow:
    """A model that answers when it is told to."""

    asked: trio.Event = attrs.field(factory=trio.Event)
    answers: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self) -> Any:
        self.asked.set()
        await self.answers.wait()
        return say("slowly")


async def busy(world: World) -> tuple[Session, str, Slow]:
    """A session that holds the only place."""
    slow, session = Slow(), await world.session()
    world.script.append(slow)
    id = (await followup(session, "first"))["message"]
    with trio.fail_after(5):
        await slow.asked.wait()
    return session, id, slow


async def in_line(session: Session) -> None:
    with trio.fail_after(5):
        await wait_all_tasks_blocked(0.01)
    assert session.activity.waits == "place", session.activity


async def test_who_finds_no_place_waits_and_says_so() -> None:
    async with small().run() as world:
        first, a, slow = await busy(world)
        second = await world.session()
        receipt = await followup(second, "second")
        b = receipt["message"]
        assert receipt["waits_for"] == "waiting (1 session runs already)"
        await in_line(second)
        view = second.show()
        assert (view["state"], view["doing"]) == ("waiting", "waiting (1 session runs already)")
        said = second.why(b)["sentence"]
        assert said == "1 session runs already; when one of them ends or waits, it is next."
        assert "turn/start" not in world.types(second)
        slow.answers.set()
        assert (await ended(first, a, 5))["outcome"] == (await ended(second, b, 5))["outcome"] == "completed"


async def test_a_turn_that_waits_for_its_provider_holds_no_place(autojump_clock: Any) -> None:
    async with small().run() as world:
        first, second = await world.session(), await world.session()
        world.script = [ModelError("RATE_LIMIT", "later", retry_after=600.0)]
        a = (await followup(first, "a"))["message"]
        await waiting(first)
        b = (await followup(second, "b"))["message"]
        assert (await ended(second, b, 5))["outcome"] == "completed"
        assert (await ended(first, a, 700))["outcome"] == "completed"


async def test_a_turn_that_has_waited_stands_in_line_for_its_next_attempt() -> None:
    async with small().run() as world:
        first = await world.session()
        world.script = [ModelError("RATE_LIMIT", "later", retry_after=600.0)]
        a = (await followup(first, "a"))["message"]
        await waiting(first)
        _, _, slow = await busy(world)
        await first.wake(wire.WakeParams(), ME)
        await in_line(first)
        assert first.why(a)["reason"] == "entered"
        assert len(world.requests) == 2
        slow.answers.set()
        assert (await ended(first, a, 5))["outcome"] == "completed"


async def test_sessions_take_turns_and_a_long_queue_is_no_faster(autojump_clock: Any) -> None:
    async with small().run() as world:
        _, _, slow = await busy(world)
        many, one = await world.session(), await world.session()
        for text in "abc":
            await followup(many, text)
        await trio.sleep(1)
        last = (await followup(one, "x"))["message"]
        await in_line(one)
        slow.answers.set()
        await ended(one, last, 5)
        assert many.state.last_turn < 3


async def test_an_abort_in_line_ends_what_was_about_to_run() -> None:
    async with small().run() as world:
        _, _, slow = await busy(world)
        second = await world.session()
        b = (await followup(second, "b"))["message"]
        c = (await followup(second, "c"))["message"]
        await in_line(second)
        done = await second.abort(wire.AbortParams(), ME)
        assert (done["turn"], done["outcome"]) == (1, "aborted")
        assert second.state.receipts[b].state == "aborted"
        assert second.state.is_parked(c)
        with trio.fail_after(5):
            while second.activity.phase != "idle":
                await trio.lowlevel.checkpoint()
        slow.answers.set()


async def test_a_removed_message_leaves_the_line() -> None:
    async with small().run() as world:
        _, _, slow = await busy(world)
        second = await world.session()
        b = (await followup(second, "b"))["message"]
        await in_line(second)
        await second.queue_change("rm", [b], ME)
        with trio.fail_after(5):
            while second.activity.phase != "idle":
                await trio.lowlevel.checkpoint()
        slow.answers.set()


async def test_a_stop_lets_nobody_in_and_the_next_daemon_keeps_the_order(autojump_clock: Any) -> None:
    world = small()
    async with world.run():
        _, _, slow = await busy(world)
        others = [await world.session() for _ in range(4)]
        for n, session in enumerate(reversed(others)):
            await followup(session, f"number {n}")
            await trio.sleep(1)
        await in_line(others[0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.registry.drain, 10.0)
            await wait_all_tasks_blocked()
            slow.answers.set()
        assert all("turn/start" not in world.types(session) for session in others)
    after = later(world)
    async with after.run():
        for session in others:
            with trio.fail_after(60):
                await (await after.again(session)).wait_idle()
    assert [f"number {n}".encode() in body for n, body in enumerate(after.requests)] == [True] * 4


async def test_more_places_let_more_in() -> None:
    async with small().run() as world:
        _, _, slow = await busy(world)
        second = await world.session()
        b = (await followup(second, "b"))["message"]
        await in_line(second)
        world.config = small(2).config
        world.registry.reloaded()
        assert (await ended(second, b, 5))["outcome"] == "completed"
        slow.answers.set()


async def test_another_route_has_places_of_its_own() -> None:
    async with small().run() as world:
        _, _, slow = await busy(world)
        other = await world.session()
        await other.change({"model": "other"}, ME)
        assert (await ended(other, (await followup(other, "x"))["message"], 5))["outcome"] == "completed"
        slow.answers.set()


@pytest.mark.parametrize("order", ["let in, cancelled", "cancelled, let in", "cancelled, and later let in"])
async def test_a_place_is_never_lost_to_one_that_is_cancelled(order: str) -> None:
    places = Places(lambda: 1)
    first, second, third = Seat(places), Seat(places), Seat(places)
    await first.take("r", 1)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await second.take("r", 2)

            nursery.start_soon(cancelled)
            await wait_all_tasks_blocked()
            if order.startswith("let in"):
                first.leave()
            scope.cancel()
            if "later" in order:
                await wait_all_tasks_blocked()
            first.leave()
            await wait_all_tasks_blocked()
            second.leave()
            await third.take("r", 3)
    assert third.taken
    assert places.is_full("r")
