"""A crash at any instant of a compaction, damage inside of one, and forks and exports after it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from dshd import wire
from dshd.log.codec import Event, decode
from dshd.log.memory import MemoryDisk
from dshd.model.errors import ModelError
from dshd.session.registry import requests
from tests import amount
from tests.driver.narrow import FULL, LONG, SUMMARY, Held, Narrow, ends, narrow, reasons, rests, talk
from tests.driver.test_waits import ended, waiting
from tests.session.invariants import check_acknowledged, check_log, check_memory
from tests.session.rig import ME, STATE, World, call, followup, say, settled, steer


async def film() -> tuple[str, bytes, list[str]]:
    """A session's log with three compactions: before a step and with a long result, with messages that come
    meanwhile; in maintenance; and one that fails. Its id, and the ids that were acknowledged."""
    said: list[str] = []
    async with narrow(World()).run() as world:
        session = await world.session()
        world.script = [call("prints:9000"), say("done")]
        said.append((await followup(session, "go"))["message"])
        await settled(session, said[-1])
        await talk(world, session, 2)
        held = Held(SUMMARY)
        world.script = [held, call("quick"), say("fine")]
        said.append((await followup(session, f"more: {LONG} {LONG} {LONG}"))["message"])
        await held.began.wait()
        said += [(await steer(session, f"said {n}"))["message"] for n in range(3)]
        held.go.set()
        await settled(session, said[-1])
        await talk(world, session, 1)
        world.script = [SUMMARY]
        assert (await session.compact(ME))["outcome"] == "done"
        await talk(world, session, 1)
        world.script = [say(" ")]
        assert (await session.compact(ME))["outcome"] == "failed"
        with trio.fail_after(10):
            await session.wait_idle()
        return session.id, world.disk.read_bytes(world.store.log_path(session.id)), said


def world_with(id: str, log: bytes) -> World:
    disk = MemoryDisk()
    directory = STATE / "sessions" / id
    disk.create_dir_synced(directory)
    disk.create_dir_synced(STATE / "active")
    disk.write_synced(directory / "log.jsonl", log)
    disk.sync_dir(directory)
    return narrow(World(disk))


def surface_of(events: list[Event]) -> list[int]:
    """The surface by a model of its own."""
    rows: list[int] = []
    for event in events:
        if isinstance(event.surface, dict):
            first, last = (rows.index(seq) for seq in event.surface["replace"])
            rows[first : last + 1] = [event.seq]
        elif event.surface == "append":
            rows.append(event.seq)
    return rows


def lines_of(log: bytes) -> list[bytes]:
    return log.splitlines(keepends=True)


async def test_at_any_line_and_inside_of_any_the_surface_is_before_or_after_and_nothing_is_lost() -> None:
    id, log, said = await film()
    lines = lines_of(log)
    types = [decode(line).type for line in lines]
    brackets = [n for n, type in enumerate(types) if type.startswith("compaction/")]
    near = {n + more for n in brackets for more in (0, 1)}
    assert types.count("compaction/end") == types.count("compaction/start") >= 3
    for n in range(brackets[0], brackets[-1] + 2) if amount.LONG else sorted(near):
        half = lines[n][: len(lines[n]) // 2] if n < len(lines) and n % 3 == 0 else b""
        there = [decode(line) for line in lines[:n]]
        async with world_with(id, b"".join(lines[:n]) + half).run() as world:
            session = await world.registry.get(id)
            await session.start()
            with trio.fail_after(10):
                await session.wait_idle()
            events = world.events(session)
            check_log(events, quiet=True)
            check_memory(session, events)
            assert session.state.compaction is None
            before = surface_of(there)
            assert surface_of(events[:n]) == before
            opened = [e.seq for e in session.state.surface if e.seq < n]
            assert set(opened) <= set(before)
            known = {e.data["ops"][0]["insert"][0]["id"] for e in there
                     if e.type == "inbox/spliced" and e.data["cause"] == "send"}  # fmt: skip
            check_acknowledged(session, [one for one in said if one in known])
            found = requests.check(world.disk, world.store.log_path(id), world.route.rebuild)
            assert found.problem is None


@pytest.mark.parametrize("which", ["user/message", "tool/result", "compaction/start", "compaction/end"])
async def test_a_repaired_log_that_lost_a_part_of_a_compaction_goes_on(which: str) -> None:
    id, log, _ = await film()
    lines = lines_of(log)
    at = next(n for n, line in enumerate(lines) if f'"type":"{which}"'.encode() in line and (
        b'"surface":{"replace"' in line or which.startswith("compaction/")))  # fmt: skip
    lines[at] = lines[at].replace(b'"data":{', b'"dat4":{', 1)
    async with world_with(id, b"".join(lines)).run() as world:
        report = await world.registry.repair(id, ME)
        assert report["ok"], report
        session = await world.registry.get(id)
        await session.reopen(ME)
        world.script = [say("goes on")] * 3
        result = await settled(session, (await followup(session, "still there?"))["message"])
        assert result["text"] == "goes on"
        check_memory(session, world.events(session))


async def test_a_fork_has_the_summary_and_its_requests_are_made_again() -> None:
    id, log, _ = await film()
    async with world_with(id, log).run() as world:
        session = await world.registry.get(id)
        made: Any = await world.registry.fork(session, wire.ForkParams(name="other"), ME)
        fork = await world.registry.get(made["session"])
        theirs = [entry.data["content"] for entry in session.state.surface]
        assert [entry.data["content"] for entry in fork.state.surface] == theirs
        found = requests.check(world.disk, world.store.log_path(fork.id), world.route.rebuild)
        assert found.problem is None
        assert found.compared > 5
        world.script = [say("fine")]
        assert (await settled(fork, (await followup(fork, "go on"))["message"]))["text"] == "fine"


# --- while it runs ---------------------------------------------------------------------------------


async def test_after_a_crash_in_maintenance_the_surface_is_the_one_before_and_the_bracket_is_closed() -> None:
    world = narrow()
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        before = [entry.seq for entry in session.state.surface]
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.compact, ME)
            await held.began.wait()
            nursery.cancel_scope.cancel()
        after = world.crash()
    after.route = Narrow(after)
    async with after.run():
        again = await after.again(session)
        assert [entry.seq for entry in again.state.surface] == before
        (end,) = ends(after, again)
        assert (end["reason"], end["recovery"]) == ("interrupted", True)
        assert again.state.compaction is None
        await rests(after, again)


async def test_after_a_crash_in_a_turns_compaction_what_was_claimed_is_back() -> None:
    world = narrow()
    async with world.run():
        session = await world.session()
        await talk(world, session)
        held = Held(SUMMARY)
        world.script = [held]
        sent = await followup(session, "part 4: " + LONG)
        await held.began.wait()
        after = world.crash()
    after.route = Narrow(after)
    after.script = [SUMMARY, say("fine")]
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, sent["message"]))["text"] == "fine"
        assert reasons(after, again) == ["interrupted", "done"]
        await rests(after, again)


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_step_that_was_made_smaller_once_is_not_again_though_it_waited_and_the_daemon_died(
    crashes: bool, autojump_clock: Any
) -> None:
    world = narrow()
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        busy = ModelError("SERVER", "no", retry_after=900)
        world.script = [FULL, FULL, SUMMARY, busy, FULL, SUMMARY, say("fine")]
        sent = (await followup(session, LONG))["message"]
        await waiting(session)
        after = world.crash()
        after.route, after.script = Narrow(after), [*world.script]
        if not crashes:
            result = await ended(session, sent)
    if crashes:
        async with after.run():
            result = await ended(await after.again(session), sent)
    assert (result["outcome"], result["error"]["code"]) == ("error", FULL.code)
    assert reasons(after if crashes else world, session) == ["done"]
