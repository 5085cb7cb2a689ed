"""A log that somebody cuts while no daemon runs: nothing that was acknowledged is forgotten in silence."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from dshd.errors import Damaged
from dshd.log.memory import MemoryDisk
from dshd.session.disk import checkpoint
from dshd.session.owner.loading import Upkeep
from dshd.session.registry import index
from tests.session.rig import ME, World, followup, inject, memory, settled

EAGER = Upkeep(idle=2.0, look=0.5, least=1, working=1)


async def stopped(upkeep: Upkeep | None = None) -> tuple[MemoryDisk, str, list[str], int]:
    """The disk of a daemon that has stopped; the session, its messages, and its newest turn."""
    async with World(upkeep=upkeep).run() as world:
        session = await world.session(name="api")
        ids = []
        for n in range(3):
            ids.append((await followup(session, f"work {n}", key=f"k{n}"))["message"])
            await settled(session, ids[-1])
        ids.append((await inject(session, "waits"))["message"])
        await trio.sleep(5)
        await world.registry.drain(1.0)
        return memory(world), session.id, ids, session.state.last_turn


def ends(data: bytes) -> list[int]:
    return [at + 1 for at, byte in enumerate(data) if byte == 0x0A]


@pytest.mark.parametrize("upkeep", [None, EAGER], ids=["a small log", "with a checkpoint"])
async def test_wherever_it_is_cut_it_is_damaged_and_its_repair_gives_nothing_twice(
    upkeep: Upkeep | None, autojump_clock: Any
) -> None:
    whole, id, ids, turn = await stopped(upkeep)
    path = World().store.log_path(id)
    data = whole.peek(path)
    for end in (ends(data)[0], *ends(data)[3:-1:6], ends(data)[-2]):
        disk = whole.copy()
        disk.poke(path, data[:end])
        async with World(disk).run() as world:
            (view,) = await world.registry.views(True)
            assert view["state"] == "damaged"
            session = await world.registry.get(id)
            with pytest.raises(Damaged) as raised:
                await followup(session, "more")
            assert raised.value.hint == "dshctl fsck --repair api"
            report = await world.registry.fsck(id)
            assert (report["ok"], report["exit"]) == (False, 7)
            assert "are missing" in report["problem"]
            assert (await world.registry.repair(id, ME))["ok"]
            session = await world.registry.get(id)
            again = await followup(session, "more")
            assert again["message"] not in ids
            assert again["seq"] > len(ends(data))
            await settled(session, again["message"])
            assert session.state.last_turn > turn
            assert (await world.registry.fsck(id))["ok"]
            await trio.sleep(5)
            await world.registry.drain(1.0)
        async with World(disk).run() as later:
            assert (await later.registry.fsck(id))["ok"]


@pytest.mark.parametrize("cut", [1, 5])
async def test_without_what_lies_beside_it_it_opens_as_it_is(cut: int, autojump_clock: Any) -> None:
    disk, id, _ids, _turn = await stopped(EAGER)
    path = World().store.log_path(id)
    disk.poke(path, disk.peek(path)[: ends(disk.peek(path))[-1 - cut]])
    for name in (index.VIEW, checkpoint.NAME):
        disk.unlink(path.with_name(name))
    async with World(disk).run() as world:
        assert (await world.registry.fsck(id))["ok"]


async def test_a_stop_that_is_cut_short_by_the_power_tells_of_nothing_that_was_not_durable(
    autojump_clock: Any,
) -> None:
    cuts: list[MemoryDisk] = []
    async with World().run() as world:
        session = await world.session(name="api")
        disk = memory(world)
        disk.before(lambda name, path: cuts.append(disk.crash()))
        for n in range(3):
            await settled(session, (await followup(session, f"work {n}"))["message"])
        await world.registry.drain(1.0)
        disk.before(None)
    assert any(cut.exists(world.store.log_path(session.id).with_name(index.VIEW)) for cut in cuts)
    for cut in cuts[::3] + cuts[-9:]:
        async with World(cut).run() as after:
            assert (await after.registry.fsck(session.id))["ok"]
