"""One notice for one cause, and nobody waits for it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dshd.hooks.attention import AT_ONCE, MOST_WAITING, SHARED_S, Attention, Notice
from dshd.hooks.causes import full, notices
from dshd.hooks.payload import About
from dshd.log.codec import Event
from dshd.log.memory import Everything, MemoryDisk
from dshd.model.errors import ModelError
from dshd.session.fold.state import Parked, State
from tests.session.rig import World, call, followup, settled


def notice(cause: str, session: str = "s1", again_after: float = math.inf) -> Notice:
    return Notice(
        kind="parked", cause=cause, text=cause, about=About(session=session), again_after=again_after
    )


class Told:
    """Takes notices; a closed one keeps them waiting."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self.open = trio.Event()

    async def __call__(self, notice: Notice) -> None:
        self.causes.append(notice.cause)
        await self.open.wait()


@asynccontextmanager
async def attention(told: Told) -> AsyncIterator[Attention]:
    async with trio.open_nursery() as nursery:
        made = Attention(told)
        made.begin(nursery.start_soon)
        yield made
        nursery.cancel_scope.cancel()


async def test_a_cause_is_told_once_and_another_sessions_too() -> None:
    told = Told()
    told.open.set()
    async with attention(told) as attend:
        assert attend(notice("turn 1"))
        assert not attend(notice("turn 1"))
        assert attend(notice("turn 1", "s2"))
        await wait_all_tasks_blocked()
    assert told.causes == ["turn 1", "turn 1"]


async def test_a_cause_that_many_sessions_share_is_told_once_in_a_while(mock_clock: MockClock) -> None:
    told = Told()
    told.open.set()
    async with attention(told) as attend:
        shared = [notice("credential", session, SHARED_S) for session in ("s1", "s2")]
        assert [attend(one) for one in shared] == [True, False]
        mock_clock.jump(SHARED_S + 1)
        assert attend(shared[1])


async def test_who_calls_never_waits_and_what_is_too_much_is_dropped() -> None:
    told = Told()
    async with attention(told) as attend:
        given = [attend(notice(f"turn {n}")) for n in range(MOST_WAITING + 20)]
        await wait_all_tasks_blocked()
        assert given == [True] * MOST_WAITING + [False] * 20
        assert len(told.causes) == AT_ONCE


async def test_what_is_found_before_the_daemon_is_there_is_told_then() -> None:
    told = Told()
    told.open.set()
    made = Attention(told)
    made(notice("turn 1"))
    async with trio.open_nursery() as nursery:
        made.begin(nursery.start_soon)
    assert told.causes == ["turn 1"]


def test_without_anybody_to_tell_nothing_is_kept() -> None:
    assert not Attention()(notice("turn 1"))


# --- causes


def found(type: str, data: dict[str, Any], **state: Any) -> list[tuple[str, str]]:
    event = Event(7, 0, type, data)
    return [(n.kind, n.text) for n in notices(State(settings={"name": "api"}, **state), [event])]


def test_what_of_an_end_needs_a_person() -> None:
    ends: dict[str, dict[str, Any]] = {
        "budget": {"reason": "budget", "cause": "turn_steps"},
        "credential": {"reason": "error", "error": {"code": "AUTH", "message": "bad key"}},
        "patience": {"reason": "error", "error": {"code": "RATE_LIMIT", "message": "slow down"}},
        "parked": {"reason": "error", "error": {"code": "PLUGIN", "message": "plugin x failed"}},
        "disk": {"reason": "error", "error": {"code": "STORAGE", "message": "the disk failed"}},
    }
    for kind, end in ends.items():
        assert [kind for kind, _ in found("turn/end", {"turn": 1, **end})] == [kind]
    for reason in ("completed", "aborted", "interrupted", "blocked", "max-tokens"):
        assert found("turn/end", {"turn": 1, "reason": reason}) == []


def test_a_crash_loop_is_told_by_the_end_that_makes_it_one() -> None:
    end = {"turn": 3, "reason": "interrupted", "recovery": True}
    assert found("turn/end", end, parked=Parked("crash-loop", None, 0, 7))[0][0] == "parked"
    assert found("turn/end", end, parked=Parked("crash-loop", None, 0, 3)) == []


def test_a_question_is_told() -> None:
    asked = {"id": "a1", "tool": "bash", "what": "git push"}
    text = "api asks for bash: git push (dshctl allow a1, or dshctl deny a1)"
    assert found("approval/asked", asked) == [("approval", text)]


def test_a_schedule_that_could_not_be_sent_is_told_and_one_that_was_skipped_is_not() -> None:
    refused = {"id": "c1", "due": 0, "key": "c1@0", "next": None, "skipped": "refused", "detail": "no /x"}
    assert found("schedule/fired", refused) == [("parked", "schedule c1 was refused: no /x")]
    assert found("schedule/fired", {**refused, "skipped": "overlap"}) == []


def test_a_full_disk_is_the_daemons_and_one_cause() -> None:
    assert full() == full()
    assert full().about.session == ""


# --- found by a daemon at work


async def test_a_session_that_stops_for_an_error_is_told_once_and_not_again_by_the_next_daemon() -> None:
    told = Told()
    told.open.set()
    world = World()
    world.attention = Attention(told)
    async with world.run():
        world.script = [ModelError("INVALID_REQUEST", "no")]
        session = await world.session(name="api")
        await settled(session, (await followup(session, "work"))["message"])
        await wait_all_tasks_blocked()
        assert told.causes == ["turn 1"]
    again = world.crash(Everything())
    again.attention = Attention(told)
    async with again.run():
        assert (await again.again(session)).state.parked is not None
        await wait_all_tasks_blocked()
    assert told.causes == ["turn 1"]


async def test_a_log_that_is_damaged_is_told_when_it_is_found() -> None:
    told = Told()
    told.open.set()
    world = World()
    async with world.run():
        session = await world.session(name="api")
        await settled(session, (await followup(session, "work"))["message"])
    world = world.crash(Everything())
    world.attention = Attention(told)
    path = world.store.log_path(session.id)
    assert isinstance(world.disk, MemoryDisk)
    world.disk.poke(path, world.disk.peek(path).replace(b'"turn":1', b'"turn":7', 1))
    async with world.run():
        assert (await world.again(session)).word == "damaged"
        await wait_all_tasks_blocked()
    assert told.causes == ["damaged"]


async def test_a_disk_that_is_full_is_told_once_for_all_sessions(autojump_clock: MockClock) -> None:
    told = Told()
    told.open.set()
    world = World()
    world.attention = Attention(told)
    async with world.run():
        assert isinstance(world.disk, MemoryDisk)
        world.script = [call("gate"), call("gate")]
        sessions = [await world.session() for _ in range(2)]
        for session in sessions:
            await followup(session, "work")
        await world.gate.began.wait()
        await trio.sleep(0.1)
        world.store.reserve.release()
        world.disk.limit(free=0)
        world.gate.opened.set()
        await trio.sleep(30)
        world.disk.limit()
        await trio.sleep(30)
    assert told.causes == ["disk"]
