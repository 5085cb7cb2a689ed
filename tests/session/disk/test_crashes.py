"""Power cuts at every write and every sync of a scripted run, and what must hold afterwards.

One run gives all the cuts: before each system call that changes the disk, the disk as it would be
found is copied, together with what had been acknowledged and what tools had run by then.
"""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.log.memory import Everything, MemoryDisk, Nothing, Prefix, Seeded
from tests.session.invariants import check_acknowledged, check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer

SURVIVORS: dict[str, Any] = {
    "only what was synced": lambda n: Nothing(),
    "all that was written": lambda n: Everything(),
    "the first bytes": lambda n: Prefix(1 + n * 37 % 400),
    "some blocks": lambda n: Seeded(Random(n)),
}


@attrs.define
class Cut:
    """The disk at one instant; ``runs``: tools that had begun by then; ``asked``: model requests."""

    disk: MemoryDisk
    acknowledged: list[str]
    runs: int
    asked: int


@attrs.define
class Film:
    cuts: list[Cut] = attrs.field(factory=list)
    acknowledged: list[str] = attrs.field(factory=list)
    session: str = ""


async def play(survivor: Any) -> Film:
    """Two tool steps, a steer, an inject, two followups, an abort; a cut before each disk call."""
    film, world = Film(), World()
    disk = world.disk
    assert isinstance(disk, MemoryDisk)

    def cut(name: str, path: str) -> None:
        n = len(film.cuts)
        runs = len(world.gate.runs) + len(world.quick.runs) + len(world.look.runs)
        film.cuts.append(Cut(disk.crash(survivor(n)), list(film.acknowledged), runs, len(world.requests)))

    async with world.run():
        session = await world.session()
        film.session = session.id
        world.script = [call("quick:a", "look:b"), call("gate"), say("one"), call("quick:c"), say("two")]
        disk.before(cut)

        async def send(sent: Any) -> str:
            film.acknowledged.append(sent["message"])
            return str(sent["message"])

        first = await send(await followup(session, "work"))
        await world.gate.began.wait()
        await send(await steer(session, "steered"))
        await send(await inject(session, "injected"))
        second = await send(await followup(session, "second"))
        world.gate.opened.set()
        await settled(session, first)
        await settled(session, second)
        world.gate.began, world.gate.opened = trio.Event(), trio.Event()
        world.script = [call("gate")]
        third = await send(await followup(session, "third"))
        await world.gate.began.wait()
        await send(await followup(session, "parked"))
        await session.abort(wire.AbortParams(), ME)
        await send(await followup(session, "unparks"))
        await settled(session, third)
        await session.wait_idle(stay=True)
        disk.before(None)
        check_log(world.events(session), quiet=True)
    return film


async def check_cut(cut: Cut, id: str) -> None:
    """Open what the cut left; drive it to rest; everything acknowledged must be accounted for."""
    world = World(cut.disk)
    world.clock_offset = 60_000
    world.gate.opened.set()
    async with world.run():
        session = await world.registry.get(id)
        assert session.broken is None, session.broken
        found = world.events(session)
        check_log(found)
        # effects: nothing ran, and nobody was asked, without the log saying so
        assert sum(e.type == "tool/call" for e in found) >= cut.runs
        assert sum(e.type == "request/sent" for e in found) >= cut.asked
        check_acknowledged(session, cut.acknowledged)
        with trio.fail_after(20):
            await session.wait_idle()
        events = world.events(session)
        assert events[: len(found)] == found, "history was rewritten"
        check_log(events, quiet=True)
        check_memory(session, events)
        check_acknowledged(session, cut.acknowledged)
        if session.state.parked is None:
            for id in cut.acknowledged:
                assert session.state.receipts[id].ended, session.message(id)


@pytest.mark.parametrize("survivor", SURVIVORS)
async def test_a_power_cut_at_any_write_or_sync_loses_nothing_and_doubles_nothing(
    survivor: str, autojump_clock: Any
) -> None:
    film = await play(SURVIVORS[survivor])
    assert len(film.cuts) > 60
    for cut in film.cuts:
        await check_cut(cut, film.session)


async def test_two_power_cuts_in_a_row_are_no_worse_than_one(autojump_clock: Any) -> None:
    film = await play(SURVIVORS["some blocks"])
    for n, cut in enumerate(film.cuts[::7]):
        world = World(cut.disk)
        world.gate.opened.set()
        async with world.run():
            session = await world.registry.get(film.session)
            with trio.move_on_after(0.0005 * (n % 5)):
                await session.wait_idle()
            second = Cut(world.disk.crash(Seeded(Random(n))), cut.acknowledged, cut.runs, cut.asked)  # type: ignore[attr-defined]
        await check_cut(second, film.session)
