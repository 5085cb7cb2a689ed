"""What comes while a turn's beginning, or its next step's, is on its way to disk."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dshd import wire
from dshd.driver import opening
from dshd.log.codec import decode
from dshd.plugins import PreStep
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, settled, until


class Turnstile:
    """Each batch of a session waits before it is written; ``batch`` are the types of the one that waits."""

    def __init__(self, session: Session) -> None:
        assert session.ledger is not None
        self.batch: list[str] = []
        self._writer = session.ledger.writer
        self._append = self._writer.append
        self._tokens = trio.Semaphore(0)
        self._writer.append = self._held  # type: ignore[method-assign]

    async def _held(self, data: bytes, last_seq: int, *, sync: bool) -> None:
        self.batch = [decode(line + b"\n").type for line in data.split(b"\n")[:-1]]
        await self._tokens.acquire()
        await self._append(data, last_seq, sync=sync)

    async def let_one_through(self) -> None:
        self._tokens.release()
        await wait_all_tasks_blocked()

    def open(self) -> None:
        self._writer.append = self._append  # type: ignore[method-assign]
        self._tokens.release()


def ends(world: World, session: Session) -> list[tuple[str, str | None, bool | None]]:
    data = [e.data for e in world.events(session) if e.type == "turn/end"]
    return [(end["reason"], end.get("cause"), end.get("resume")) for end in data]


async def test_an_abort_in_the_very_batch_that_opens_a_turn_stops_it_before_the_model_is_asked() -> None:
    async with World().run() as world, trio.open_nursery() as nursery:
        session = await world.session()
        turnstile = Turnstile(session)
        nursery.start_soon(followup, session, "work")
        await wait_all_tasks_blocked()
        nursery.start_soon(inject, session, "something else")
        await turnstile.let_one_through()
        nursery.start_soon(session.abort, wire.AbortParams(), ME)
        await wait_all_tasks_blocked()
        await turnstile.let_one_through()
        assert turnstile.batch == ["turn/start", "inbox/spliced", "abort/requested"]
        turnstile.open()
        await until(session, lambda: ends(world, session) and session.activity.phase == "idle")
        assert ends(world, session) == [("aborted", "user", None)]
        assert world.requests == []
        assert session.message(f"{session.id}.1")["outcome"] == "aborted"
        check_log(world.events(session), quiet=True)


async def test_a_stop_while_a_turn_opens_ends_it_before_the_model_is_asked() -> None:
    async with World().run() as world, trio.open_nursery() as nursery:
        session = await world.session()
        turnstile = Turnstile(session)
        nursery.start_soon(followup, session, "work")
        await wait_all_tasks_blocked()
        await turnstile.let_one_through()
        assert turnstile.batch == ["turn/start", "inbox/spliced"]
        nursery.start_soon(world.registry.drain, 0)
        await wait_all_tasks_blocked()
        turnstile.open()
        await until(session, lambda: ends(world, session))
        assert ends(world, session)[0][:2] == ("interrupted", "shutdown")
        assert world.requests == []
        assert session.message(f"{session.id}.1")["state"] == "pending"
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, f"{session.id}.1"))["outcome"] == "completed"


async def test_a_stop_at_the_gates_between_two_steps_is_at_a_boundary() -> None:
    reached = trio.Event()

    class Slow:
        name = "slow"

        async def pre_step(self, proposal: PreStep) -> PreStep:
            if proposal.step == 2:
                reached.set()
                await trio.sleep_forever()
            return proposal

    async with World(plugins=(Slow(),)).run() as world:
        world.script = [call("quick"), say("never")]
        session = await world.session()
        sent = await followup(session, "work")
        await reached.wait()
        await world.registry.drain(0)
        assert ends(world, session) == [("interrupted", "shutdown", True)]
        after = world.crash()
    after.plugins = ()
    after.script = [say("went on")]
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, sent["message"]))["text"] == "went on"
        assert after.quick.runs == []


async def test_a_turn_that_a_mistake_of_ours_keeps_from_opening_is_tried_again_after_a_minute_not_at_once(
    monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    tries, good = 0, opening.open_turn

    def mistaken(*args: Any, **more: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 5:  # or a driver that never stops trying would hang the test
            raise RuntimeError("a bug")
        return good(*args, **more)

    async with World().run() as world:
        session = await world.session()
        monkeypatch.setattr(opening, "open_turn", mistaken)
        sent = await followup(session, "one")
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert (tries, session.activity.phase) == (1, "idle")
        mock_clock.jump(61)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert tries == 2
        monkeypatch.setattr(opening, "open_turn", good)
        mock_clock.jump(61)
        await until(session, lambda: session.message(sent["message"])["outcome"] == "completed")
        check_memory(session, world.events(session))
