"""A step that waits for its provider: how long, what ends it, and what it outlives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.driver.waiting import waits
from dshd.log.memory import MemoryDisk
from dshd.model.errors import ModelError
from dshd.session.fold.turns import Wait
from dshd.session.owner.session import Session
from tests.driver.test_attempts import Routes
from tests.session.porting.test_transfer import export, taken
from tests.session.rig import ME, World, call, followup, inject, of_type, say, steer

H = 3600.0


def busy(after: float | None = None) -> ModelError:
    return ModelError("RATE_LIMIT", "slow down", retry_after=after)


async def until(session: Session, holds: Callable[[], Any], within: float = 60.0) -> None:
    with trio.fail_after(within):
        while not holds():
            await session.next_change()


async def waiting(session: Session) -> Wait:
    """Once it waits, and the log says so."""
    await until(session, lambda: session.state.turn and session.state.turn.wait)
    assert session.state.turn is not None
    assert session.state.turn.wait is not None
    return session.state.turn.wait


async def ended(session: Session, id: str, within: float = 24 * H) -> dict[str, Any]:
    with trio.fail_after(within):
        return await session.wait_message(id)


async def begin(world: World, *script: Any, **settings: Any) -> tuple[Session, str]:
    session = await world.session()
    if settings:
        await session.change(settings, ME)
    world.script = list(script)
    return session, (await followup(session, "go"))["message"]


def later(world: World) -> World:
    """The world after a ``kill -9``: what was written is there, synced or not."""
    assert isinstance(world.disk, MemoryDisk)
    after = World(world.disk.copy(), config=world.config)
    after.clock_offset, after.route = world.clock_offset, world.route
    return after


async def retold(world: World, session: Session) -> None:
    """G3 and G9: the log folds to what is in memory, and every request can be made again."""
    report = await world.registry.fsck(session.id, requests=True)
    assert report["ok"], report
    assert report["requests"]["compared"] > 0


# --- until when ------------------------------------------------------------------------------------------


async def test_a_step_waits_until_the_time_its_provider_named_and_asks_again(autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(600.0), say("there you are"))
        began = world.now()
        wait = await waiting(session)
        assert (wait.what, wait.code, wait.named) == ("provider", "RATE_LIMIT", True)
        assert wait.until is not None
        assert 600_000 <= wait.until - began < 602_000
        result = await ended(session, id)
        assert (result["outcome"], result["text"]) == ("completed", "there you are")
        sent = [e for e in world.events(session) if e.type == "request/sent"]
        assert [(e.data["step"], e.data["attempt"]) for e in sent] == [(1, 1), (1, 2)]
        assert 0 <= sent[1].time - wait.until < 1000
        assert len({e.data["sha256"] for e in sent}) == 1
        await retold(world, session)


async def test_without_a_named_time_it_waits_longer_and_longer_up_to_patience(autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, *[ModelError("SERVER", "down")] * 40, patience=2 * H)
        result = await ended(session, id)
        assert (result["outcome"], result["exit"], result["error"]["code"]) == ("error", 75, "SERVER")
        waited = [r["delay_ms"] // 1000 for r in of_type(world, session, "llm/retry") if r.get("waits")]
        assert waited[:7] == [60, 120, 300, 600, 900, 900, 900]
        assert 2 * H - 900 < sum(waited) <= 2 * H
        assert len(world.requests) == 3 + len(waited)  # quick retries are had once


@pytest.mark.parametrize("patience", [0.0, 60.0])
async def test_a_named_time_beyond_patience_ends_the_turn_at_once_and_says_when(
    patience: float, autojump_clock: Any
) -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(600.0), patience=patience)
        began = world.now()
        result = await ended(session, id, within=5.0)
        assert (result["outcome"], result["exit"]) == ("error", 75)
        assert 600_000 <= result["retry_at"] - began < 602_000
        assert len(world.requests) == 1


async def test_waiting_takes_none_of_the_turns_time(autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(2 * H), say("done"), max_time=60.0)
        assert (await ended(session, id))["outcome"] == "completed"
        assert of_type(world, session, "turn/end")[0]["worked_ms"] < 60_000


@pytest.mark.parametrize("jump_h", [5, -5])
async def test_the_wall_clock_decides_however_it_jumps(jump_h: int, autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(4 * H), say("done"))
        await waiting(session)
        world.clock_offset += jump_h * 3_600_000
        await ended(session, id, within=waits.LOOK_S + 1)


async def test_nothing_of_a_failed_attempt_reaches_the_answer_after_a_wait(autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, [*say("half")[:2], busy(60.0)], say("whole"))
        assert (await ended(session, id))["text"] == "whole"
        assert len(of_type(world, session, "assistant/message")) == 1


# --- what ends it ----------------------------------------------------------------------------------------


async def woken(session: Session) -> None:
    await session.wake(wire.WakeParams(), ME)


async def reloaded(session: Session) -> None:
    session.try_now("reload")
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("how", [woken, reloaded])
async def test_a_wake_and_a_reload_try_at_once(how: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(H), say("done"))
        await waiting(session)
        await how(session)
        assert (await ended(session, id, within=5))["outcome"] == "completed"


async def test_what_is_tried_at_once_and_fails_waits_again(autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(H), busy(H), say("done"))
        first = await waiting(session)
        await session.wake(wire.WakeParams(), ME)
        await until(session, lambda: len(world.requests) == 2)
        second = await waiting(session)
        assert first.until is not None
        assert second.until is not None
        assert second.until - first.until < 60_000
        await ended(session, id)
        turn = session.state.turns[1]
        assert turn.reason == "completed"


async def test_a_reload_unparks_nothing(autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, ModelError("AUTH", "no"), busy(H), say("done"))
        await ended(session, id)
        await followup(session, "later", wake=False)
        await session.retry(wire.RetryParams(), ME)
        await waiting(session)
        assert session.state.parked
        session.try_now("reload")
        await until(session, lambda: session.state.turn is None)
        assert session.state.parked
        assert session.state.pending == 1


async def test_an_abort_ends_a_wait_at_once() -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(H))
        await waiting(session)
        with trio.fail_after(5):
            done = await session.abort(wire.AbortParams(), ME)
        assert done["outcome"] == "aborted"
        assert (await ended(session, id, within=5))["outcome"] == "aborted"
        assert world.types(session)[-2:] == ["step/end", "turn/end"]


async def test_what_is_said_meanwhile_joins_the_next_step() -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(H), say("first"), say("second"))
        await waiting(session)
        steered = await steer(session, "left")
        injected = await inject(session, "it is Monday")
        assert (steered["turn"], steered["state"]) == (1, "pending")
        await session.wake(wire.WakeParams(), ME)
        assert (await ended(session, id, within=5))["text"] == "second"
        places = [(m["turn"], m["step"]) for m in of_type(world, session, "user/message")]
        assert places[-2:] == [(1, 2), (1, 2)]
        assert session.state.receipts[injected["message"]].outcome == "completed"
        await retold(world, session)


# --- what it outlives ------------------------------------------------------------------------------------


@pytest.mark.parametrize("instants", [1, 2, 5])
async def test_a_turn_that_waits_outlives_kills_and_goes_on_in_the_same_step(
    instants: int, autojump_clock: Any
) -> None:
    world = World()
    async with world.run():
        session, id = await begin(world, call("quick:a"), busy(H))
        wait = await waiting(session)
    for _ in range(instants):
        world = later(world)
        async with world.run():
            again = await world.again(session)
            assert again.show()["state"] == "waiting"
            assert (await waiting(again)).until == wait.until
            assert not {"turn/end", "session/opened"} & set(world.types(session)[2:])  # nothing is written
    world = later(world)
    world.script = [say("done")]
    async with world.run():
        again = await world.again(session)
        result = await ended(again, id)
        assert (result["outcome"], result["turn"], result["text"]) == ("completed", 1, "done")
        sent = of_type(world, session, "request/sent")
        assert [(s["step"], s["attempt"]) for s in sent] == [(1, 1), (2, 1), (2, 2)]
        assert world.types(session).count("turn/start") == world.types(session).count("turn/end") == 1
        await retold(world, again)


async def test_a_wait_is_on_disk_before_it_is_told() -> None:
    async with World().run() as world:
        session, _ = await begin(world, busy(H))
        await waiting(session)
        after = world.crash()  # a power cut: what was not synced is gone
    async with after.run():
        again = await after.again(session)
        await waiting(again)
        assert not of_type(after, again, "turn/end")


async def test_a_planned_stop_leaves_a_turn_that_waits_and_keeps_nobody_waiting(autojump_clock: Any) -> None:
    world = World()
    async with world.run():
        session, id = await begin(world, busy(H))
        await waiting(session)
        began = trio.current_time()
        await world.registry.drain(10.0)
        assert trio.current_time() - began < 1
        assert "turn/end" not in world.types(session)
    after = later(world)
    after.script = [say("done")]
    async with after.run():
        again = await after.again(session)
        assert (await ended(again, id))["outcome"] == "completed"


async def test_a_step_that_comes_to_wait_while_the_daemon_stops_is_left_too(autojump_clock: Any) -> None:
    world, asked, refuses = World(), trio.Event(), trio.Event()

    async def refused() -> Any:
        asked.set()
        await refuses.wait()
        return busy(H)

    async with world.run():
        session, _ = await begin(world, refused)
        await asked.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.registry.drain, 10.0)
            await trio.testing.wait_all_tasks_blocked()
            refuses.set()
        assert "turn/end" not in world.types(session)
        assert session.show()["state"] == "waiting"


async def test_a_quick_retry_is_left_to_the_next_daemon_if_this_one_stops(autojump_clock: Any) -> None:
    world = World()
    async with world.run():
        session, id = await begin(world, busy(9.0))
        await until(session, lambda: session.activity.waits)
        await world.registry.drain(10.0)
        assert session.show()["state"] == "waiting"
    after = later(world)
    after.script = [say("done")]
    async with after.run():
        assert (await ended(await after.again(session), id))["outcome"] == "completed"


async def test_an_abort_while_the_daemon_stops_ends_a_turn_that_was_left() -> None:
    async with World().run() as world:
        session, _ = await begin(world, busy(H))
        await waiting(session)
        await world.registry.drain(10.0)
        with trio.fail_after(5):
            assert (await session.abort(wire.AbortParams(), ME))["outcome"] == "aborted"


async def test_an_abort_before_a_crash_is_heeded_by_the_opening() -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(H))
        await waiting(session)
        await world.registry.drain(10.0)
        assert session.ledger is not None
        data = {"turn": 1, "disposition": "keep", "cause": "user", "by": {"kind": "user"}}
        decided = session.ledger.propose(lambda s: s.emit("abort/requested", data))
        with trio.CancelScope() as scope:
            scope.cancel()
            await decided
        await session.written()
        after = later(world)
    async with after.run():
        again = await after.again(session)
        assert (await ended(again, id, within=5))["outcome"] == "aborted"


async def test_a_wake_is_heeded_by_the_next_daemon_if_this_one_dies_of_it(autojump_clock: Any) -> None:
    world = World()
    async with world.run():
        session, id = await begin(world, busy(5 * H))
        await waiting(session)
        await world.registry.drain(1.0)
        await session.wake(wire.WakeParams(), ME)
    after = later(world)
    after.script = [say("done")]
    async with after.run():
        await ended(await after.again(session), id, within=5)


async def test_patience_goes_on_through_restarts(autojump_clock: Any) -> None:
    world = World()
    async with world.run():
        session, id = await begin(world, busy(600.0), busy(600.0), patience=1500.0)
        await until(session, lambda: session.state.turn and session.state.turn.waits == 2, within=H)
    after = later(world)
    after.script = [busy(600.0)]
    async with after.run():
        result = await ended(await after.again(session), id)
        assert (result["outcome"], result["exit"]) == ("error", 75)
        assert result["retry_at"]


async def test_time_that_was_worked_before_a_kill_counts_after_it(autojump_clock: Any) -> None:
    async def slow() -> Any:
        await trio.sleep(40)
        return busy(H)

    async def as_slow() -> Any:
        await trio.sleep(40)
        return say("done")

    world = World()
    async with world.run():
        session, id = await begin(world, slow, max_time=60.0)
        await waiting(session)
    after = later(world)
    after.script = [as_slow]
    async with after.run():
        assert (await ended(await after.again(session), id))["outcome"] == "budget"


async def test_a_cut_answer_before_a_wait_still_shows_at_the_turns_end(autojump_clock: Any) -> None:
    world = World()
    async with world.run():
        session = await world.session()

        async def cut() -> Any:
            await steer(session, "more")
            return say("cut off", "max-tokens")

        world.script = [cut, busy(H)]
        id = (await followup(session, "go"))["message"]
        await waiting(session)
    after = later(world)
    after.script = [say("done")]
    async with after.run():
        assert (await ended(await after.again(session), id))["outcome"] == "max-tokens"


# --- several routes --------------------------------------------------------------------------------------


def two_routes(**routes: Any) -> World:
    world = World()
    world.route = Routes(world, {"scripted": ("second",)}, **routes)
    return world


async def test_the_earliest_route_is_waited_for_and_a_later_one_is_left_in_peace(autojump_clock: Any) -> None:
    async with two_routes().run() as world:
        session, id = await begin(world, busy(2 * H), busy(600.0), say("second speaks"))
        wait = await waiting(session)
        assert set(wait.asked) == {"scripted", "second"}
        result = await ended(session, id, within=700)
        assert (result["text"], result["model"]) == ("second speaks", "second")


async def test_a_fallback_that_can_never_answer_ends_no_wait(autojump_clock: Any) -> None:
    async with two_routes().run() as world:
        session, id = await begin(world, busy(600.0), ModelError("AUTH", "no"), say("done"))
        await waiting(session)
        result = await ended(session, id)
        assert (result["outcome"], result["model"]) == ("completed", "scripted")


async def test_a_model_that_was_changed_meanwhile_is_asked(autojump_clock: Any) -> None:
    async with World().run() as world:
        session, id = await begin(world, busy(2 * H), say("done"))
        await waiting(session)
        await session.change({"model": "other"}, ME)
        await session.wake(wire.WakeParams(), ME)
        assert (await ended(session, id, within=5))["model"] == "other"
        await retold(world, session)


# --- the wait itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "over", "lasted"), [(0, True, 0), (10, False, 0), (15, False, 5), (20, True, 10), (99, True, 10)]
)
def test_a_wait_is_over_at_its_time_or_when_the_clock_makes_no_sense_of_it(
    now: int, over: bool, lasted: int
) -> None:
    wait = Wait("provider", since=10, until=20)
    assert (wait.is_over(now), wait.lasted(now)) == (over, lasted)
    endless = attrs.evolve(wait, until=None)
    assert (endless.is_over(now), endless.lasted(now)) == (False, max(0, now - 10))


async def test_an_import_closes_a_turn_that_waited_elsewhere() -> None:
    async with World().run() as world:
        session, _ = await begin(world, busy(H))
        await waiting(session)
        made = await taken(world, await export(world, session), as_new=True)
        assert made.state.turn is None
        assert made.state.turns[1].reason == "interrupted"
        assert made.state.parked is not None
        assert made.state.parked.by == "import"
        assert session.state.turn is not None
