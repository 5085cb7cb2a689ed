"""``wait`` never outlasts the possibility of an end: 18 when only a person helps, 7 when nothing does."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from dshd import wire
from dshd.errors import DshError, NotFound
from dshd.log.memory import MemoryDisk
from dshd.model.errors import ModelError
from dshd.plugins import Defer, Reject
from dshd.session.owner.session import Session
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer, until

NO = ModelError("AUTH", "no")


async def running(world: World, session: Session) -> str:
    world.script = [call("gate")]
    sent = await followup(session, "running")
    await world.gate.began.wait()
    return str(sent["message"])


async def parked(world: World, session: Session) -> None:
    await running(world, session)
    await session.abort(wire.AbortParams(), ME)


async def at_once(wait: Any) -> dict[str, Any] | None:
    """The result, or None if it is waited for."""
    found: list[Any] = []

    async def one() -> None:
        found.append(await wait)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return found[0] if found else None


# {what was sent, and when: the exit code at once, or None: it is waited for}
AT_ONCE: dict[str, tuple[Any, dict[str, Any], int | None]] = {
    "an inject, nothing running": (None, {"verb": "inject"}, 18),
    "a quiet followup, nothing running": (None, {"verb": "followup", "no_wake": True}, 18),
    "an inject, a turn runs": (running, {"verb": "inject"}, None),
    "a quiet followup, a turn runs": (running, {"verb": "followup", "no_wake": True}, None),
    "a followup, a turn runs": (running, {"verb": "followup"}, None),
    "a steer, a turn runs": (running, {"verb": "steer"}, None),
    "an inject, parked": (parked, {"verb": "inject"}, 18),
    "a quiet followup, parked": (parked, {"verb": "followup", "no_wake": True}, 18),
    "a schedule's, parked": (parked, {"verb": "followup", "as_": "schedule"}, 18),
}


@pytest.mark.parametrize("what", AT_ONCE)
async def test_waiting_for(what: str) -> None:
    prepare, flags, expected = AT_ONCE[what]
    async with World().run() as world:
        session = await world.session()
        if prepare is not None:
            await prepare(world, session)
        sent = await session.send(wire.SendParams(text="x", **flags), ME)
        result = await at_once(session.wait_message(sent["message"]))
        assert (result and result["exit"]) == expected
        assert await at_once(session.wait_message(sent["message"], stay=True)) is None


async def test_an_inject_that_is_waited_for_while_a_turn_ends_without_it_is_told_so() -> None:
    """It does not ride along: the turn ends in an error, and then only a person helps."""
    async with World().run() as world:
        answer = trio.Event()

        async def slowly() -> Any:
            await answer.wait()
            return NO

        world.script = [slowly]
        session = await world.session()
        await followup(session, "work")
        await until(session, lambda: "request/sent" in world.types(session))
        fact = await inject(session, "fact")
        results: list[Any] = []

        async def wait() -> None:
            results.append(await session.wait_message(fact["message"]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert not results
            answer.set()
        assert results[0]["exit"] == 18


OUTCOMES: dict[str, tuple[Any, str, int]] = {
    "completed": (lambda: say("x"), "completed", 0),
    "max-tokens": (lambda: say("x", "max-tokens"), "max-tokens", 13),
    "error": (lambda: NO, "error", 10),
    "try later": (lambda: ModelError("QUOTA", "no money"), "error", 75),
}


@pytest.mark.parametrize("what", OUTCOMES)
async def test_a_waiter_gets_the_outcome_and_its_exit_code(what: str) -> None:
    item, outcome, code = OUTCOMES[what]
    async with World().run() as world:
        world.script = [item()]
        session = await world.session()
        sent = await followup(session, "work")
        result = await settled(session, sent["message"])
        assert (result["type"], result["outcome"], result["exit"]) == ("result", outcome, code)
        repeated = await session.wait_message(sent["message"])
        assert {**repeated, "waited_ms": 0} == {**result, "waited_ms": 0}
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        assert (await again.wait_message(sent["message"]))["exit"] == code, "later, from anywhere"


ENDS: dict[str, tuple[Any, int]] = {
    "removed": (lambda s, id: s.queue_change("rm", [id], ME), 17),
    "cleared": (lambda s, id: s.queue_clear("next-turn", ME), 17),
    "aborted": (lambda s, id: s.abort(wire.AbortParams(disposition="clear"), ME), 17),
}


@pytest.mark.parametrize("how", ENDS)
async def test_a_waiter_is_told_when_its_message_ends_without_a_turn(how: str) -> None:
    act, code = ENDS[how]
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        sent = await followup(session, "x")
        results: list[Any] = []

        async def wait() -> None:
            results.append(await session.wait_message(sent["message"]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await act(session, sent["message"])
        assert results[0]["exit"] == code


async def test_a_rejected_and_an_aborted_message_have_their_own_codes() -> None:
    class Rejects:
        name = "rejects"

        async def pre_step(self, proposal: Any) -> Any:
            return Reject("no")

    async with World(plugins=(Rejects(),)).run() as world:
        session = await world.session()
        sent = await followup(session, "x")
        assert (await settled(session, sent["message"]))["exit"] == 11
    async with World().run() as world:
        session = await world.session()
        id = await running(world, session)
        await session.abort(wire.AbortParams(), ME)
        assert (await settled(session, id))["exit"] == 12


async def test_a_deferred_message_is_waited_for_as_it_comes_back_by_itself(autojump_clock: Any) -> None:
    class Defers:
        name = "defers"
        times = 1

        async def pre_step(self, proposal: Any) -> Any:
            self.times -= 1
            return Defer("later", 30.0) if self.times >= 0 else proposal

    async with World(plugins=(Defers(),)).run() as world:
        session = await world.session()
        sent = await followup(session, "x")
        with trio.fail_after(60):
            result = await session.wait_message(sent["message"])
        assert (result["outcome"], result["waited_ms"] >= 29_000) == ("completed", True)


async def test_of_a_message_that_never_was_one_is_told() -> None:
    async with World().run() as world:
        session = await world.session()
        for id in (f"{session.id}.99", "s0000000.1", "x"):
            with pytest.raises(NotFound):
                await session.wait_message(id)


async def test_a_cancelled_wait_changes_nothing() -> None:
    async with World().run() as world:
        session = await world.session()
        id = await running(world, session)
        before = world.types(session)
        assert await at_once(session.wait_message(id)) is None
        assert world.types(session) == before
        world.gate.opened.set()
        assert (await settled(session, id))["outcome"] == "completed"


# --- idle -----------------------------------------------------------------------------------------------


async def test_waiting_for_idle_ends_when_nothing_runs_and_nothing_is_runnable() -> None:
    async with World().run() as world:
        session = await world.session()
        assert (await session.wait_idle())["exit"] == 0
        for n in range(3):
            await followup(session, f"t{n}")
        assert (await session.wait_idle())["turn"] == 3
        await inject(session, "fact")
        assert (await session.wait_idle())["exit"] == 0, "an inject wakes nobody"


async def test_waiting_for_idle_is_18_when_messages_are_parked_and_0_when_none_are() -> None:
    async with World().run() as world:
        session = await world.session()
        await parked(world, session)
        assert (await session.wait_idle())["exit"] == 0
        await inject(session, "fact")
        assert (await session.wait_idle())["exit"] == 18
        assert await at_once(session.wait_idle(stay=True)) is None


async def test_who_stays_is_served_when_the_person_has_come() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        waits = await followup(session, "waits")
        await session.abort(wire.AbortParams(), ME)
        results: list[Any] = []

        async def wait() -> None:
            results.append(await session.wait_message(waits["message"], stay=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await session.wake(wire.WakeParams(), ME)
        assert results[0]["outcome"] == "completed"


# --- broken sessions --------------------------------------------------------------------------------------


async def test_who_waits_when_the_disk_fails_is_told_with_7() -> None:
    async with World().run() as world:
        session = await world.session()
        id = await running(world, session)
        results: list[Any] = []

        async def wait() -> None:
            results.append(await session.wait_message(id))

        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            disk.fail("fdatasync", errno.EIO, path="log.jsonl")
            with pytest.raises(DshError):
                await steer(session, "x")
        assert results[0]["exit"] == 7


async def test_an_answer_is_there_without_waiting_and_by_number() -> None:
    async with World().run() as world:
        session = await world.session()
        with pytest.raises(NotFound):
            session.answer(None, 1)
        world.script = [say("one"), say("two")]
        first = await followup(session, "a")
        await settled(session, first["message"])
        second = await followup(session, "b")
        await settled(session, second["message"])
        await until(session, lambda: session.activity.phase == "idle")
        texts = [session.answer(None, 1)["text"], session.answer(None, 2)["text"]]
        assert texts == ["two", "one"]
        assert session.answer(first["message"], 1)["text"] == "one"
        with pytest.raises(NotFound):
            session.answer(None, 3)


async def test_what_has_not_ended_is_75_if_it_will_by_itself_and_18_if_a_person_must_move_it() -> None:
    async with World().run() as world:
        session = await world.session()

        def exit(sent: dict[str, Any]) -> int:
            return int(session.answer(sent["message"], 1)["exit"])

        fact = await inject(session, "wakes nobody")
        assert exit(fact) == 18
        world.script = [call("gate")]
        runs = await followup(session, "work")
        with trio.fail_after(5):
            await world.gate.began.wait()
        behind = await followup(session, "behind it")
        quiet = await followup(session, "behind it, too", no_wake=True)
        steered = await steer(session, "and that")
        later = await followup(session, "later", in_=3600.0)
        held = await followup(session, "held", hold=True)
        assert [exit(one) for one in (fact, runs, behind, quiet, steered, later)] == [75] * 6
        assert exit(held) == 18
        await session.abort(wire.AbortParams(), ME)
        assert [exit(one) for one in (runs, behind, later, held)] == [12, 18, 75, 18]


async def test_who_waits_behind_a_missing_key_is_told_that_nothing_is_set_up() -> None:
    async with World().run() as world:
        session = await world.session()

        def refuse(route: str, **_: Any) -> None:
            raise ModelError("MISSING_CREDENTIAL", "no key")

        world.registry.services.models.prepare_call = refuse
        sent = await followup(session, "hello")
        result = await settled(session, sent["message"])
        assert (result["exit"], result["error"]["code"]) == (9, "MISSING_CREDENTIAL")
        assert session.message(sent["message"])["state"] == "pending"
