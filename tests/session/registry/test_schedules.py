"""Schedules on a mock clock: each instant at most once, none of them lost, and all of it told."""

from __future__ import annotations

import errno
import io
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import trio
from trio.testing import MockClock

from dshd import wire
from dshd.errors import Conflict, Denied, DshError, Invalid, NotFound
from dshd.log.memory import MemoryDisk
from dshd.session.deciding import scheduling, when
from dshd.session.deciding.firing import GRACE_MS
from dshd.session.fold.schedules import HOME
from dshd.session.fold.who import Peer
from dshd.session.owner.board import LOOK_S as BOARD_LOOK_S
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, settled

HOUR, TEN = 3600.0, 600.0
HOUR_MS = 3_600_000
Json = dict[str, Any]


async def add(world: World, session: Session | None, typed: str = "every 1h", **more: Any) -> Json:
    text = more.pop("text", "triage")
    params: Json = {"text": text, "zone": "Europe/Berlin", "typed": typed, **more}
    kind, _, rest = typed.partition(" ")
    if kind == "every":
        params["every"] = wire.parse_duration(rest)
    elif kind == "at":
        params["at"] = int(rest)
    else:
        params["cron"] = typed
    return await world.registry.schedules.add(session, wire.ScheduleAddParams(**params), ME)


def run(**more: Any) -> wire.CreateParams:
    return wire.CreateParams(dir="/", run=True, mode="full", **more)


async def fired(world: World, id: str) -> list[Json]:
    return list((await world.registry.schedules.log(id))["firings"])


def sends(world: World, session: Session | str) -> list[Json]:
    """Messages that schedules sent, as they stand in the log."""
    spliced = [e.data for e in world.events(session) if e.type == "inbox/spliced"]
    came = [
        m
        for data in spliced
        if data["cause"] in ("send", "supersede")
        for op in data["ops"]
        for m in op["insert"]
    ]
    return [m for m in came if m["source"]["kind"] == "schedule"]


