"""Very many sessions with long logs: to list them, their logs are not read."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from dshd.log.codec import encode
from dshd.log.disk import RealDisk
from dshd.log.memory import MemoryDisk
from dshd.log.store import LOG
from dshd.session.disk import checkpoint
from dshd.session.owner.loading import Upkeep
from dshd.session.registry import index
from dshd.session.registry.unloaded import view_from_log
from tests.session.rig import STATE, World, followup, memory, say, settled

EAGER = Upkeep(idle=2.0, look=0.5, least=1, working=3000)
LONG = 200_000  # bytes of a log, at least
SESSIONS = 6
A_FEW = 90_000  # bytes: what is read of a session that was written down


async def long_ones() -> MemoryDisk:
    async with World(upkeep=EAGER).run() as world:
        for n in range(SESSIONS):
            session = await world.session(name=f"number-{n}")
            world.script.append(say("x" * LONG))
            await settled(session, (await followup(session, "work"))["message"])
            world.script.append(say("short"))
            await settled(session, (await followup(session, "and more"))["message"])
        await trio.sleep(30)
        await world.registry.drain(1.0)
        return memory(world)


def size_of_logs(disk: MemoryDisk) -> int:
    sessions = STATE / "sessions"
    return sum(disk.stat(sessions / id / LOG).size for id in disk.listdir(sessions))


def counting(disk: MemoryDisk) -> Counter[str]:
    """Bytes that are read from now on, by file name."""
    read: Counter[str] = Counter()
    calls = disk.calls
    real = calls.pread

    def pread(fd: int, count: int, offset: int) -> bytes:
        data = real(fd, count, offset)
        read[Path(calls.open_files[fd].path).name] += len(data)
        return data

    calls.pread = pread  # type: ignore[method-assign]
    return read


def without(disk: MemoryDisk, *names: str) -> None:
    for id in disk.listdir(STATE / "sessions"):
        for name in names:
            disk.unlink(STATE / "sessions" / id / name)
    if index.NAME in names:
        disk.unlink(STATE / index.NAME)


@pytest.mark.parametrize(
    ("gone", "of_logs"),
    [((), 0), ((index.NAME,), 0), ((index.NAME, index.VIEW), SESSIONS * A_FEW)],
    ids=["the index is there", "the views are", "only checkpoints are"],
)
async def test_what_was_written_down_of_them_is_enough(
    gone: tuple[str, ...], of_logs: int, autojump_clock: Any
) -> None:
    disk = await long_ones()
    assert size_of_logs(disk) > SESSIONS * LONG
    without(disk, *gone)
    read = counting(disk)
    async with World(disk).run() as world:
        views = await world.registry.views(True)
    assert sorted(view["name"] for view in views) == [f"number-{n}" for n in range(SESSIONS)]
    assert {view["state"] for view in views} == {"idle"}
    assert read[LOG] <= of_logs
    assert sum(read.values()) <= SESSIONS * A_FEW


async def test_where_nothing_was_each_log_is_read_once_and_never_again(autojump_clock: Any) -> None:
    disk = await long_ones()
    without(disk, index.NAME, index.VIEW, checkpoint.NAME)
    size = size_of_logs(disk)
    read = counting(disk)
    async with World(disk).run() as world:
        await world.registry.views(True)
        assert read[LOG] <= size * 1.01
    read.clear()
    async with World(disk).run() as world:
        await world.registry.views(True)
    assert read[LOG] == 0


async def test_the_memory_that_it_takes_is_that_of_one(tmp_path: Path, autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script.append(say("x" * 2_000_000))
        await settled(session, (await followup(session, "work"))["message"])
        lines = b"".join(map(encode, world.events(session)))
    logs = [tmp_path / session.id / str(n) / LOG for n in range(8)]
    for log in logs:
        log.parent.mkdir(parents=True)
        log.write_bytes(lines)

    def peak(logs: list[Path]) -> int:
        tracemalloc.start()
        for log in logs:
            view_from_log(RealDisk(), log, unread=True)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(logs[:1])
    assert peak(logs) < 1.5 * peak(logs[:1])
