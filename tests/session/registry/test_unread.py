"""A log that can't be read, and what it was the log of: nothing takes its place unless it is asked for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from dshd import wire
from dshd.errors import Damaged, DshError, NotFound
from dshd.log.memory import MemoryDisk
from dshd.session.disk import checkpoint
from dshd.session.owner.loading import Upkeep
from dshd.session.registry import index
from tests.session.rig import STATE, World, followup, memory, settled

LOG = "/log.jsonl"
BESIDE = (index.VIEW, checkpoint.NAME)


async def a_stopped_one(upkeep: Upkeep | None = None, **params: Any) -> tuple[MemoryDisk, str]:
    """What is on disk of a daemon that has stopped, and the id of its session."""
    async with World(upkeep=upkeep).run() as world:
        session = await world.session(**{"implicit": True, "key": "once", **params})
        await settled(session, (await followup(session, "work"))["message"])
        await session.drain()
        world.store.unmark(session.id)
        await world.registry.drain(1.0)
        if upkeep is not None:
            await session.keep()
        return memory(world), session.id


def without(disk: MemoryDisk, id: str, *kept: str) -> None:
    for name in BESIDE:
        if name not in kept:
            disk.unlink(STATE / "sessions" / id / name)
    if index.NAME not in kept:
        disk.unlink(STATE / index.NAME)


def unreadable(disk: MemoryDisk, id: str, code: int = errno.EIO) -> None:
    for call in ("open", "pread"):
        disk.fail(call, code, path=id + LOG, times=-1)


async def found(world: World, ref: str | None = None, cwd: str = "/") -> str:
    return await world.registry.resolve(ref, cwd)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize(("ref", "cwd"), [(None, "/"), (None, "/elsewhere"), ("nightly", "/")])
async def test_while_one_of_which_nothing_is_known_can_not_be_read_no_other_takes_its_place(
    ref: str | None, cwd: str, code: int
) -> None:
    disk, id = await a_stopped_one()
    without(disk, id)
    unreadable(disk, id, code)
    async with World(disk).run() as world:
        with pytest.raises(Damaged) as raised:
            await found(world, ref, cwd)
        said = raised.value.message.lower()
        assert f"{id}{LOG}" in said
        assert os.strerror(code).lower() in said
        assert raised.value.outcome == "not-written"
        (view,) = await world.registry.views(True)
        assert os.strerror(code).lower() in view["needs"][0]["what"].lower()


async def test_it_keeps_nobody_from_any_other_session_nor_from_a_new_one() -> None:
    disk, id = await a_stopped_one()
    without(disk, id)
    async with World(disk).run() as world:
        await world.session(name="other")
        world.store.unmark(id)
    disk.unlink(STATE / index.NAME)
    unreadable(disk, id)
    async with World(disk).run() as world:
        assert await found(world, await found(world, "other")) == await found(world, "other") != id
        assert await found(world, id) == id
        made = await world.session(implicit=True)
        assert await found(world) == made.id


async def test_a_key_that_may_be_of_one_that_can_not_be_read_is_refused() -> None:
    disk, id = await a_stopped_one()
    without(disk, id)
    unreadable(disk, id)
    async with World(disk).run() as world:
        with pytest.raises(Damaged, match='what key "once" stands for'):
            await world.session(key="once")
        disk.heal()
        assert (await world.session(implicit=True, key="once")).id == id


async def test_once_the_disk_can_read_it_again_everything_is_as_it_was() -> None:
    disk, id = await a_stopped_one()
    without(disk, id)
    unreadable(disk, id)
    async with World(disk).run() as world:
        with pytest.raises(Damaged):
            await found(world)
        disk.heal()
        assert await found(world) == id
        with pytest.raises(NotFound):
            await found(world, "nightly")
        assert (await world.registry.get(id)).state.last_turn == 1


SOURCES = {
    "the view beside it": index.VIEW,
    "its checkpoint": checkpoint.NAME,
    "the index": index.NAME,
}


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("source", SOURCES)
async def test_what_anything_else_tells_of_it_is_believed(source: str, fits: bool) -> None:
    disk, id = await a_stopped_one(Upkeep(least=1, working=1), name=None)
    name = SOURCES[source]
    without(disk, id, name)
    if not fits:
        path = STATE / "sessions" / id / LOG[1:]
        disk.poke(path, disk.peek(path) + b"torn")
    unreadable(disk, id)
    async with World(disk).run() as world:
        assert await found(world) == id
        with pytest.raises(DshError, match="Input/output error"):
            await world.registry.get(id)
        with pytest.raises(NotFound):
            await found(world, "nightly")
        (view,) = await world.registry.views(True)
        assert (view["dir"], view["key"], view["implicit"]) == ("/", "once", True)


def changed(line: bytes) -> bytes:
    return line.replace(b'"time":1', b'"time":2')


def zeros(line: bytes) -> bytes:
    return bytes(len(line))


@pytest.mark.parametrize(("harm", "kept"), [(changed, ()), (zeros, BESIDE), (zeros, (index.NAME,))])
async def test_one_that_has_lost_its_header_is_still_the_one_of_its_directory(
    harm: Callable[[bytes], bytes], kept: tuple[str, ...]
) -> None:
    disk, id = await a_stopped_one()
    without(disk, id, *kept)
    path = STATE / "sessions" / id / LOG[1:]
    first, rest = disk.peek(path).split(b"\n", 1)
    disk.poke(path, harm(first + b"\n") + rest)
    if kept == BESIDE:
        disk.poke(path, disk.peek(path) + b"torn")
    async with World(disk).run() as world:
        for _ in range(2):  # loaded, too
            assert await found(world) == id
            assert not (await world.registry.get(id)).usable


async def test_one_that_has_lost_all_that_told_of_it_blocks_nobody() -> None:
    disk, id = await a_stopped_one()
    without(disk, id)
    path = STATE / "sessions" / id / LOG[1:]
    disk.poke(path, bytes(len(disk.peek(path))))
    async with World(disk).run() as world:
        with pytest.raises(NotFound):
            await found(world)


async def test_a_directory_of_ones_own_is_found_whatever_else_can_not_be_read() -> None:
    rows = [
        wire.SessionRow(id="s2222222", dir="/src", implicit=True),
        wire.SessionRow(id="s3333333", unread="can't read it"),
    ]
    assert wire.resolve(None, rows, "/src").id == "s2222222"
    with pytest.raises(Damaged):
        wire.resolve(None, rows, "/src/below")
    assert wire.resolve("s222", rows, None).id == "s2222222"
    with pytest.raises(NotFound):
        wire.resolve("nightly", rows, None, exact=True)
