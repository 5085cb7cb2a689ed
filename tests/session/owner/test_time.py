"""Due, held, expired: by the wall clock, whatever it does, and whatever becomes of the daemon."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from dshd import wire
from dshd.errors import Invalid
from dshd.log.memory import MemoryDisk
from dshd.session.owner.clock import LOOK_S as CLOCK_LOOK_S
from dshd.session.owner.session import Session
from tests.session.invariants import check_acknowledged, check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer, until

HOUR = 3600.0


def texts(world: World, session: Session) -> list[str]:
    """What entered, in order, without what the daemon adds."""
    entered = [e.data for e in world.events(session) if e.type == "user/message"]
    return [m["content"][0]["text"] for m in entered if m["source"]["kind"] != "system"]


async def rest(session: Session) -> None:
    with trio.fail_after(10 * HOUR):
        await session.wait_idle(stay=True)


# --- due


async def test_a_message_that_is_due_later_is_held_and_runs_then(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        now = world.now()
        receipt = await followup(session, "later", in_=HOUR)
        assert (receipt["state"], receipt["queue"], receipt["due_at"]) == ("held", "held", now + 3_600_000)
        await trio.sleep(HOUR - 1)
        assert session.message(receipt["message"])["state"] == "held"
        with trio.fail_after(10):
            result = await session.wait_message(receipt["message"])
        assert result["outcome"] == "completed"
        check_log(world.events(session), quiet=True)


async def test_what_is_due_goes_to_the_end_of_its_queue_by_due_time(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        await followup(session, "at 3", in_=3)
        await followup(session, "at 1", in_=1)
        await followup(session, "at 2", in_=2)
        await steer(session, "steer at 2", in_=2)
        await followup(session, "now")
        world.clock_offset += 60_000  # all at once
        await trio.sleep(CLOCK_LOOK_S + 1)
        assert [m.text for m in session.state.queues["next-turn"]] == ["now", "at 1", "at 2", "at 3"]
        assert [m.text for m in session.state.queues["next-step"]] == ["steer at 2"]
        world.gate.opened.set()
        await rest(session)
        assert texts(world, session) == ["work", "steer at 2", "now", "at 1", "at 2", "at 3"]


@pytest.mark.parametrize("jump", [-7200_000, -1, 0, 1, 7200_000], ids=lambda ms: f"{ms} ms")
async def test_a_clock_that_jumps_moves_no_appointment(jump: int, autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        due = world.now() + 3_600_000
        id = (await followup(session, "at six", at=due))["message"]
        world.clock_offset += jump
        await until_state(session, id, "entered", "settled")
        late = session.message(id)["way"][1]["at"] - due
        assert 0 <= late <= max(jump - 3_600_000, 0) + CLOCK_LOOK_S * 1000


async def until_state(session: Session, id: str, *states: str) -> None:
    assert session.ledger is not None
    with trio.fail_after(10 * HOUR):
        while session.state.receipts[id].state not in states:
            await session.ledger.changed.wait()


async def test_a_restart_forgets_no_due_time_and_does_at_once_what_came_due_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with World().run() as world:
        session = await world.session()
        early = (await followup(session, "missed", in_=10))["message"]
        late = (await followup(session, "to come", in_=HOUR))["message"]
        again = world.crash()
        again.clock_offset += 60_000
    async with again.run():
        session = await again.registry.get(session.id)
        assert (await settled(session, early))["outcome"] == "completed"
        assert session.message(late)["state"] == "held"
        await until_state(session, late, "settled")


async def test_a_due_message_waits_parked_and_its_time_unparks_nothing(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        id = (await followup(session, "later", in_=60))["message"]
        await session.abort(wire.AbortParams(), ME)
        await until_state(session, id, "pending")
        assert session.state.parked is not None
        assert (await session.wait_message(id))["exit"] == 18


async def test_a_held_followup_to_a_parked_session_unparks_it_neither_now_nor_then(
    autojump_clock: MockClock,
) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        await session.abort(wire.AbortParams(), ME)
        receipt = await followup(session, "later", in_=60)
        assert receipt["state"] == "held"
        assert receipt["parked"] is not None
        await until_state(session, receipt["message"], "pending")
        assert session.state.parked is not None


async def test_a_due_inject_wakes_nobody(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        id = (await inject(session, "fact", in_=60))["message"]
        with trio.fail_after(100):
            assert (await session.wait_message(id))["exit"] == 18
        assert session.message(id)["queue"] == "next-step"
        assert "turn/start" not in world.types(session)


async def test_a_due_time_that_has_just_passed_is_now(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        receipt = await followup(session, "now", at=world.now() - 1000)
        assert (receipt["state"], receipt["due_at"]) == ("pending", None)
        with pytest.raises(Invalid):
            await followup(session, "long ago", at=world.now() - 3_600_000)


async def test_a_key_is_asked_before_a_time(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        at = world.now() + 1000
        first = await followup(session, "x", at=at, key="k")
        await trio.sleep(HOUR)
        again = await followup(session, "x", at=at, key="k")
        assert (again["message"], again["duplicate"], again["state"]) == (first["message"], True, "settled")
        assert again["outcome"] == "completed"


# --- held for a person


async def test_what_a_person_releases_goes_to_the_end_of_its_queue(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        held = await followup(session, "held", hold=True)
        assert (held["state"], held["due_at"]) == ("held", None)
        assert (await session.wait_message(held["message"]))["exit"] == 18
        await trio.sleep(HOUR)
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        await followup(session, "queued")
        await session.wake(wire.WakeParams(message=held["message"]), ME)
        world.gate.opened.set()
        await rest(session)
        assert texts(world, session) == ["work", "queued", "held"]


# --- expiry

EXPIRES: dict[str, dict[str, Any]] = {
    "pending": {},
    "held for a person": {"hold": True},
    "held for a time": {"in_": 5.0},
}


@pytest.mark.parametrize("how", EXPIRES)
async def test_what_still_waits_when_it_expires_is_never_seen(how: str, autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        receipt = await followup(session, "gone", expires=10.0, no_wake=True, **EXPIRES[how])
        assert receipt["expires_at"] == world.now() + 10_000
        with trio.fail_after(60):
            result = await session.wait_message(receipt["message"], stay=True)
        assert (result["outcome"], result["exit"]) == ("expired", 17)
        assert texts(world, session) == []


async def test_what_is_parked_expires_too(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        id = (await followup(session, "gone", expires=60.0))["message"]
        await session.abort(wire.AbortParams(), ME)
        await until_state(session, id, "expired")


async def test_expiry_is_decided_before_every_claim(autojump_clock: MockClock) -> None:
    """Before the clock's own look: it is the claim that finds it expired."""
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate"), say("done")]
        await followup(session, "work")
        await world.gate.began.wait()
        a = (await steer(session, "late steer", expires=5.0))["message"]
        b = (await followup(session, "late followup", expires=5.0))["message"]
        world.clock_offset += 6000
        world.gate.opened.set()
        await rest(session)
        assert texts(world, session) == ["work"]
        assert {session.message(id)["state"] for id in (a, b)} == {"expired"}


