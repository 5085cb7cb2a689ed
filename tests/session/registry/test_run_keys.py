"""The keys of runs whose sessions are gone: who asks again is told what came of it, and nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.errors import Conflict
from dshd.log.memory import Everything, MemoryDisk, Nothing
from dshd.log.store import Store
from dshd.session.owner.session import Session
from dshd.session.registry import run_keys
from dshd.session.registry.creating import Created
from dshd.session.registry.run_keys import Used
from tests.session.rig import ME, World, inject, say, until


async def ask(world: World, text: str = "work", **more: Any) -> Created:
    return await world.registry.make(wire.CreateParams(dir="/", run=True, text=text, key="k", **more), ME)


async def ran(world: World) -> Session:
    """A run that is over."""
    session = (await ask(world)).session
    assert session is not None
    with trio.fail_after(10):
        await until(session, lambda: session.state.closed)
    return session


def answers(made: Created, id: str) -> None:
    assert made.session is None
    assert made.receipt is not None
    assert made.result is not None
    assert (made.receipt["message"], made.receipt["duplicate"], made.duplicate) == (f"{id}.1", True, True)
    assert (made.result["message"], made.result["text"]) == (f"{id}.1", None)


@pytest.mark.parametrize("how", ["rm", "unread"])
async def test_the_key_of_a_run_holds_when_its_session_is_gone(how: str) -> None:
    async with World().run() as world:
        session = await ran(world)
        id = session.id
        if how == "unread":
            world = await unread(world, session)
    async with world.run():
        await world.registry.delete(id, False, ME)
        answers(await ask(world), id)
        result = (await ask(world)).result
        assert result is not None
        assert (result["outcome"], result["exit"]) == ("completed", 0)
        with pytest.raises(Conflict, match='key "k" was used for another text'):
            await ask(world, "other work")
        with pytest.raises(Conflict, match="was removed"):
            await world.registry.create(wire.CreateParams(dir="/", run=True, text="work", key="k"), ME)
        made = await world.registry.make(wire.CreateParams(dir="/", run=False, key="k", name="new"), ME)
        assert made.session is not None  # a key of `new` means a session that is there
        assert len(world.requests) == (0 if how == "unread" else 1)


async def unread(world: World, session: Session) -> World:
    """The next daemon finds a line in the middle of its log that is not one."""
    after = world.crash(Everything())
    path = after.store.log_path(session.id)
    lines = after.disk.read_bytes(path).splitlines(keepends=True)
    after.disk.write_atomic(path, [*lines[:-1], b"spoilt\n", lines[-1]])
    return after


async def test_what_it_is_told_is_what_became_of_it() -> None:
    async with World().run() as world:
        world.script = [say("cut", "max-tokens")]
        session = await ran(world)
        await session.reopen(ME)
        await inject(session, "kept", key="other")
        await world.registry.delete(session.id, True, ME)
        result = (await ask(world)).result
        assert result is not None
        assert (result["outcome"], result["exit"]) == ("max-tokens", 13)


async def test_a_crash_while_it_is_removed_never_lets_it_run_twice() -> None:
    cuts: list[MemoryDisk] = []
    world = World()
    disk = world.disk
    assert isinstance(disk, MemoryDisk)
    async with world.run():
        session = await ran(world)
        disk.before(lambda name, path: cuts.extend((disk.crash(Nothing()), disk.crash(Everything()))))
        await world.registry.delete(session.id, False, ME)
        disk.before(None)
        cuts.append(disk.crash(Nothing()))
    assert len(cuts) > 4
    for cut in cuts:
        async with World(cut).run() as after:
            made = await ask(after)
            assert made.receipt is not None
            assert (made.receipt["message"], made.receipt["duplicate"]) == (f"{session.id}.1", True)
            assert after.requests == []


def test_the_newest_keys_are_kept_and_a_file_that_is_not_whole_is_none() -> None:
    disk, state = MemoryDisk(), Path("/state")
    Store(disk, state).prepare()
    assert run_keys.read(disk, state) == {}
    used = {"a": Used("f", {"message": "s4h8w2c1.1"}, {"outcome": "completed", "exit": 0})}
    run_keys.write(disk, state, used)
    assert run_keys.read(disk, state) == used
    whole = disk.read_bytes(state / run_keys.NAME)
    for damaged in (whole[:-5], whole.replace(b"completed", b"interrupt"), b"", b"{}"):
        disk.write_atomic(state / run_keys.NAME, [damaged])
        assert run_keys.read(disk, state) == {}


async def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_keys, "MOST", 2)
    async with World().run() as world:
        for key in ("one", "two", "three"):
            p = wire.CreateParams(dir="/", run=True, text="work", key=key)
            session = (await world.registry.make(p, ME)).session
            assert session is not None
            with trio.fail_after(10):
                await until(session, lambda session=session: session.state.closed)  # type: ignore[misc]
            await world.registry.delete(session.id, True, ME)
        kept = run_keys.read(world.disk, world.store.state)
    assert list(kept) == ["two", "three"]
