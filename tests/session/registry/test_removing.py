"""Removing sessions: what is refused, what is recorded, who is told; and copies beside the original."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from dshd.config import Config
from dshd.errors import Conflict, Damaged, DshError, Faulted, NoSpace, NotFound
from dshd.log.memory import Everything, MemoryDisk
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from dshd.session.registry import removing
from dshd.session.registry.loader import Loader
from tests.session.rig import ME, World, call, followup, inject, memory, say, settled, until


async def remove(world: World, session: Session | str, *, force: bool = False) -> dict[str, Any]:
    id = session if isinstance(session, str) else session.id
    return await world.registry.delete(id, force, ME)


def there(world: World) -> list[str]:
    return world.disk.listdir(world.store.sessions)


async def begin(world: World, session: Session) -> dict[str, Any]:
    world.script = [call("gate")]
    sent = await followup(session, "work")
    with trio.fail_after(5):
        await world.gate.began.wait()
    return sent


# --- what is refused -------------------------------------------------------------------------------


async def test_what_runs_or_holds_messages_is_refused_and_told_why() -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api")
        await inject(session, "waits")
        with pytest.raises(Conflict, match="not removed: api holds 1 message") as refused:
            await remove(world, session)
        assert refused.value.hint == "dshctl rm --force api"
        await followup(session, "held", hold=True)
        sent = await begin(world, session)
        with pytest.raises(Conflict, match="api runs turn 1 and holds 1 message"):
            await remove(world, session)
        world.gate.opened.set()
        await settled(session, sent["message"])
        with pytest.raises(Conflict, match="holds 1 message"):
            await remove(world, session)
        assert there(world) == [session.id]


async def test_with_force_it_is_aborted_and_cleared_first_and_who_waits_has_the_result() -> None:
    world = World()
    results: dict[str, Any] = {}
    async with world.run():
        session = await world.session(name="api")
        sent = await begin(world, session)
        waits = await followup(session, "next")

        async def wait(id: str) -> None:
            try:
                results[id] = (await session.wait_message(id))["outcome"]
            except DshError as error:
                results[id] = error

        log: list[str] = []
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        disk.before(
            lambda name, path: log.extend(world.types(session)) if name == "rename" and not log else None
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, sent["message"])
            nursery.start_soon(wait, waits["message"])
            await trio.testing.wait_all_tasks_blocked()
            await remove(world, session, force=True)
        assert log[-1] == "turn/end"
        assert {"abort/requested", "inbox/spliced"} <= set(log)
        assert results == {sent["message"]: "aborted", waits["message"]: "cleared"}
        assert there(world) == []
        with pytest.raises(NotFound, match="api was removed"):
            await followup(session, "too late")
        with pytest.raises(NotFound):
            await world.registry.get(session.id)


async def test_who_waits_for_rest_is_told_that_it_is_gone() -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api")
        world.gate.opened.set()
        async with trio.open_nursery() as nursery:
            told: list[DshError] = []

            async def wait() -> None:
                try:
                    await session.next_change()
                    await session.next_change()
                except NotFound as error:
                    told.append(error)

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await remove(world, session)
        assert [error.message for error in told] == ["session api was removed."]


async def test_a_send_that_comes_while_it_is_removed_is_refused_or_keeps_it() -> None:
    """Whatever the interleaving: never acknowledged and gone."""
    for steps in range(12):
        world = World()
        async with world.run():
            session = await world.session(name="api")
            world.script = [call("gate")]
            acknowledged: list[str] = []

            async def send(session: Session = session, into: list[str] = acknowledged) -> None:
                with contextlib.suppress(NotFound):
                    into.append((await followup(session, "late"))["message"])

            async def rm(world: World = world, session: Session = session, steps: int = steps) -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                with contextlib.suppress(Conflict):
                    await remove(world, session)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                nursery.start_soon(rm)
            assert bool(acknowledged) == (there(world) == [session.id])


async def test_it_is_there_again_if_the_disk_does_not_let_it_go() -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api")
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        disk.fail("rename", errno.EIO)
        with pytest.raises(DshError, match="Input/output"):
            await remove(world, session)
        assert [row.name for row in await world.registry.rows()] == ["api"]
        again = await world.again(session)
        await settled(again, (await followup(again, "still here"))["message"])
        await remove(world, session)
        assert there(world) == []


# --- what can't be read ----------------------------------------------------------------------------


async def test_a_damaged_session_and_a_directory_without_a_log_are_shown_and_removed() -> None:
    world = World()
    async with world.run():
        damaged, missing, unreadable = [(await world.session()).id for _ in range(3)]
    path = world.store.log_path(damaged)
    world.disk.write_synced(path, b"x" * 100 + world.disk.read_bytes(path))
    world.disk.unlink_synced(world.store.log_path(missing))
    again = world.crash()
    async with again.run():
        views = {view["id"]: view for view in await again.registry.views(True)}
        assert [views[id]["state"] for id in (damaged, missing)] == ["damaged", "damaged"]
        assert views[missing]["name"] == missing
        session = await again.registry.get(missing)
        assert session.show()["state"] == "damaged"
        with pytest.raises(Damaged, match="is missing"):
            await followup(session, "anything")
        disk = again.disk
        assert isinstance(disk, MemoryDisk)
        disk.fail("open", errno.EIO, path=f"{unreadable}/log.jsonl", times=99)
        for id in (damaged, missing, unreadable):
            assert (await remove(again, id))["session"] == id
        assert there(again) == []
        assert await again.registry.rows() == []
        with pytest.raises(NotFound):
            await remove(again, missing)


async def test_a_session_that_waits_for_room_is_removed_by_force_though_nothing_can_be_recorded() -> None:
    world = World()
    async with world.run():
        session = await world.session()
        await begin(world, session)
    again = world.crash()
    disk = again.disk
    assert isinstance(disk, MemoryDisk)
    disk.limit(free=0)
    async with again.run():
        session = await again.registry.get(session.id)
        await until_waits(session)
        with pytest.raises(Conflict, match="runs turn 1"):
            await remove(again, session)
        await remove(again, session, force=True)
        assert there(again) == []


async def until_waits(session: Session) -> None:
    with trio.fail_after(5):
        while session.activity.waits is None:
            await trio.lowlevel.checkpoint()


async def test_a_faulted_session_is_removed() -> None:
    world = World()
    async with world.run():
        session = await world.session()
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        disk.fail("fdatasync", errno.EIO)
        with pytest.raises(DshError):
            await followup(session, "lost")
        await until(session, lambda: session.broken)
        await remove(world, session)
        assert there(world) == []


async def test_a_session_whose_directory_was_taken_away_is_not_reopened_but_removed() -> None:
    world = World()
    async with world.run():
        session = await world.session()
        memory(world).remove_tree(world.store.session_dir(session.id))
        with pytest.raises(DshError):
            await followup(session, "lost")
        await until(session, lambda: session.broken)
        with pytest.raises(Faulted, match="was taken away") as refused:
            await world.registry.reopen(session, ME)
        assert refused.value.hint == f"dshctl rm {session.id}"
        await remove(world, session)
        assert await world.registry.views(True) == []
        with pytest.raises(NotFound):
            await remove(world, session)


STEPS = range(40)  # of the scheduler; more than anything here takes


async def steps_later(steps: int, act: Callable[[], Awaitable[Any]], into: list[Any]) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    try:
        into.append(await act())
    except DshError as error:
        into.append(error)


async def slowly() -> None:
    for _ in range(4):
        await trio.lowlevel.checkpoint()


async def closed_idle(world: World, session: Session) -> dict[str, Any]:
    """Remove it; its log's file must be closed while nothing is on its way to it."""
    ledger, close = session.ledger, Loader.let_go
    assert ledger is not None

    def let_go(loader: Loader, going: Session, why: DshError | None = None) -> None:
        assert ledger.idle
        close(loader, going, why)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loader, "let_go", let_go)
        return await remove(world, session, force=True)


