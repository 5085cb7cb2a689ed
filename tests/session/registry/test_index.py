"""The views of sessions that aren't loaded: one file for all, believed where it fits."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import trio

from dshd.log.memory import MemoryDisk
from dshd.log.sealed import seal
from dshd.session.registry import index
from dshd.session.registry.index import VIEW
from tests.session.rig import STATE, World, followup, say, settled


async def some_sessions(world: World, count: int) -> list[dict[str, Any]]:
    for n in range(count):
        world.script.append(say(f"answer {n}"))
        session = await world.session(name=f"number-{n}")
        await settled(session, (await followup(session, "work"))["message"])
        await session.drain()
    await trio.sleep(5)  # their markers go
    await world.registry.drain(1.0)
    return await all_views(world)


async def all_views(world: World) -> list[dict[str, Any]]:
    return sorted(await world.registry.views(True), key=lambda view: str(view["id"]))


async def views_after(world: World) -> list[dict[str, Any]]:
    async with World(world.disk).run() as again:
        assert not again.registry.loaded
        return await all_views(again)


async def test_a_start_knows_all_sessions_from_one_file(autojump_clock: Any) -> None:
    async with World().run() as world:
        views = await some_sessions(world, 5)
    assert isinstance(world.disk, MemoryDisk)
    calls = world.disk.trace()
    assert await views_after(world) == views
    assert not [path for call, path in calls if call == "open" and path.endswith((VIEW, "log.jsonl"))]


@pytest.mark.parametrize("how", ["deleted", "cut", "a changed byte", "of other sessions"])
async def test_an_index_that_is_wrong_is_ignored(how: str, autojump_clock: Any) -> None:
    async with World().run() as world:
        views = await some_sessions(world, 3)
    disk, path = world.disk, STATE / index.NAME
    assert isinstance(disk, MemoryDisk)
    good = disk.peek(path)
    if how == "deleted":
        disk.unlink(path)
    elif how == "cut":
        disk.poke(path, good[: len(good) // 2])
    elif how == "a changed byte":
        disk.poke(path, good.replace(b"number-1", b"number-7"))
    else:
        index.write(disk, STATE, [line.replace(b'"id":"s', b'"id":"t') for line in good.split(b"\n")[1:-1]])
    assert await views_after(world) == views
    assert disk.peek(path).count(b"\n") == 4


@pytest.mark.parametrize("how", ["of all", "of one"])
async def test_a_view_of_a_version_that_knew_less_is_made_anew(how: str, autojump_clock: Any) -> None:
    async with World().run() as world:
        views = await some_sessions(world, 3)
    disk = world.disk
    assert isinstance(disk, MemoryDisk)
    older = [{name: value for name, value in view.items() if name != "budgets"} for view in views]
    for view in older:
        index.write_beside(disk, world.store.log_path(view["id"]), view)
    if how == "of all":
        index.write(disk, STATE, map(orjson.dumps, older))
    else:
        disk.unlink(STATE / index.NAME)
    assert await views_after(world) == views


@pytest.mark.parametrize("how", ["zeros", "empty", "cut", "a changed byte", "of another size"])
async def test_a_view_that_is_wrong_is_ignored(how: str, autojump_clock: Any) -> None:
    async with World().run() as world:
        views = await some_sessions(world, 2)
    disk = world.disk
    assert isinstance(disk, MemoryDisk)
    disk.unlink(STATE / index.NAME)
    logs = [world.store.log_path(view["id"]) for view in views]
    good = disk.peek(logs[0].with_name(VIEW))
    wrong = {
        "zeros": bytes(len(good)),
        "empty": b"",
        "cut": good[: len(good) // 2],
        "a changed byte": good.replace(b"number-", b"nummer-"),
        "of another size": b"".join(seal(orjson.dumps({**views[0], "title": "old", "bytes": 1}))),
    }[how]
    disk.poke(logs[0].with_name(VIEW), wrong)
    assert await views_after(world) == views


async def test_a_session_that_went_on_since_is_looked_at_anew(autojump_clock: Any) -> None:
    async with World().run() as world:
        await some_sessions(world, 3)
    assert isinstance(world.disk, MemoryDisk)
    old = world.disk.peek(STATE / index.NAME)
    async with World(world.disk).run() as second:
        session = await second.registry.get((await second.registry.rows())[0].id)
        await settled(session, (await followup(session, "more"))["message"])
        await trio.sleep(5)
        await second.registry.drain(1.0)
        views = await all_views(second)
    world.disk.poke(STATE / index.NAME, old)
    assert await views_after(world) == views
