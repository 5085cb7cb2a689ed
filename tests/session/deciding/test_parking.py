"""Stopping, parking, and going on: what an abort, an error, a crash and a planned stop leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.config import Config, Recovery
from dshd.errors import Conflict
from dshd.log.memory import MemoryDisk
from dshd.model.errors import ModelError
from dshd.session.deciding import closing, queueing
from dshd.session.fold.turns import CallState
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, Gate, InlineTools, World, call, followup, inject, say, settled, steer, until

NO = ModelError("AUTH", "no")


async def begin(world: World, session: Session, text: str = "work") -> dict[str, Any]:
    """A turn that waits in a tool."""
    world.gate.began, world.gate.opened = trio.Event(), trio.Event()
    world.script = [call("gate")]
    sent = await followup(session, text)
    with trio.fail_after(5):
        await world.gate.began.wait()
    return sent


async def abort(session: Session, disposition: Any = "keep", **more: Any) -> dict[str, Any]:
    return await session.abort(wire.AbortParams(disposition=disposition, **more), ME)


async def interrupt(session: Session, text: str, **more: Any) -> dict[str, Any]:
    return await session.interrupt(wire.InterruptParams(text=text, **more), ME)


async def rest(session: Session) -> None:
    with trio.fail_after(60):
        await until_idle(session)


async def until_idle(session: Session) -> None:
    await session.wait_idle()


def turns(session: Session) -> list[tuple[int, str, str | None]]:
    return [(n, t.reason, t.cause) for n, t in sorted(session.state.turns.items())]


def texts_of(world: World, session: Session, turn: int) -> list[str]:
    entered = [e.data for e in world.events(session) if e.type == "user/message" and e.data["turn"] == turn]
    return [m["content"][0]["text"] for m in entered if m["source"].get("via") != "context"]


# --- what parks -----------------------------------------------------------------------------------------


async def by_abort(world: World, session: Session) -> None:
    await begin(world, session)
    await abort(session)


async def by_abort_clear(world: World, session: Session) -> None:
    await begin(world, session)
    await abort(session, "clear")


async def by_abort_continue(world: World, session: Session) -> None:
    await begin(world, session)
    await abort(session, "continue")


async def by_interrupt(world: World, session: Session) -> None:
    await begin(world, session)
    await interrupt(session, "rather this")


async def by_interrupt_keep(world: World, session: Session) -> None:
    await begin(world, session)
    await interrupt(session, "rather this", keep=True)


async def by_error(world: World, session: Session) -> None:
    world.script = [NO]
    await followup(session, "work")


async def by_plain_end(world: World, session: Session) -> None:
    await followup(session, "work")


async def by_max_tokens(world: World, session: Session) -> None:
    world.script = [say("too lo", "max-tokens")]
    await followup(session, "work")


async def by_abort_while_idle(world: World, session: Session) -> None:
    await abort(session)


PARKS: dict[Callable[..., Awaitable[None]], str | None] = {
    by_abort: "abort",
    by_abort_clear: "abort",
    by_abort_continue: None,
    by_interrupt: None,
    by_interrupt_keep: "interrupt",
    by_error: "error",
    by_plain_end: None,
    by_max_tokens: None,
    by_abort_while_idle: None,
}


@pytest.mark.parametrize("how", PARKS, ids=lambda how: how.__name__)
async def test_parked(how: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        await how(world, session)
        await rest(session)
        parked = session.state.parked
        assert (parked and parked.by) == PARKS[how]
        check_memory(session, world.events(session))


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("how", PARKS, ids=lambda how: how.__name__)
async def test_what_is_listed_as_parked_is_what_waits_for_a_person(how: Any, waits: bool) -> None:
    async with World().run() as world:
        session = await world.session()
        await how(world, session)
        await rest(session)
        if waits:
            await followup(session, "waits", no_wake=True)
        parked = session.state.parked
        needed = parked is not None and waits
        view = session.show()
        failed = how is by_error and not needed
        assert [need["kind"] for need in view["needs"]] == ["parked"] * needed + ["ended"] * failed
        assert view["state"] == ("parked" if needed else "idle")


async def test_a_turn_that_came_to_nothing_is_a_persons_until_something_comes_after_it() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        await again.start()
        await rest(again)
        (need,) = again.show()["needs"]
        assert (need["kind"], need["turn"], need["what"]) == ("ended", 1, "interrupted")
        after.script = [say("done")]
        await followup(again, "go on")
        await rest(again)
        assert again.show()["needs"] == []


@pytest.mark.parametrize("how", [by_abort, by_error, by_interrupt_keep], ids=lambda how: how.__name__)
async def test_parked_survives_a_restart_and_is_shown(how: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        await how(world, session)
        await rest(session)
        await followup(session, "waits", no_wake=True)
        before = session.show()["parked"]
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        await again.start()
        view = again.show()
        assert view["parked"] == before
        assert (view["state"], view["needs"]) == ("parked", [{"kind": "parked", "id": None}])
        assert again.state.last_turn == session.state.last_turn


# --- what unparks ---------------------------------------------------------------------------------------

# {send: after an abort, after an error}
UNPARKS: list[tuple[dict[str, Any], bool, bool]] = [
    ({"verb": "followup"}, True, True),
    ({"verb": "steer"}, True, True),
    ({"verb": "inject"}, False, False),
    ({"verb": "followup", "no_wake": True}, False, False),
    ({"verb": "followup", "as_": "schedule"}, False, True),
    ({"verb": "steer", "as_": "job"}, False, True),
    ({"verb": "inject", "as_": "hook"}, False, False),
]


@pytest.mark.parametrize(("flags", "aborted", "failed"), UNPARKS, ids=str)
async def test_unparks(flags: dict[str, Any], aborted: bool, failed: bool) -> None:
    for how, unparks in ((by_abort, aborted), (by_error, failed)):
        async with World().run() as world:
            session = await world.session()
            await how(world, session)
            await rest(session)
            await session.send(wire.SendParams(text="new", **flags), ME)
            await rest(session)
            assert (session.state.parked is None) == unparks
            assert (session.state.last_turn == 2) == unparks


async def test_a_users_message_unparks_already_before_the_aborted_turn_has_ended() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        waits = await followup(session, "waits")
        receipts: list[Any] = []

        async def send() -> None:
            receipts.append(await followup(session, "new"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(abort, session)
            await until(session, lambda: session.state.parked)
            nursery.start_soon(send)
        await rest(session)
        assert session.state.parked is None
        assert [session.message(i)["turn"] for i in (receipts[0]["message"], waits["message"])] == [2, 3]


async def test_a_second_abort_after_the_message_parks_again() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        await abort(session)
        await begin(world, session, "new")
        waits = await followup(session, "waits")
        await abort(session)
        assert session.state.parked is not None
        assert session.message(waits["message"])["state"] == "pending"


async def test_wake_unparks_and_runs_what_waits_in_order() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        sent = [await followup(session, "a"), await followup(session, "b", no_wake=True)]
        fact = await steer(session, "fact")
        await abort(session)
        answer = await session.wake(wire.WakeParams(), ME)
        assert (answer["runs"], answer["unparked"]["by"], answer["unparked"]["count"]) == (True, "abort", 3)
        await rest(session)
        where = [session.message(r["message"])["turn"] for r in (fact, *sent)]
        assert where == [2, 2, 3]


async def test_wake_with_nothing_to_do_says_so_and_writes_nothing() -> None:
    async with World().run() as world:
        session = await world.session()
        await inject(session, "fact")
        before = world.types(session)
        answer = await session.wake(wire.WakeParams(), ME)
        assert (answer["runs"], answer["unparked"]) == (False, None)
        assert world.types(session) == before


async def test_wake_starts_what_was_sent_without_a_wake_but_never_a_lone_inject() -> None:
    async with World().run() as world:
        session = await world.session()
        await inject(session, "fact")
        quiet = await followup(session, "quiet", no_wake=True)
        await rest(session)
        assert session.state.last_turn == 0
        await session.wake(wire.WakeParams(), ME)
        assert (await settled(session, quiet["message"]))["turn"] == 1


async def test_a_wake_that_was_not_needed_any_more_starts_nothing_later() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        await followup(session, "gone", no_wake=True)
        assert session.ledger is not None
        asked = {"turn": 1, "disposition": "keep", "cause": "user", "by": None}
        session.ledger.post(lambda s: s.emit("abort/requested", asked))
        session.ledger.post(lambda s: s.emit("driver/woken", {"by": None}))
        session.ledger.post(lambda s: queueing.clear(s, None, {}))
        await rest(session)
        await followup(session, "quiet", no_wake=True)
        await rest(session)
        assert session.state.last_turn == 1


# --- abort ----------------------------------------------------------------------------------------------


async def test_an_abort_touches_the_running_turn_only_and_lists_what_it_did() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await begin(world, session)
        waits = await followup(session, "waits")
        answer = await abort(session, reason="wrong branch")
        assert (answer["turn"], answer["outcome"], answer["doing"]) == (1, "aborted", "gate:")
        assert (answer["parked"]["by"], answer["parked"]["count"], answer["cleared"]) == ("abort", 1, [])
        assert (await settled(session, sent["message"]))["exit"] == 12
        assert session.message(waits["message"])["state"] == "pending"
        end = world.events(session)[-1].data
        assert (end["reason"], end["cause"]) == ("aborted", "user")


async def test_an_abort_that_clears_ends_what_waits_at_that_instant_idle_or_not() -> None:
    async with World().run() as world:
        session = await world.session()
        waits = [await inject(session, "a"), await followup(session, "b", no_wake=True)]
        answer = await abort(session, "clear")
        assert answer["turn"] is None
        assert set(answer["cleared"]) == {r["message"] for r in waits}
        await begin(world, session)
        waits = [await steer(session, "c"), await followup(session, "d")]
        await abort(session, "clear")
        states = [session.message(r["message"])["state"] for r in waits]
        assert states == ["cleared", "cleared"]
        assert (await session.wait_message(waits[0]["message"]))["exit"] == 17


async def test_an_abort_that_continues_runs_the_rest_at_once() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        waits = await followup(session, "waits")
        await abort(session, "continue")
        assert (await settled(session, waits["message"]))["turn"] == 2


@pytest.mark.parametrize(
    ("first", "second", "parked", "waits"),
    [
        ("continue", "keep", True, "pending"),
        ("keep", "continue", True, "pending"),
        ("continue", "clear", True, "cleared"),
        ("clear", "keep", True, "cleared"),
    ],
)
async def test_the_strictest_disposition_that_was_asked_for_holds(
    first: Any, second: Any, parked: bool, waits: str
) -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        waiting = await followup(session, "waits")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abort, session, first)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(abort, session, second)
        asked = [e.data["disposition"] for e in world.events(session) if e.type == "abort/requested"]
        if len(asked) < 2:
            return  # the turn had ended before the second
        assert (session.state.parked is not None) == parked
        assert session.message(waiting["message"])["state"] == waits


async def test_an_abort_of_another_turn_is_refused_and_stops_nothing() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await begin(world, session)
        with pytest.raises(Conflict):
            await abort(session, turn=7)
        assert session.activity.phase == "running"
        world.gate.opened.set()
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        with pytest.raises(Conflict):
            await abort(session, turn=1)


async def test_abort_while_idle_does_nothing_and_arms_nothing() -> None:
    async with World().run() as world:
        session = await world.session()
        before = world.types(session)
        assert (await abort(session))["turn"] is None
        assert world.types(session) == before
        sent = await followup(session, "x")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"


async def test_abort_and_send_in_one_breath_a_hundred_times() -> None:
    async with World().run() as world:
        session = await world.session()
        for n in range(100):
            await begin(world, session, f"work {n}")
            receipts: list[Any] = []

            async def send(n: int = n, receipts: list[Any] = receipts) -> None:
                receipts.append(await (steer if n % 2 else followup)(session, f"after {n}"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(abort, session)
                nursery.start_soon(send)
            if session.state.parked is not None:  # the message was first
                await session.wake(wire.WakeParams(), ME)
            result = await settled(session, receipts[0]["message"])
            assert result["outcome"] in ("completed", "aborted")
            await rest(session)
        assert not session.state.pending
        check_log(world.events(session), quiet=True)


# --- interrupt ------------------------------------------------------------------------------------------


async def test_an_interrupt_is_one_event_its_text_runs_next_and_then_the_rest() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await begin(world, session)
        waits = await followup(session, "waits")
        now = await interrupt(session, "rather this")
        assert (now["queue"], now["position"], now["redirected"]) == ("next-turn", 1, False)
        await rest(session)
        assert turns(session) == [
            (1, "aborted", "interrupt"), (2, "completed", None), (3, "completed", None),
        ]  # fmt: skip
        where = [session.message(r["message"])["turn"] for r in (sent, now, waits)]
        assert where == [1, 2, 3]
        splices = [e for e in world.events(session) if e.data.get("interrupts") == 1]
        assert len(splices) == 1
        assert "abort/requested" not in world.types(session)


async def test_why_a_turn_was_interrupted_is_in_the_log() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        await interrupt(session, "rather this", reason="wrong branch")
        await rest(session)
        (splice,) = [e.data for e in world.events(session) if e.data.get("interrupts") == 1]
        assert splice["reason"] == "wrong branch"


async def test_a_second_interrupt_before_the_first_ran_goes_behind_it() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        receipts: list[Any] = [None, None]

        async def ask(n: int) -> None:
            receipts[n] = await interrupt(session, f"i{n}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 0)
            nursery.start_soon(ask, 1)
        await rest(session)
        in_order = sorted(receipts, key=lambda r: r["seq"])
        assert [session.message(r["message"])["turn"] for r in in_order] == [2, 3]


async def test_an_interrupt_while_idle_is_a_followup_at_the_front_and_unparks() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        waits = await followup(session, "waits")
        await abort(session)
        now = await interrupt(session, "now")
        await rest(session)
        assert [session.message(r["message"])["turn"] for r in (now, waits)] == [2, 3]


async def test_the_end_of_a_keeping_interrupts_turn_parks_and_the_rest_waits() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        waits = await followup(session, "waits")
        now = await interrupt(session, "only this", keep=True)
        assert (await settled(session, now["message"]))["outcome"] == "completed"
        assert (await session.wait_message(waits["message"]))["exit"] == 18
        assert session.state.parked is not None


async def test_a_keeping_interrupt_parks_after_its_own_turn_also_across_a_planned_stop(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        world.gate.began = trio.Event()
        world.script = [call("gate")]
        now = await interrupt(session, "only this", keep=True)
        await world.gate.began.wait()
        waits = await followup(session, "waits")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.registry.drain, 10)
            await trio.sleep(1)
            world.gate.opened.set()
        assert session.state.resume == 2
        assert session.state.parked is None
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, now["message"]))["turn"] == 3
        assert again.state.parked is not None
        assert (await again.wait_message(waits["message"]))["exit"] == 18


async def test_an_interrupt_with_a_known_key_interrupts_nothing() -> None:
    async with World().run() as world:
        session = await world.session()
        first = await interrupt(session, "x", key="k")
        await settled(session, first["message"])
        sent = await begin(world, session)
        again = await interrupt(session, "x", key="k")
        assert (again["message"], again["duplicate"]) == (first["message"], True)
        world.gate.opened.set()
        assert (await settled(session, sent["message"]))["outcome"] == "completed"


# --- crashes --------------------------------------------------------------------------------------------


async def crash_in_a_turn(world: World, session: Session) -> World:
    """Wait until a tool runs, then the power goes; the next daemon finds the same script."""
    with trio.fail_after(5):
        await world.gate.began.wait()
    after = world.crash()
    after.script = [call("gate")]
    return after


@pytest.mark.parametrize("messages", [3, 5])  # nothing waits behind the third; something does
async def test_three_openings_that_find_an_open_turn_park_the_session(messages: int) -> None:
    world, id = World(), ""
    for n in range(4):
        async with world.run():
            session = await world.session() if n == 0 else await world.registry.get(id)
            id = session.id
            if n == 3:
                assert session.state.parked is not None
                assert session.state.parked.by == "crash-loop"
                assert (session.show()["state"], len(session.show()["needs"])) == ("parked", 1)
                assert session.activity.phase == "idle"
                break
            if n == 0:
                world.script = [call("gate")]
                for m in range(messages):
                    await followup(session, f"work {m}")
            world = await crash_in_a_turn(world, session)


@pytest.mark.parametrize("between", ["a turn that ends", "a wake"])
async def test_openings_with_something_between_them_are_no_loop(between: str) -> None:
    world, id = World(), ""
    for n in range(5):
        async with world.run():
            session = await world.session() if n == 0 else await world.registry.get(id)
            id = session.id
            assert session.state.parked is None
            if n == 4:
                break
            if between == "a turn that ends":
                world.script = [say("fine"), call("gate")]
                await followup(session, "a turn that ends")
                await followup(session, "a turn that crashes")
            else:
                world.script = [call("gate")]
                await followup(session, "quiet", no_wake=True)
                await session.wake(wire.WakeParams(), ME)
            world = await crash_in_a_turn(world, session)
            world.script = []


async def test_recovery_says_interrupted_and_never_completed() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate:push")]
        sent = await followup(session, "work")
        await world.gate.began.wait()
        heard = world.events(session)[-1].time
        after = world.crash()
        after.clock_offset += 3_600_000
    async with after.run():
        again = await after.again(session)
        result = await settled(again, sent["message"])
        assert (result["outcome"], result["exit"]) == ("interrupted", 14)
        assert result["unknown"] == [{"tool": "gate", "what": "push"}]
        end = next(e.data for e in after.events(again) if e.type == "turn/end")
        assert end["recovery"] is True
        assert result["started_at"] <= heard
        assert result["ended_at"] == end["ended_at"] == heard  # not an hour later, when it was found


async def test_a_call_that_makes_no_sense_is_told_by_its_raw_arguments() -> None:
    def what(arguments: str) -> str:
        state = CallState("c1", "gate", arguments)
        return closing.what_of(state, InlineTools([Gate()]).describe)

    assert what('{"name": "push"}') == "push"
    assert what('{"name": 1') == '{"name": 1'
    assert len(what("x" * 1000)) == 200


async def test_an_abort_that_was_asked_for_before_the_crash_holds_after_it() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await begin(world, session)
        waits = await followup(session, "waits")
        ledger = session.ledger
        assert ledger is not None
        asked = {"turn": 1, "disposition": "keep", "cause": "user", "by": None}
        await ledger.propose(lambda s: s.emit("abort/requested", asked))
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        await again.start()
        assert (await settled(again, sent["message"]))["outcome"] == "aborted"
        assert (await again.wait_message(waits["message"]))["exit"] == 18


async def test_continue_interrupted_goes_on_with_the_turn_and_tells_the_model() -> None:
    config = Config(recovery=Recovery(continue_interrupted=True))
    async with World(config=config).run() as world:
        session = await world.session()
        sent = await begin(world, session)
        after = world.crash()
    after.script = [say("went on")]
    async with after.run():
        again = await after.again(session)
        result = await settled(again, sent["message"])
        assert (result["turn"], result["text"], result["outcome"]) == (2, "went on", "completed")
        assert again.message(sent["message"])["attempts"] == [1, 2]
        assert "the daemon was stopped" in texts_of(after, again, 2)[0]
        check_log(after.events(again), quiet=True)


# --- a planned stop -------------------------------------------------------------------------------------


async def stop(world: World, grace: float = 10) -> World:
    """A planned stop, and the daemon that starts after it."""
    await world.registry.drain(grace)
    disk = world.disk
    assert isinstance(disk, MemoryDisk)
    after = World(disk.crash(), config=world.config, plugins=world.plugins)
    after.clock_offset = world.clock_offset + 1000
    return after


async def test_a_turn_that_reaches_a_boundary_is_gone_on_with_before_the_queue(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await begin(world, session)
        waits = await followup(session, "waits")
        fact = await inject(session, "fact")

        async def open_gate() -> None:
            await trio.sleep(3)
            world.gate.opened.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_gate)
            after = await stop(world)
        end = world.events(session)[-1].data
        assert (end["reason"], end["cause"], end["resume"]) == ("interrupted", "shutdown", True)
        assert session.state.parked is None
    after.script = [say("went on"), say("went on"), say("the next")]
    async with after.run():
        again = await after.again(session)
        result = await settled(again, sent["message"])
        assert (result["turn"], result["outcome"], result["text"]) == (2, "completed", "went on")
        start = next(e.data for e in after.events(again) if e.type == "turn/start" and e.data["turn"] == 2)
        assert start["retry_of"] == 1
        first_step = [e.data for e in after.events(again) if e.type == "user/message" and e.data["turn"] == 2]
        assert first_step[0]["source"]["via"] == "notice"
        assert again.message(fact["message"])["step"] == 2, "a retried turn's first step claims nothing"
        assert (await settled(again, waits["message"]))["turn"] == 3


async def test_a_turn_that_reaches_none_in_time_ends_interrupted_and_the_queue_goes_on(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await begin(world, session)
        waits = await followup(session, "waits")
        after = await stop(world)
        end = world.events(session)[-1].data
        assert (end["reason"], end["cause"], end.get("resume")) == ("interrupted", "shutdown", None)
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, sent["message"]))["exit"] == 14
        assert (await settled(again, waits["message"]))["outcome"] == "completed"


async def test_a_stop_waits_no_longer_than_the_grace(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        began = trio.current_time()
        await world.registry.drain(10)
        assert trio.current_time() - began < 11


async def test_a_stop_with_nothing_running_takes_no_time(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        await followup(session, "x")
        await rest(session)
        began = trio.current_time()
        await world.registry.drain(10)
        assert trio.current_time() == began


async def test_sends_while_stopping_are_written_answered_with_a_warning_and_run_after(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        receipts: list[Any] = []

        async def send() -> None:
            await trio.sleep(2)
            receipts.append(await followup(session, "late"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            after = await stop(world)
        assert (receipts[0]["warning"], receipts[0]["state"]) == ("stopping", "pending")
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, receipts[0]["message"]))["outcome"] == "completed"


async def test_a_turn_that_entered_nothing_is_put_back(autojump_clock: Any) -> None:
    class Stuck:
        name = "stuck"

        async def pre_step(self, proposal: Any) -> Any:
            await trio.sleep_forever()

    world = World(plugins=(Stuck(),))
    async with world.run():
        session = await world.session()
        sent = await followup(session, "work")
        await until(session, lambda: session.state.turn)
        after = await stop(world)
        assert session.message(sent["message"])["state"] == "pending"
        assert turns(session) == [(1, "interrupted", "shutdown")]
    after.plugins = ()
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, sent["message"]))["turn"] == 2


async def test_a_waiter_of_an_interrupted_turn_gets_the_newest_attempts_result(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await begin(world, session)
        waited: list[Any] = []

        async def wait() -> None:
            waited.append(await session.wait_message(sent["message"]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            world.registry.loaded[session.id].driver.stop_at_boundary()
            world.gate.opened.set()
            await until(session, lambda: session.state.resume)
            await trio.sleep(1)
            assert not waited, "an attempt that is gone on with has not ended"
            nursery.cancel_scope.cancel()


async def test_a_message_that_parked_ones_wait_behind_is_told_how_many_there_are() -> None:
    async with World().run() as world:
        session = await world.session()
        await begin(world, session)
        for n in range(3):
            await followup(session, f"w{n}")
        await abort(session)
        receipt = await followup(session, "go")
        assert receipt["released"] == 3


async def test_a_held_message_in_a_parked_session_waits_for_a_person_and_not_for_the_parking() -> None:
    async with World().run() as world:
        session = await world.session()
        await by_error(world, session)
        await rest(session)
        held = (await followup(session, "mine", hold=True))["message"]
        queued = (await followup(session, "waits", no_wake=True))["message"]
        results = [await session.wait_message(id) for id in (held, queued)]
        assert [(r["exit"], r["parked"] is not None) for r in results] == [(18, False), (18, True)]