def bugs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]


async def test_while_its_disk_fails_it_is_removed_when_what_it_writes_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for steps in STEPS:
        world, told, gone = World(), list[Any](), list[Any]()
        async with world.run():
            session = await world.session(name="api")
            memory(world).fail("fdatasync", errno.EIO)
            memory(world).pause = slowly
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    for text in ("one", "two"):
                        nursery.start_soon(steps_later, 0, partial(followup, session, text), told)
                    nursery.start_soon(steps_later, 2, partial(followup, session, "three"), told)
                    nursery.start_soon(steps_later, steps, partial(closed_idle, world, session), gone)
            assert {type(answer) for answer in told} <= {Faulted, NotFound}
            assert [answer["type"] for answer in gone] == ["removed"]
            assert there(world) == []
        assert bugs(caplog) == [], steps


async def test_on_a_full_disk_it_is_removed_when_what_others_asked_is_refused(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    for steps in STEPS:
        world, told, gone = World(), list[Any](), list[Any]()
        async with world.run():
            session = await world.session(name="api")
            await begin(world, session)
            world.store.reserve.release()
            memory(world).limit(free=0)
            memory(world).pause = slowly
            with trio.fail_after(14):
                async with trio.open_nursery() as nursery:
                    for later in range(0, 12, 2):
                        nursery.start_soon(steps_later, later, partial(inject, session, "no room"), told)
                    nursery.start_soon(steps_later, steps, partial(closed_idle, world, session), gone)
            assert {type(answer) for answer in told} <= {NoSpace, NotFound}
            assert [answer["type"] for answer in gone] == ["removed"]
            assert there(world) == []
        assert bugs(caplog) == [], steps


async def test_of_two_who_remove_it_one_is_told_that_it_is_gone() -> None:
    for steps in STEPS:
        world, told = World(), list[Any]()
        async with world.run():
            session = await world.session(name="api")
            await begin(world, session)
            rm = partial(remove, world, session, force=True)
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(steps_later, 0, rm, told)
                    nursery.start_soon(steps_later, steps, rm, told)
                    nursery.start_soon(steps_later, steps, partial(world.again, session), [])
            assert sorted(type(answer).__name__ for answer in told) == ["NotFound", "dict"]
            assert there(world) == []


# --- by themselves ---------------------------------------------------------------------------------

DAY = 86_400_000


def keeping(seconds: float) -> Config:
    config = Config()
    return attrs.evolve(config, sessions=attrs.evolve(config.sessions, keep_run=seconds))


async def test_runs_that_are_over_for_long_are_removed_and_nothing_else(autojump_clock: object) -> None:
    world = World(config=keeping(30 * 86_400), upkeep=Upkeep())
    async with world.run():
        old = await world.session(run=True, text="old")
        await until(old, lambda: old.state.closed)
        kept = await world.session(run=True, text="kept")
        await until(kept, lambda: kept.state.closed)
        plain = await world.session(name="plain")
        await settled(plain, (await followup(plain, "work"))["message"])
        await plain.close(False, ME)
        open_run = await world.session(run=True)
        world.clock_offset += 29 * DAY
        await settled(kept, (await followup(kept, "again"))["message"])
        await until(kept, lambda: kept.state.closed)
        await trio.sleep(2 * removing.LOOK_S)
        assert set(there(world)) == {old.id, kept.id, plain.id, open_run.id}
        world.clock_offset += 2 * DAY
        await trio.sleep(2 * removing.LOOK_S)
        assert set(there(world)) == {kept.id, plain.id, open_run.id}
        assert old.id not in {row.id for row in await world.registry.rows()}


async def test_what_is_kept_for_seconds_is_looked_at_in_seconds_and_so_is_what_is_kept_for_less_by_now(
    autojump_clock: object,
) -> None:
    world = World(config=keeping(30 * 86_400), upkeep=Upkeep())
    async with world.run():

        async def over() -> str:
            run = await world.session(run=True, text="run")
            await until(run, lambda: run.state.closed)
            return run.id

        first = await over()
        await trio.sleep(2 * removing.FIRST_LOOK_S)
        assert there(world) == [first]
        world.config = keeping(2)
        world.clock_offset += 5000
        await trio.sleep(removing.RELOADED_S + 1)
        assert there(world) == []
        await over()
        world.clock_offset += 5000
        await trio.sleep(1.5)
        assert there(world) == []


@pytest.mark.parametrize("days", [0, 100])
async def test_runs_are_kept_for_ever_or_as_long_as_is_said(autojump_clock: object, days: int) -> None:
    world = World(config=keeping(days * 86_400), upkeep=Upkeep())
    async with world.run():
        run = await world.session(run=True, text="old")
        await until(run, lambda: run.state.closed)
        world.clock_offset += 99 * DAY
        await trio.sleep(2 * removing.LOOK_S)
        assert there(world) == [run.id]


# --- copies ----------------------------------------------------------------------------------------


def copied(world: World, id: str, name: str) -> None:
    disk, source, target = world.disk, world.store.session_dir(id), world.store.session_dir(name)
    disk.create_dir_synced(target)
    for file in disk.listdir(source):
        if not disk.stat(source / file).is_dir:
            disk.write_synced(target / file, disk.read_bytes(source / file))
    disk.sync_dir(target)


@pytest.mark.parametrize("loaded", [False, True])
async def test_a_copy_under_another_name_is_shown_by_it_and_never_driven(loaded: bool) -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api", implicit=True)
        world.script = [say("one")]
        await settled(session, (await followup(session, "first"))["message"])
        await followup(session, "waits", hold=True)
        id = session.id
    copied(world, id, "s0000000")
    copied(world, id, f"{id}-old")
    again = world.crash()
    async with again.run():
        names = ["s0000000", f"{id}-old"]
        if loaded:
            for name in names:
                assert (await again.registry.get(name)).show()["state"] == "damaged"
        views = {view["id"]: view for view in await again.registry.views(True)}
        for name in names:
            assert (views[name]["name"], views[name]["state"]) == (name, "damaged")
            assert not views[name]["implicit"]
            assert views[name]["needs"][0]["hint"] == f"dshctl export {name} | dshctl import --as-new -"
            report = await again.registry.fsck(name)
            assert (report["name"], report["ok"]) == (name, False)
        assert await again.registry.resolve("api", None) == id
        assert await again.registry.resolve(None, "/") == id
        for name in names:
            copy = await again.registry.get(name)
            with pytest.raises(Damaged, match=f"{name} holds a copy of session {id}") as refused:
                await followup(copy, "anything")
            assert refused.value.hint == f"dshctl export {name} | dshctl import --as-new -"
        original = await again.registry.get(id)
        assert original.usable
        await settled(original, (await followup(original, "goes on"))["message"])
        for name in names:
            await remove(again, name)
        assert there(again) == [id]


async def test_a_copy_put_beside_its_original_while_the_daemon_runs_is_found() -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api")
        copied(world, session.id, f"{session.id}-copy")
        name = await world.registry.resolve(f"{session.id}-copy", None)
        assert (await world.registry.get(name)).show()["state"] == "damaged"
        for nothing in ("nosuch", "../x"):
            with pytest.raises(NotFound):
                await world.registry.resolve(nothing, None)
        await remove(world, name)
        assert there(world) == [session.id]


async def test_a_copy_taken_before_each_disk_call_opens_with_what_was_acknowledged_by_then() -> None:
    world = World()
    disk = world.disk
    assert isinstance(disk, MemoryDisk)
    async with world.run():
        session = await world.session(name="api")
        copies: list[tuple[MemoryDisk, list[str]]] = []
        acknowledged: list[str] = []
        disk.before(lambda name, path: copies.append((disk.crash(Everything()), list(acknowledged))))
        world.script = [call("quick:a"), say("one"), say("two")]
        for text in ("first", "second"):
            acknowledged.append((await followup(session, text))["message"])
            await settled(session, acknowledged[-1])
        taken = copies[:]
    assert len(taken) > 20
    for copy, ids in taken:
        directory = world.store.session_dir(session.id)
        files = {name: copy.read_bytes(directory / name) for name in copy.listdir(directory)
                 if not copy.stat(directory / name).is_dir}  # fmt: skip
        fresh = World()
        fresh.store.prepare()
        fresh.disk.create_dir_synced(directory)
        for name, content in files.items():
            fresh.disk.write_synced(directory / name, content)
        async with fresh.run():
            found = await fresh.registry.get(session.id)
            assert found.usable
            assert all(id in found.state.receipts for id in ids)
            assert (await found.wait_idle())["exit"] == 0