async def test_what_is_scheduled_is_sent_when_it_is_due_and_told(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session(name="api")
        start = world.now()
        added = await add(world, session, "every 2h")
        assert (added["id"], added["next_at"], added["state"]) == ("c1", start + 2 * HOUR_MS, "active")
        assert (added["catch_up"], added["overlap"], added["zone"]) == (False, "skip", "Europe/Berlin")
        await trio.sleep(5 * HOUR)
        (one, two) = await fired(world, "c1")
        assert [one["due_at"], two["due_at"]] == [start + 2 * HOUR_MS, start + 4 * HOUR_MS]
        assert (one["outcome"], two["outcome"], one["late_ms"]) == ("completed", "completed", 0)
        sent = sends(world, session)
        assert [m["key"] for m in sent] == [f"c1@{one['due_at'] // 1000}", f"c1@{two['due_at'] // 1000}"]
        assert sent[0]["source"] == {"kind": "schedule", "via": "c1", "due": one["due_at"]}
        check_log(world.events(session), quiet=True)
        check_memory(session, world.events(session))


async def test_ids_count_up_in_the_state_directory_and_are_never_given_twice(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.run():
        a, b = await world.session(), await world.session()
        ids = [(await add(world, one, run=run() if one is None else None))["id"] for one in (a, b, None, a)]
        assert ids == ["c1", "c2", "c3", "c4"]
        await world.registry.schedules.change("rm", "c4", ME)
    async with world.crash().run() as world:
        assert (await add(world, await world.again(a)))["id"] == "c5"
        assert [row["id"] for row in await world.registry.schedules.rows(None)] == ["c1", "c2", "c3", "c5"]
        assert [row["id"] for row in await world.registry.schedules.rows(a.id)] == ["c1", "c5"]
        with pytest.raises(NotFound, match="c4 was removed"):
            await world.registry.schedules.log("c4")
        with pytest.raises(NotFound, match="no schedule c9"):
            await world.registry.schedules.log("c9")


async def test_a_session_that_left_memory_is_fired_in_time(autojump_clock: MockClock) -> None:
    async with World(upkeep=Upkeep()).run() as world:
        session = await world.session()
        await add(world, session, "every 2h")
        await trio.sleep(HOUR)
        assert not world.registry.loaded
        await trio.sleep(HOUR + 60)
        assert not world.registry.loaded
        assert [one["outcome"] for one in await fired(world, "c1")] == ["completed"]


async def test_a_run_is_a_new_session_each_time(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        await add(world, None, "every 1h", run=run(name="nightly"))
        await trio.sleep(2.5 * HOUR)
        one, two = await fired(world, "c1")
        assert one["session"] != two["session"]
        assert (one["outcome"], two["outcome"]) == ("completed", "completed")
        views = await world.registry.views(True)
        assert {view["id"]: view["state"] for view in views} == {
            one["session"]: "closed",
            two["session"]: "closed",
        }
        assert {view["name"] for view in views} == {"nightly"}
        (sent,) = sends(world, one["session"])
        assert (sent["source"]["kind"], sent["source"]["via"]) == ("schedule", "c1")
        assert HOME not in {row.id for row in await world.registry.rows()}
        assert (await world.registry.fsck(HOME))["ok"]


async def test_how_a_run_ended_is_told_though_a_crash_kept_it_from_being_noted(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.run():
        await add(world, None, "every 1h", run=run())
        await trio.sleep(1.1 * HOUR)
        assert [one["outcome"] for one in await fired(world, "c1")] == ["completed"]
        types = world.types(HOME)
    disk, path = world.disk, world.store.log_path(HOME)
    assert isinstance(disk, MemoryDisk)
    lines = disk.read_bytes(path).splitlines(keepends=True)
    disk.poke(path, b"".join(lines[: types.index("schedule/ended")]))
    async with world.crash().run() as world:
        assert [one["outcome"] for one in await fired(world, "c1")] == ["completed"]


async def test_the_log_of_schedules_is_nobodys_session(autojump_clock: MockClock) -> None:
    world = World()
    async with world.run():
        session = await world.session()
        await add(world, session)
        await add(world, None, run=run())
        assert HOME in world.registry.loaded
        for ref in (HOME, HOME[:4]):
            with pytest.raises(NotFound):
                await world.registry.resolve(ref, None)
            assert world.registry.at_hand(ref) is None
        assert [view["id"] for view in await world.registry.views(True)] == [session.id]
    world.disk.remove_tree(world.store.session_dir(HOME))
    async with World(world.disk).run() as world:  # lost, it is made anew, and no id is given twice
        assert (await add(world, await world.again(session)))["id"] == "c3"


@pytest.mark.parametrize("kind", ["session", "run"])
async def test_no_id_is_given_twice_though_the_numbers_are_lost(kind: str, autojump_clock: MockClock) -> None:
    world = World()
    async with world.run():
        session = await world.session()
        more: Json = {"run": run()} if kind == "run" else {}
        await add(world, None if more else session, **more)
        await world.registry.schedules.change("rm", "c1", ME)
    world.disk.unlink(world.store.state / "ids.json")
    async with World(world.disk).run() as world:
        with pytest.raises(NotFound, match="was removed"):
            await world.registry.schedules.log("c1")
        assert (await add(world, await world.again(session)))["id"] == "c2"


# --- at most once, and never lost


@pytest.mark.parametrize("kind", ["session", "run"])
async def test_killed_anywhere_in_a_firing_it_is_sent_once(kind: str, autojump_clock: MockClock) -> None:
    """The disk keeps each prefix of what was written while it fired."""
    for stop in range(1, 8):
        world = World()
        async with world.run():
            session = await world.session() if kind == "session" else None
            due = (await add(world, session, run=None if session else run()))["next_at"]
            await trio.sleep(HOUR - 1)
            assert isinstance(world.disk, MemoryDisk)
            with trio.move_on_after(2):
                await after_writes(world, stop)
        async with world.crash().run() as world:
            world.clock_offset = due + 10_000 - 1_796_040_000_000 - round(trio.current_time() * 1000) % 10**9
            await trio.sleep(BOARD_LOOK_S + 5)
            (one,) = await fired(world, "c1")
            assert (one["due_at"], one["skipped"]) == (due, None)
            where = one["session"] or (session and session.id)
            assert len(sends(world, str(where))) == 1
            if kind == "run":
                assert len(await world.registry.views(True)) == 1


async def after_writes(world: World, count: int) -> None:
    """Returns after so many syncs."""
    disk = world.disk
    done = trio.Event()
    seen = 0
    real = disk.calls.fdatasync

    def fdatasync(fd: int) -> None:
        nonlocal seen
        real(fd)
        seen += 1
        if seen >= count:
            done.set()

    disk.calls.fdatasync = fdatasync  # type: ignore[method-assign]
    await done.wait()


async def test_what_was_acknowledged_is_there_after_a_power_cut(autojump_clock: MockClock) -> None:
    world = World()
    async with world.run():
        session = await world.session()
        await add(world, session, "0 2 * * *")
        await add(world, None, "at " + str(world.now() + 10 * HOUR_MS), run=run())
        await world.registry.schedules.change("pause", "c1", ME)
    async with world.crash().run() as world:
        rows = {row["id"]: row["state"] for row in await world.registry.schedules.rows(None)}
        assert rows == {"c1": "paused", "c2": "active"}
        assert world.store.marked() == [HOME, session.id]


async def test_a_message_that_is_on_disk_without_what_became_of_the_instant_is_not_sent_again(
    autojump_clock: MockClock,
) -> None:
    """A power cut between the two lines of one batch; and the daemon comes back after the next instant."""
    world = World()
    async with world.run():
        session = await world.session()
        due = (await add(world, session, "every 1h", catch_up=True))["next_at"]
        await trio.sleep(HOUR + 60)
        types = world.types(session)
    path, disk = world.store.log_path(session.id), world.disk
    assert isinstance(disk, MemoryDisk)
    lines = disk.read_bytes(path).splitlines(keepends=True)
    for cut in (types.index("schedule/fired") - 1, types.index("schedule/fired"), len(lines)):
        disk.poke(path, b"".join(lines[:cut]))
        again = World(disk.crash())
        async with again.run():
            again.clock_offset = due + 2 * HOUR_MS + 1 - 1_796_040_000_000 - round(trio.current_time() * 1000)
            await trio.sleep(BOARD_LOOK_S + 1)
            firings = await fired(again, "c1")
            assert firings[-1]["due_at"] == due + 2 * HOUR_MS
            told = [one["due_at"] for one in firings if one["message"]]
            assert [m["source"]["due"] for m in sends(again, session)] == told
    assert len(told) == 2


# --- the daemon was not there


async def down(world: World, hours: float) -> World:
    again = world.crash()
    again.clock_offset += round(hours * HOUR_MS)
    return again


@pytest.mark.parametrize("to", ["session", "run"])
@pytest.mark.parametrize(
    ("typed", "catch_up", "sent"),
    [
        ("every 1h", None, False),
        ("every 1h", True, True),
        ("0 3 * * *", None, True),
        ("0 3 * * *", False, False),
        ("at", None, True),
    ],
)
async def test_what_came_due_while_nobody_was_there(
    typed: str, catch_up: bool | None, sent: bool, to: str, autojump_clock: MockClock
) -> None:
    world = World()
    async with world.run():
        session = await world.session() if to == "session" else None
        words = typed if typed != "at" else f"at {world.now() + HOUR_MS}"
        await add(world, session, words, catch_up=catch_up, run=None if session else run())
    async with (await down(world, 100.5)).run() as world:
        await trio.sleep(BOARD_LOOK_S)
        one = (await fired(world, "c1"))[0]
        missed = {"every 1h": 99, "0 3 * * *": 4, "at": 0}[typed]
        assert one["missed"] in (missed, missed - 1)  # the hour at which the test begins
        assert one["late_ms"] > GRACE_MS
        assert (one["message"] is not None, one["skipped"]) == (sent, None if sent else "missed")
        if sent:
            (message,) = sends(world, str(one["session"] or (session and session.id)))
            assert message["source"]["late"] == one["late_ms"]


async def test_a_short_absence_is_no_reason_to_skip(autojump_clock: MockClock) -> None:
    world = World()
    async with world.run():
        await add(world, await world.session(), "every 1h")
        await trio.sleep(HOUR - 10)
    async with world.crash().run() as world:
        world.clock_offset += 30_000
        await trio.sleep(BOARD_LOOK_S)
        assert [one["skipped"] for one in await fired(world, "c1")] == [None]


# --- clocks


@pytest.mark.parametrize("jump_h", [-30 * 24, -3, -0.1, 0.1, 3])
async def test_a_clock_that_jumps_repeats_no_instant_and_stops_none(
    jump_h: float, autojump_clock: MockClock
) -> None:
    async with World().run() as world:
        session = await world.session()
        await add(world, session, "every 1h", catch_up=True)
        await trio.sleep(1.5 * HOUR)
        world.clock_offset += round(jump_h * HOUR_MS)
        await trio.sleep(2 * HOUR + max(0, -jump_h if jump_h > -24 else 0) * HOUR)
        dues = [one["due_at"] for one in await fired(world, "c1")]
        assert len(dues) == len(set(dues)) >= 3
        assert len(sends(world, session)) == len(dues)


async def test_a_clock_that_was_wrong_for_a_moment_does_not_silence_it_for_years(
    autojump_clock: MockClock,
) -> None:
    async with World().run() as world:
        await add(world, await world.session(), "every 1h")
        years = 10 * 365 * 24 * HOUR_MS + HOUR_MS // 2
        world.clock_offset += years
        await trio.sleep(BOARD_LOOK_S + 1)
        world.clock_offset -= years
        await trio.sleep(1.1 * HOUR)
        assert [one["skipped"] for one in await fired(world, "c1")] == ["missed", None]


@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25)])
async def test_a_nightly_one_is_sent_once_on_the_day_of_a_clock_change(
    day: tuple[int, int, int], autojump_clock: MockClock
) -> None:
    async with World().run() as world:
        session = await world.session()
        eve = datetime(*day, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() - HOUR
        world.clock_offset += round(eve * 1000) - world.now()
        await add(world, session, "30 2 * * *")
        await trio.sleep(6 * HOUR)
        assert len(sends(world, session)) == 1


# --- overlap


async def busy(world: World, overlap: str, tens: float) -> Session:
    session = await world.session()
    world.script = [call("gate")]
    await add(world, session, "every 10m", overlap=overlap)
    await trio.sleep(tens * TEN + 60)
    return session


async def test_while_the_last_one_runs_the_next_is_skipped_and_that_is_told(
    autojump_clock: MockClock,
) -> None:
    async with World().run() as world:
        session = await busy(world, "skip", 3)
        firings = await fired(world, "c1")
        assert [one["skipped"] for one in firings] == [None, "overlap", "overlap"]
        assert firings[1]["detail"] == f"{session.id}.1 still runs (turn 1)"
        world.gate.opened.set()
        await trio.sleep(TEN)
        assert (await fired(world, "c1"))[-1]["outcome"] == "completed"


async def test_queued_they_wait_in_line(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await busy(world, "queue", 3)
        assert [m.text for m in session.state.queues["next-turn"]] == ["triage", "triage"]


async def test_superseded_only_the_newest_waits(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await busy(world, "supersede", 4)
        assert session.state.pending == 1
        outcomes = [one["outcome"] for one in await fired(world, "c1")]
        assert outcomes == [None, "superseded", "superseded", None]


async def test_a_run_that_goes_on_keeps_the_next_from_beginning(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        await add(world, None, "every 10m", run=run())
        await trio.sleep(2 * TEN + 60)
        one, two = await fired(world, "c1")
        assert (one["state"], two["skipped"]) == ("running", "overlap")
        world.gate.opened.set()
        await trio.sleep(TEN)
        assert [f["outcome"] for f in await fired(world, "c1")] == ["completed", None, "completed"]


async def test_to_supersede_makes_no_sense_for_runs() -> None:
    async with World().run() as world:
        with pytest.raises(Invalid, match="supersede"):
            await add(world, None, overlap="supersede", run=run())


# --- refusals are told


async def test_a_full_inbox_refuses_and_that_is_told(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        world.config = wire_limited(world.config, 1)
        session = await world.session()
        await followup(session, "held", hold=True)
        await add(world, session, "every 1h")
        await trio.sleep(1.1 * HOUR)
        (one,) = await fired(world, "c1")
        assert (one["skipped"], one["code"]) == ("refused", "FULL")
        assert "the most it may" in one["detail"]
        summary = await world.registry.schedules.summary()
        assert [row["id"] for row in summary["refused"]] == ["c1"]


def wire_limited(config: Any, most: int) -> Any:
    import attrs

    return attrs.evolve(config, inbox=attrs.evolve(config.inbox, max_pending=most))


async def test_a_run_that_can_not_be_made_is_refused_and_told(
    autojump_clock: MockClock, tmp_path: Any
) -> None:
    async with World().run() as world:
        place = tmp_path / "gone"
        with pytest.raises(NotFound):
            await add(world, None, run=wire.CreateParams(dir=str(place), run=True))
        place.mkdir()
        await add(world, None, run=wire.CreateParams(dir=str(place), run=True))
        place.rmdir()
        await trio.sleep(1.1 * HOUR)
        (one,) = await fired(world, "c1")
        assert (one["skipped"], one["detail"]) == ("refused", f"no directory {place}")
        assert not await world.registry.views(True)
        place.mkdir()
        await trio.sleep(HOUR)
        assert (await fired(world, "c1"))[-1]["outcome"] == "completed"
        assert not (await world.registry.schedules.summary())["refused"]


# --- by hand


async def test_paused_nothing_is_due_and_resumed_nothing_is_made_up_for(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        await add(world, session, "every 1h")
        await add(world, session, f"at {world.now() + HOUR_MS}")
        for id in ("c1", "c2"):
            await world.registry.schedules.change("pause", id, ME)
        await trio.sleep(5.5 * HOUR)
        assert not sends(world, session)
        resumed = await world.registry.schedules.change("resume", "c1", ME)
        assert 0 < resumed["next_at"] - world.now() <= HOUR_MS
        await world.registry.schedules.change("resume", "c2", ME)
        await trio.sleep(60)
        assert [one["late_ms"] > GRACE_MS for one in await fired(world, "c2")] == [True]
        assert not await fired(world, "c1")


async def test_fired_by_hand_its_own_time_stays(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        due = (await add(world, session, "every 1h"))["next_at"]
        await add(world, None, "every 1h", run=run())
        for id in ("c1", "c2"):
            row = await world.registry.schedules.run(id, ME)
            assert (row["next_at"] - due < 1000, row["last"]["by"]["kind"]) == (True, "user")
        await trio.sleep(1.1 * HOUR)
        assert [len(await fired(world, id)) for id in ("c1", "c2")] == [2, 2]


async def test_one_that_was_to_fire_once_is_over_and_can_be_asked_about(autojump_clock: MockClock) -> None:
    async with World(upkeep=Upkeep()).run() as world:
        session = await world.session()
        await add(world, session, f"at {world.now() + HOUR_MS}")
        await trio.sleep(1.1 * HOUR)
        assert await world.registry.schedules.rows(None) == []
        assert (await world.registry.schedules.log("c1"))["state"] == "over"
        assert world.store.marked() == []
        with pytest.raises(Conflict, match="has fired"):
            await world.registry.schedules.change("pause", "c1", ME)


async def test_a_tool_adds_none() -> None:
    async with World().run() as world:
        session = await world.session()
        tool = Peer(uid=1000, kind="agent", session=session.id)
        params = wire.ScheduleAddParams(text="t", zone="UTC", typed="@daily", cron="@daily")
        with pytest.raises(Denied):
            await world.registry.schedules.add(session, params, tool)


# --- what becomes of the session


async def test_a_session_with_schedules_is_neither_closed_nor_removed_by_the_way(
    autojump_clock: MockClock,
) -> None:
    async with World().run() as world:
        session = await world.session(name="api")
        await add(world, session)
        with pytest.raises(Conflict, match=r"not closed: api has 1 schedule \(c1\)"):
            await session.close(False, ME)
        with pytest.raises(Conflict, match=r"not removed: api has 1 schedule \(c1\)"):
            await world.registry.delete(session.id, False, ME)
        await session.close(True, ME)
        assert await world.registry.schedules.rows(None) == []
        with pytest.raises(Conflict, match="is closed"):
            await add(world, session)
        other = await world.session()
        await add(world, other)
        await world.registry.delete(other.id, True, ME)
        assert await world.registry.schedules.rows(None) == []
        with pytest.raises(NotFound, match="c2 was removed"):
            await world.registry.schedules.log("c2")


async def test_a_fork_has_none_and_an_import_has_them_paused_under_new_ids(autojump_clock: MockClock) -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api")
        await add(world, session)
        await trio.sleep(1.1 * HOUR)
        fork = await world.registry.fork(session, wire.ForkParams(), ME)
        assert await world.registry.schedules.rows(fork["session"]) == []
        made = await world.registry.export(session.id)
        data = b""
        while piece := await made.next():
            data += piece
        params = wire.ImportParams(upload="u1", as_new=True)
        taken = await world.registry.take(io.BytesIO(data).read, params, ME)
        (row,) = await world.registry.schedules.rows(taken["session"])
        assert (row["id"], row["state"], row["paused"]["why"]) == ("c2", "paused", "import")
        assert row["last"]["message"] == f"{taken['session']}.1"
        await trio.sleep(5 * HOUR)
        assert len(await fired(world, "c2")) == 1
        await world.registry.schedules.change("resume", "c2", ME)
        copy = await world.registry.get(taken["session"])
        await copy.wake(wire.WakeParams(), ME)
        await trio.sleep(1.1 * HOUR)
        assert (await fired(world, "c2"))[-1]["outcome"] == "completed"
    async with world.crash().run() as world:
        rows = await world.registry.schedules.rows(None)
        assert sorted((row["id"], row["state"]) for row in rows) == [("c1", "active"), ("c2", "active")]


async def test_secrets_of_a_run_are_kept_beside_the_log(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        await add(world, None, run=run(env={"PATH": "/bin", "MY_TOKEN": "hush"}))
        assert b"hush" not in world.disk.read_bytes(world.store.log_path(HOME))
        await trio.sleep(1.1 * HOUR)
        (one,) = await fired(world, "c1")
        session = await world.registry.get(one["session"])
        assert world.registry.services.environment(session.state) == {"PATH": "/bin", "MY_TOKEN": "hush"}
        await world.registry.schedules.change("rm", "c1", ME)
        assert not world.disk.exists(world.store.session_dir(HOME) / "env-c1.json")


async def test_ten_thousand_sessions_cost_the_clock_nothing(autojump_clock: MockClock) -> None:
    """Nothing is loaded, and nothing waits, for those that have no schedule."""
    async with World().run() as world:
        for _ in range(20):
            await world.session()
        assert not any("Board" in str(task.name) for task in tasks())
        await add(world, await world.session())
        assert sum("Board" in str(task.name) for task in tasks()) == 1


def tasks() -> list[Any]:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found, waiting = [], [root]
    while waiting:
        task = waiting.pop()
        found.append(task)
        waiting.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return found


async def test_a_log_that_lacks_a_piece_keeps_what_can_be_known(autojump_clock: MockClock) -> None:
    """What speaks of a schedule that a gap has swallowed is passed over."""
    from dshd.log.codec import Event
    from dshd.session.fold.folding import apply
    from dshd.session.fold.state import State

    state = State(header={"id": "s0000001"}, gap=True)
    apply(state, Event(0, 0, "schedule/fired", {"id": "c1", "due": 1, "key": "c1@0", "next": None}))
    apply(state, Event(1, 0, "schedule/removed", {"ids": ["c1"], "by": {}}))
    assert (state.seq, state.schedules) == (1, {})


def test_a_longer_text_than_may_be_is_refused() -> None:
    wanted = scheduling.Wanted(when=when.every(60_000, 0, "UTC"), typed="every 1m", text="x" * 70_000)
    with pytest.raises(DshError, match="64 KiB"):
        wanted.check()


_ = settled


@pytest.mark.parametrize("call_that_fails", ["create", "write", "fsync", "rename"])
async def test_a_run_that_the_disk_refuses_is_made_a_minute_later(
    call_that_fails: str, autojump_clock: MockClock
) -> None:
    async with World().run() as world:
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        await add(world, None, f"at {world.now() + HOUR_MS}", run=run())
        await trio.sleep(HOUR - 1)
        disk.fail(call_that_fails, errno.EIO)
        await trio.sleep(200)
        (one,) = await fired(world, "c1")
        assert (one["skipped"], one["outcome"]) == (None, "completed")
