"""What streams is in the log: all of it, in order, whatever the disk does meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from dshd.log.memory import MemoryDisk
from dshd.model.chunks import BlockStart, Finish, TextDelta, Usage
from tests.session.rig import World, followup, settled


def words(n: int, pause: int) -> list[Any]:
    """An answer of ``n`` words; the model stops for a moment after every ``pause`` of them."""
    answer: list[Any] = [BlockStart(0, "text")]
    for i in range(n):
        answer += [TextDelta(0, f"{i} "), *([trio.lowlevel.checkpoint] if i % pause == 0 else [])]
    return [*answer, trio.lowlevel.checkpoint, Usage({}), Finish("stop")]


def text(n: int) -> str:
    return "".join(f"{i} " for i in range(n))


def streamed(world: World, session: Any) -> list[Any]:
    return [c for e in world.events(session) if e.type == "assistant/chunk" for c in e.data["chunks"]]


def said(chunks: list[Any]) -> str:
    return "".join(c["text"] for c in chunks if c["type"] == "text-delta")


def slow_disk(world: World, checkpoints: int) -> MemoryDisk:
    async def pause() -> None:
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()

    assert isinstance(world.disk, MemoryDisk)
    world.disk.pause = pause
    return world.disk


@pytest.mark.parametrize("slow", [1, 2, 5])
@pytest.mark.parametrize(("n", "pause"), [(1, 1), (2, 1), (7, 1), (100, 3), (10_000, 5000)])
async def test_every_chunk_is_in_the_log_in_order_the_last_ones_too(n: int, pause: int, slow: int) -> None:
    async with World().run() as world:
        slow_disk(world, slow)
        world.script = [words(n, pause)]
        session = await world.session()
        await settled(session, (await followup(session, "go"))["message"])
        told = streamed(world, session)
        assert said(told) == text(n)
        assert [c["type"] for c in told[-2:]] == ["usage", "finish"]


@pytest.mark.parametrize("skip", range(1, 12))
async def test_a_write_that_fails_for_want_of_room_takes_no_chunk_from_the_middle(
    skip: int, autojump_clock: Any
) -> None:
    async with World().run() as world:
        disk = slow_disk(world, 2)
        world.script = [words(50, 2)]
        session = await world.session()
        sent = await followup(session, "go")
        disk.fail("write", errno.ENOSPC, path="log.jsonl", skip=skip)
        await settled(session, sent["message"])
        assert text(50).startswith(said(streamed(world, session)))


async def test_a_stream_faster_than_the_disk_costs_a_line_a_write_not_a_line_a_chunk() -> None:
    async with World().run() as world:
        slow_disk(world, 3)
        world.script = [words(5000, 100)]
        session = await world.session()
        await settled(session, (await followup(session, "go"))["message"])
        assert world.types(session).count("assistant/chunk") < 60