async def test_expiry_survives_a_restart(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        id = (await followup(session, "gone", expires=30.0, hold=True))["message"]
        again = world.crash()
        again.clock_offset += 60_000
    async with again.run():
        session = await again.registry.get(session.id)
        await until_state(session, id, "expired")
        check_memory(session, again.events(session))


async def test_a_message_that_would_expire_before_it_is_due_is_refused() -> None:
    async with World().run() as world:
        session = await world.session()
        with pytest.raises(Invalid):
            await followup(session, "never", in_=60.0, expires=30.0)
        assert session.state.pending == 0


# --- what may end the daemon meanwhile


@pytest.mark.parametrize("word", [None, "no-unit", "no-linger"])
async def test_a_receipt_warns_if_nothing_keeps_the_daemon_until_then(word: str | None) -> None:
    world = World()
    async with world.run():
        loader = world.registry._loader
        loader.around = _with(loader.around, word)
        session = await world.session()
        assert (await followup(session, "later", in_=60.0))["warning"] == word
        assert (await followup(session, "held", hold=True))["warning"] is None
        assert (await followup(session, "now"))["warning"] is None


def _with(around: Any, word: str | None) -> Any:
    import attrs

    return attrs.evolve(around, what_ends_us=lambda: word)


# --- a power cut at any moment


async def test_a_power_cut_around_a_due_time_runs_it_once(autojump_clock: MockClock) -> None:
    """At each write on the way from held to settled."""
    world, cuts = World(), []
    assert isinstance(world.disk, MemoryDisk)
    async with world.run():
        session = await world.session()
        due = (await followup(session, "due", in_=5.0))["message"]
        gone = (await followup(session, "gone", expires=4.0, hold=True))["message"]
        disk = world.disk
        disk.before(lambda name, path: cuts.append(disk.crash()))
        await until_state(session, due, "settled")
        await rest(session)
        disk.before(None)
    assert len(cuts) > 10
    for cut in cuts:
        again = World(cut)
        again.clock_offset = 60_000
        async with again.run():
            session = await again.registry.get(session.id)
            await until_state(session, due, "settled")
            await until_state(session, gone, "expired")
            events = again.events(session)
            check_log(events, quiet=True)
            check_acknowledged(session, [due, gone])
            # entered once, and completed there or cut off there; never seen twice
            assert sum(e.type == "user/message" and e.data["id"] == due for e in events) == 1


async def test_waiting_for_a_time_costs_no_task_once_nothing_is_due(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        id = (await followup(session, "later", in_=60.0))["message"]
        await session.queue_change("rm", [id], ME)
        await until(session, lambda: not session.clock.watched)
