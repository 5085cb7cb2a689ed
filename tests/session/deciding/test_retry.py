"""`retry`: the last turn once more, with nothing new said, nothing lost and nothing twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing

from dshd import wire
from dshd.errors import Conflict, Denied, NotFound
from dshd.log.memory import Everything, MemoryDisk, Nothing, Prefix
from dshd.model.chunks import BlockStart, TextDelta
from dshd.model.errors import ModelError
from dshd.plugins import PreStep, Reject
from dshd.session.disk import opening
from dshd.session.fold.who import Peer
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from dshd.session.registry import requests
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer, until

FAILS = ModelError("AUTH", "no")


async def retry(session: Session, message: str | None = None, peer: Peer = ME) -> dict[str, Any]:
    return await session.retry(wire.RetryParams(message=message), peer)


async def failed(world: World, session: Session, text: str = "work", **more: Any) -> str:
    """A message whose turn has ended in an error."""
    world.script = [FAILS]
    id = str((await followup(session, text, **more))["message"])
    assert (await settled(session, id))["outcome"] == "error"
    return id


def starts(world: World, session: Session) -> list[tuple[int, int | None]]:
    return [(e.data["turn"], e.data.get("retry_of")) for e in world.events(session) if e.type == "turn/start"]


def entered(world: World, session: Session) -> Counter[str]:
    texts = [
        e.data["content"][0]["text"]
        for e in world.events(session)
        if e.type == "user/message" and e.data["source"]["kind"] != "system"
    ]
    return Counter(texts)


def check(world: World, session: Session) -> None:
    """What must hold of every log, and that each request is a function of it."""
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)
    found = requests.check(world.disk, world.store.log_path(session.id), world.models.rebuild)
    assert (found.problem, found.not_comparable) == (None, 0)


# --- what it does ------------------------------------------------------------------------------------------


async def test_a_failed_turn_is_repeated_with_the_history_as_it_stands_and_no_new_message() -> None:
    async with World().run() as world:
        session = await world.session()
        id = await failed(world, session)
        before = entered(world, session)
        done = await retry(session)
        assert (done["message"], done["retry_of"], done["turn"], done["outcome"]) == (id, 1, 2, "error")
        result = await settled(session, id)
        assert (result["outcome"], result["turn"], result["text"]) == ("completed", 2, "done")
        assert starts(world, session) == [(1, None), (2, 1)]
        assert entered(world, session) == before == {"work": 1}
        assert world.requests[0] == world.requests[1]
        assert "daemon was stopped" not in str(world.requests)
        check(world, session)


async def test_the_receipt_lists_its_attempts_and_speaks_of_the_newest() -> None:
    async with World().run() as world:
        session = await world.session()
        id = await failed(world, session)
        for expected in ([1, 2], [1, 2, 3]):
            world.script = [FAILS]
            await retry(session, id)
            assert (await settled(session, id))["turn"] == expected[-1]
            assert session.message(id)["attempts"] == expected
        way = [(stop["state"], stop.get("turn")) for stop in session.message(id)["way"]]
        assert way[2:] == [(state, turn) for turn in (1, 2, 3) for state in ("entered", "settled")]
        await retry(session)
        await settled(session, id)
        shown = session.message(id)
        assert (shown["attempts"], shown["turn"], shown["outcome"]) == ([1, 2, 3, 4], 4, "completed")
        assert session.answer(id, 1)["text"] == "done"
        check(world, session)


async def test_each_end_that_is_no_success_can_be_retried() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [say("cut o", finish="max-tokens")]
        id = (await followup(session, "long"))["message"]
        assert (await settled(session, id))["outcome"] == "max-tokens"
        world.script = [[BlockStart(0, "text"), TextDelta(0, "hal"), trio.sleep_forever]]
        await retry(session)
        await until(session, lambda: session.state.turn and session.state.turn.chunks_from)
        await session.abort(wire.AbortParams(), ME)
        assert session.message(id)["outcome"] == "aborted"
        await retry(session)
        assert (await settled(session, id))["outcome"] == "completed"
        assert "hal" in world.requests[-1].decode()
        check(world, session)


async def test_a_retried_turn_goes_on_where_its_tools_had_come_to() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("quick:once"), FAILS]
        id = (await followup(session, "work"))["message"]
        await settled(session, id)
        await retry(session)
        assert (await settled(session, id))["outcome"] == "completed"
        assert world.quick.runs == ["once"]
        assert "quick once" in world.requests[-1].decode()
        check(world, session)


async def test_asked_twice_before_it_has_begun_it_is_one_attempt() -> None:
    async with World().run() as world:
        session = await world.session()
        id = await failed(world, session)
        session.driver.draining = True
        first, second = await retry(session), await retry(session)
        assert (first["turn"], second["turn"], first["warning"]) == (2, 2, "stopping")
        session.driver.draining = False
        session.driver.poke()
        await settled(session, id)
        assert starts(world, session) == [(1, None), (2, 1)]


async def test_who_waits_waits_for_the_newest_attempt() -> None:
    async with World().run() as world:
        session = await world.session()
        id = await failed(world, session)
        session.driver.draining = True  # so that it waits for an attempt that has not begun
        await retry(session)
        results: list[Any] = []

        async def wait() -> None:
            results.append(await session.wait_message(id))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert results == []
            session.driver.draining = False
            session.driver.poke()
        assert (results[0]["turn"], results[0]["outcome"]) == (2, "completed")


async def test_a_closed_run_is_opened_again_by_a_retry_and_closes_after_it() -> None:
    async with World().run() as world:
        world.script = [FAILS]
        session = await world.session(run=True, text="triage", key="nightly")
        await until(session, lambda: session.state.closed)
        done = await retry(session)
        assert done["reopened"]
        await settled(session, done["message"])
        await until(session, lambda: session.state.closed)
        assert starts(world, session) == [(1, None), (2, 1)]


# --- what is parked ----------------------------------------------------------------------------------------


async def test_a_parked_queue_stays_parked_and_only_the_retried_turn_runs() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        id = (await followup(session, "work"))["message"]
        await world.gate.began.wait()
        for n, send in enumerate((followup, steer, inject)):
            await send(session, f"parked {n}")
        await session.abort(wire.AbortParams(), ME)
        world.script = [call("quick:a"), say("done")]
        await retry(session)
        assert (await settled(session, id))["outcome"] == "completed"
        await session.wait_idle(stay=False)
        assert entered(world, session) == {"work": 1}
        assert session.state.parked is not None
        assert session.state.pending == 3
        await session.wake(wire.WakeParams(), ME)
        await session.wait_idle()
        assert entered(world, session) == {"work": 1, "parked 0": 1, "parked 1": 1, "parked 2": 1}
        check(world, session)


async def test_a_retry_that_fails_leaves_what_a_person_parked_for_a_person() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        id = (await followup(session, "work"))["message"]
        await world.gate.began.wait()
        await followup(session, "parked")
        await session.abort(wire.AbortParams(), ME)
        world.script = [FAILS]
        await retry(session)
        await settled(session, id)
        assert session.state.parked is not None
        assert session.state.parked.by == "abort"
        await followup(session, "from a clock", as_="schedule")
        await session.wait_idle()
        assert entered(world, session) == {"work": 1}
        check(world, session)


async def test_what_is_said_to_the_turn_that_is_retried_joins_it_though_the_queue_is_parked() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        await inject(session, "parked")
        await session.abort(wire.AbortParams(), ME)
        world.gate.began = trio.Event()
        world.script = [call("gate"), say("done")]
        await retry(session)
        await world.gate.began.wait()
        fact = await inject(session, "a fact")
        assert session.why(fact["message"])["reason"] == "joins"
        world.gate.opened.set()
        assert (await settled(session, fact["message"]))["turn"] == 2
        assert entered(world, session) == {"work": 1, "a fact": 1}
        assert session.state.parked is not None
        check(world, session)


async def test_what_comes_due_while_a_turn_is_retried_joins_it_though_the_queue_is_parked(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        due = await inject(session, "a fact", in_=30)
        await session.abort(wire.AbortParams(), ME)
        world.gate.began = trio.Event()
        world.script = [call("gate"), say("done")]
        await retry(session)
        await world.gate.began.wait()
        await trio.sleep(31)
        assert session.message(due["message"])["queue"] == "next-step"
        world.gate.opened.set()
        assert (await settled(session, due["message"]))["turn"] == 2
        assert session.state.parked is not None
        check(world, session)


async def test_a_steer_joins_the_retried_turn_and_unparks() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        await followup(session, "parked")
        await session.abort(wire.AbortParams(), ME)
        world.gate.began = trio.Event()
        world.script = [call("gate"), say("done"), say("next")]
        await retry(session)
        await world.gate.began.wait()
        receipt = await steer(session, "left a bit")
        assert (receipt["queue"], receipt["redirected"]) == ("next-step", False)
        world.gate.opened.set()
        assert (await settled(session, receipt["message"]))["turn"] == 2
        await session.wait_idle()
        assert entered(world, session) == {"work": 1, "left a bit": 1, "parked": 1}
        check(world, session)


# --- refused -----------------------------------------------------------------------------------------------


async def test_what_did_not_fail_or_never_was_is_refused_and_nothing_is_written() -> None:
    async with World().run() as world:
        session = await world.session()
        with pytest.raises(Conflict, match="no turn yet"):
            await retry(session)
        id = (await followup(session, "work"))["message"]
        await settled(session, id)
        lines = len(world.events(session))
        with pytest.raises(Conflict, match="ended completed"):
            await retry(session)
        with pytest.raises(NotFound):
            await retry(session, f"{session.id}.99")
        assert len(world.events(session)) == lines


async def test_a_turn_that_runs_is_not_retried() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "work")
        await world.gate.began.wait()
        with pytest.raises(Conflict, match="turn 1 of"):
            await retry(session)
        world.gate.opened.set()


class Breaks:
    name = "breaks"
    on = True

    async def pre_step(self, proposal: PreStep) -> PreStep | Reject:
        await trio.lowlevel.checkpoint()
        if self.on:
            raise RuntimeError("broken")
        return proposal


async def test_a_message_that_never_entered_is_refused_with_the_way_on() -> None:
    plugin = Breaks()
    async with World(plugins=(plugin,)).run() as world:
        session = await world.session()
        id = (await followup(session, "work"))["message"]
        await until(session, lambda: session.state.parked)
        assert session.state.receipts[id].state == "pending"
        with pytest.raises(Conflict, match="has entered no turn: it waits in next-turn") as refused:
            await retry(session, id)
        assert refused.value.hint == f"dshctl wake -s {session.state.name}"
        with pytest.raises(Conflict, match="before its message entered"):
            await retry(session)
        plugin.on = False
        await session.wake(wire.WakeParams(), ME)
        assert (await settled(session, id))["outcome"] == "completed"


async def test_only_the_last_turn_can_be_retried() -> None:
    async with World().run() as world:
        session = await world.session()
        first = await failed(world, session)
        await settled(session, (await followup(session, "other"))["message"])
        with pytest.raises(Conflict, match="entered turn 1, and turn 2 came after it"):
            await retry(session, first)


async def test_a_tool_may_not_retry() -> None:
    async with World().run() as world:
        session = await world.session()
        await failed(world, session)
        with pytest.raises(Denied):
            await retry(session, peer=Peer(uid=1000, pid=1, kind="agent", session=session.id))


# --- keys ---------------------------------------------------------------------------------------------------


async def test_a_key_whose_message_failed_is_retried_when_that_is_asked_for() -> None:
    async with World().run() as world:
        session = await world.session()
        id = await failed(world, session, key="k")
        plain = await followup(session, "work", key="k")
        assert (plain["duplicate"], plain["retried"], plain["state"]) == (True, False, "settled")
        again = await followup(session, "work", key="k", retry=True)
        assert (again["message"], again["duplicate"], again["retried"], again["turn"]) == (id, True, True, 2)
        assert (await settled(session, id))["outcome"] == "completed"
        third = await followup(session, "work", key="k", retry=True)
        assert (third["duplicate"], third["retried"], third["outcome"]) == (True, False, "completed")
        with pytest.raises(Conflict):
            await followup(session, "another text", key="k", retry=True)
        assert starts(world, session) == [(1, None), (2, 1)]
        check(world, session)


async def test_a_dry_run_of_a_retried_key_writes_nothing() -> None:
    async with World().run() as world:
        session = await world.session()
        await failed(world, session, key="k")
        lines = len(world.events(session))
        would = await followup(session, "work", key="k", retry=True, dry_run=True)
        assert (would["would"], would["turn"], len(world.events(session))) == ("start-turn", 2, lines)


async def test_a_run_whose_key_failed_is_retried_in_its_session() -> None:
    async with World().run() as world:
        world.script = [FAILS]
        session = await world.session(run=True, text="triage", key="nightly")
        await until(session, lambda: session.state.closed)
        again = wire.CreateParams(dir="/", run=True, text="triage", key="nightly", retry=True)
        same, receipt = await world.registry.create(again, ME)
        assert receipt is not None
        assert (same is session, receipt["retried"]) == (True, True)
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"


# --- crashes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("survivor", [Nothing(), Everything(), Prefix(40), Prefix(400)], ids=repr)
async def test_a_power_cut_anywhere_between_the_answer_and_the_end_loses_and_doubles_nothing(
    survivor: Any, autojump_clock: Any
) -> None:
    world = World()
    disk = world.disk
    assert isinstance(disk, MemoryDisk)
    cuts: list[tuple[MemoryDisk, bool]] = []
    answered = False
    async with world.run():
        session = await world.session()
        world.script = [call("gate")]
        id = str((await followup(session, "work"))["message"])
        await world.gate.began.wait()
        await followup(session, "parked")
        await session.abort(wire.AbortParams(), ME)
        disk.before(lambda name, path: cuts.append((disk.crash(survivor), answered)))
        world.script = [call("quick:a"), say("done")]
        await retry(session)
        answered = True
        await settled(session, id)
        disk.before(None)
    assert len(cuts) > 8
    assert any(answered for _, answered in cuts)
    for cut, was_answered in cuts:
        await check_cut(World(cut), session.id, id, was_answered)


async def check_cut(world: World, session_id: str, id: str, answered: bool) -> None:
    world.clock_offset = 60_000
    async with world.run():
        session = await world.registry.get(session_id)
        with trio.fail_after(20):
            await session.wait_idle()
            attempts = session.message(id)["attempts"]
            assert attempts == [1, 2] if answered else attempts in ([1], [1, 2])
            if session.message(id)["outcome"] != "completed":  # the cut was before or in the attempt
                await retry(session)
                assert (await settled(session, id))["outcome"] == "completed"
            await session.wait_idle()
        assert session.state.pending == 1
        assert session.state.parked is not None
        assert entered(world, session) == {"work": 1}
        check(world, session)


async def test_a_retry_that_a_stop_interrupts_is_gone_on_with_though_the_queue_is_parked(
    autojump_clock: Any,
) -> None:
    world = World()
    async with world.run():
        session = await world.session()
        id = await failed(world, session)
        await inject(session, "parked")
        world.script = [call("gate"), say("done")]
        await retry(session)
        await world.gate.began.wait()
        world.gate.opened.set()
        session.driver.stop_at_boundary()
        await until(session, lambda: session.state.turn is None)
        assert session.state.resume == 2
    after = world.crash(Everything())
    async with after.run():
        session = await after.registry.get(session.id)
        assert (await settled(session, id))["turn"] == 3
        assert session.state.parked is not None
        assert session.message(id)["attempts"] == [1, 2, 3]
        check(after, session)


async def test_a_wish_to_retry_stands_in_a_checkpoint_too() -> None:
    world = World(upkeep=Upkeep(idle=60.0, look=60.0, least=1, working=1))
    async with world.run():
        session = await world.session()
        id = await failed(world, session)
        session.driver.draining = True
        await retry(session)
        await session.keep()
        path = world.store.log_path(session.id)
        quick = opening.glance(world.disk, path)
        assert quick.kept is not None
        assert quick.kept.mark.seq == session.state.seq
        assert (quick.state.retry, session.state.retry) == (1, 1)
    after = world.crash(Nothing())
    async with after.run():
        session = await after.registry.get(session.id)
        assert (await settled(session, id))["turn"] == 2
