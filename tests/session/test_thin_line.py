from __future__ import annotations

import trio

from dshd import wire
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer, until


async def test_a_followup_is_synced_claimed_answered_and_read_back() -> None:
    async with World().run() as world:
        world.script = [say("hello back")]
        session = await world.session()
        receipt = await followup(session, "hello")
        result = await settled(session, receipt["message"])
        assert result["outcome"] == "completed"
        assert result["text"] == "hello back"
        assert world.types(session) == [
            "session/header", "session/opened", "inbox/spliced", "turn/start", "inbox/spliced", "step/start",
            "user/message", "user/message", "request/header", "request/context", "request/sent",
            "assistant/chunk", "assistant/message", "step/end", "turn/end",
        ]  # fmt: skip


async def test_each_verb_reaches_the_model_where_it_should() -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("one"), say("two")]
        session = await world.session()
        first = await followup(session, "work")
        await world.gate.began.wait()
        s = await steer(session, "steered")
        i = await inject(session, "injected")
        f = await followup(session, "next")
        world.gate.opened.set()
        where = []
        for receipt in (first, s, i, f):
            await settled(session, receipt["message"])
            entered = session.message(receipt["message"])
            where.append((entered["turn"], entered["step"]))
        assert where == [(1, 1), (1, 2), (1, 2), (2, 1)]


async def test_an_abort_parks_what_waits_and_a_send_unparks_it() -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("after"), say("parked one")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        waits = await followup(session, "later")
        answer = await session.abort(wire.AbortParams(), ME)
        assert answer["outcome"] == "aborted"
        assert session.state.parked is not None
        assert session.message(waits["message"])["state"] == "pending"
        new = await followup(session, "now")
        assert (await settled(session, new["message"]))["turn"] == 2
        assert (await settled(session, waits["message"]))["turn"] == 3


async def test_a_crash_closes_the_turn_and_goes_on_with_the_queue() -> None:
    world = World()
    async with world.run():
        world.script = [call("gate")]
        session = await world.session()
        first = await followup(session, "work")
        await world.gate.began.wait()
        second = await followup(session, "later")
        after = world.crash()
    after.script = [say("later done")]
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, first["message"]))["outcome"] == "interrupted"
        assert (await settled(again, second["message"]))["text"] == "later done"
        results = [e for e in after.events(session) if e.type == "tool/result"]
        assert results[0].data["error"]["code"] == "OUTCOME_UNKNOWN"


async def test_a_waiter_is_woken_by_idle() -> None:
    async with World().run() as world:
        session = await world.session()
        await followup(session, "x")
        with trio.fail_after(5):
            assert (await session.wait_idle())["exit"] == 0
        await until(session, lambda: session.activity.phase == "idle")
