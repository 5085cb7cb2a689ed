"""Hooks of a turn's end: for every turn, once; twice if a crash came between."""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing

from dshd import wire
from dshd.config import Config
from dshd.hooks.answers import Ended
from dshd.hooks.ends import AGAIN_S, MOST_TRIES
from dshd.log.memory import Everything, MemoryDisk
from dshd.session.owner.session import Session
from tests.hooks.scripted import PASSES, Scripted, hook
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, say, settled, until


async def told(world: World, session: Session, turns: int) -> None:
    await until(session, lambda: session.state.turns.get(turns) is not None and not session.state.ends)
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)


def seen(hooks: Scripted) -> list[tuple[int, str, bool]]:
    return [(found["turn"], found["reason"], found["again"]) for found in hooks.asked("turn_end")]


class Hanging:
    """A hook that never ends until it is let go; ``began`` is set when it runs."""

    def __init__(self) -> None:
        self.began, self.opened = trio.Event(), trio.Event()

    async def __call__(self, found: Any) -> Ended:
        self.began.set()
        await self.opened.wait()
        return PASSES


async def test_each_turns_end_is_told_once_it_is_on_disk_and_in_order() -> None:
    on_disk: list[int] = []
    hooks = Scripted(hook("turn_end"))
    async with World(hooks=hooks).run() as world:
        session = await world.session()

        def program(found: Any) -> Ended:
            on_disk.append(sum(e.type == "turn/end" for e in world.events(session)))
            return PASSES

        hooks.programs["check"] = program
        await followup(session, "one")
        await told(world, session, 1)
        await followup(session, "two")
        await told(world, session, 2)
        assert seen(hooks) == [(1, "completed", False), (2, "completed", False)]
        assert on_disk == [1, 2]
        assert hooks.seen[0]["answer"] == "done"
        about = [e.type for e in world.events(session) if e.type.startswith(("hook/", "turn/end"))]
        assert about == ["hook/due", "turn/end", "hook/begun", "hook/ran", "hook/done"] * 2
        assert not session.state.active


async def test_a_turn_that_is_aborted_in_line_for_its_place_is_told_of_too() -> None:
    hooks, answers = Scripted(hook("turn_end"), check=lambda found: PASSES), trio.Event()

    async def slow() -> Any:
        await answers.wait()
        return say("done")

    config = Config()
    few = attrs.evolve(config, driver=attrs.evolve(config.driver, max_running=1))
    async with World(hooks=hooks, config=few).run() as world:
        world.script = [slow]
        first, second = await world.session(), await world.session()
        await followup(first, "one")
        await trio.testing.wait_all_tasks_blocked(0.01)
        await followup(second, "two")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert second.activity.waits == "place"
        assert (await second.abort(wire.AbortParams(), ME))["outcome"] == "aborted"
        await told(world, second, 1)
        assert seen(hooks) == [(1, "aborted", False)]
        answers.set()


async def test_the_next_turn_does_not_wait_for_a_hook_and_neither_does_the_result() -> None:
    hangs = Hanging()
    async with World(hooks=Scripted(hook("turn_end"), check=hangs)).run() as world:
        session = await world.session()
        for text in ("one", "two"):
            sent = await followup(session, text)
            assert (await settled(session, sent["message"]))["outcome"] == "completed"
        assert list(session.state.ends) == [1, 2]
        assert session.state.active, "the next start must know of it"
        hangs.opened.set()
        await told(world, session, 2)


async def test_an_end_that_recovery_wrote_is_told_too() -> None:
    hooks = Scripted(hook("turn_end"), check=lambda found: PASSES)
    async with World(hooks=hooks).run() as world:
        world.script = [call("gate")]
        session = await world.session()
        await followup(session, "work")
        with trio.fail_after(10):
            await world.gate.began.wait()
    async with world.crash().run() as world:
        await told(world, await world.again(session), 1)
    assert seen(hooks) == [(1, "interrupted", False)]


async def test_a_crash_while_it_runs_tells_it_once_more_and_says_so() -> None:
    hooks = Scripted(hook("turn_end"))
    world = World(hooks=hooks)
    for life in range(MOST_TRIES):
        hooks.programs["check"] = hangs = Hanging()
        async with world.run():
            if not life:
                session = await world.session()
                await followup(session, "work")
            with trio.fail_after(10):
                await hangs.began.wait()
        world = world.crash(Everything())
    hooks.programs["check"] = lambda found: PASSES
    async with world.run():
        await told(world, await world.again(session), 1)
    assert seen(hooks) == [(1, "completed", False), (1, "completed", True)]


async def test_without_hooks_nothing_is_owed_and_later_ones_hear_of_later_turns() -> None:
    hooks = Scripted(check=lambda found: PASSES)
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "one"))["message"])
        assert not any(type.startswith("hook/") for type in world.types(session))
        hooks.hooks.append(hook("turn_end"))
        await settled(session, (await followup(session, "two"))["message"])
        await told(world, session, 2)
    assert seen(hooks) == [(2, "completed", False)]


async def test_a_planned_stop_ends_a_hook_that_hangs_and_the_next_start_runs_it_again() -> None:
    hooks = Scripted(hook("turn_end"))
    hooks.programs["check"] = hangs = Hanging()
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        await followup(session, "work")
        with trio.fail_after(10):
            await hangs.began.wait()
            await world.registry.drain(0.01)
        assert not session.ends.working
    hooks.programs["check"] = lambda found: PASSES
    async with world.crash(Everything()).run() as world:
        await told(world, await world.again(session), 1)
    assert seen(hooks)[-1] == (1, "completed", True)


async def test_a_session_is_removed_when_it_has_been_told_or_at_once_by_force() -> None:
    for force in (False, True):
        hangs = Hanging()
        async with World(hooks=Scripted(hook("turn_end"), check=hangs)).run() as world:
            session = await world.session()
            await settled(session, (await followup(session, "work"))["message"])
            removed = trio.Event()

            async def remove(world: World, id: str, force: bool, removed: trio.Event) -> None:
                await world.registry.delete(id, force, ME)
                removed.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(remove, world, session.id, force, removed)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert removed.is_set() == force
                hangs.opened.set()
                with trio.fail_after(5):
                    await removed.wait()


async def test_what_a_full_disk_refused_is_told_when_there_is_room_though_nothing_else_happens(
    autojump_clock: Any,
) -> None:
    hooks = Scripted(hook("turn_end"))
    async with World(hooks=hooks).run() as world:
        session, disk = await world.session(), world.disk
        assert isinstance(disk, MemoryDisk)

        def program(found: Any) -> Ended:
            if not found["again"]:
                disk.limit(free=0)
            return PASSES

        hooks.programs["check"] = program
        await followup(session, "one")
        await until(session, lambda: bool(session.state.ends.get(1)))
        await trio.sleep(1)
        assert session.state.ends == {1: 1}
        disk.limit()
        await trio.sleep(AGAIN_S + 1)
        assert session.state.ends == {}
        assert seen(hooks) == [(1, "completed", False), (1, "completed", True)]
