"""Logs that lost bytes: a tail that was never acknowledged, and lines that had been.

The first is cut away and nothing is lost; the second is damage: shown, refused, and repairable. All
logs come from the scripted run, as they stood before each of its syncs. ``DSHD_LONG=1`` tries every
byte of every batch, else every byte of some and some bytes of all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.errors import Conflict, Damaged, Denied, Unsupported
from dshd.log.codec import Event, decode, encode
from dshd.log.memory import MemoryDisk
from dshd.session.disk import opening
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from tests.amount import LONG
from tests.session.invariants import check_acknowledged, check_log, check_memory, ids_inserted
from tests.session.rig import ME, STATE, World, call, followup, settled
from tests.session.scripted import Account, play

ID = "s0000000"
PATH = STATE / "sessions" / ID / "log.jsonl"


@attrs.frozen
class Still:
    """A log before one of its syncs: what was durable, the batch that wasn't, what was acknowledged."""

    durable: bytes
    batch: bytes
    acknowledged: tuple[str, ...]


async def film() -> list[Still]:
    stills: list[Still] = []
    account = Account()
    async with World().run() as world:
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        session = await world.session()
        path = str(world.store.log_path(session.id))

        def look(name: str, where: str) -> None:
            if name == "fdatasync" and where == path:
                durable, now = disk.crash().peek(path), disk.peek(path)
                stills.append(Still(durable, now[len(durable) :], tuple(account.acknowledged.values())))

        disk.before(look)
        await play(world, session, account)
        disk.before(None)
    return [_renamed(still, session.id) for still in stills]


def _renamed(still: Still, id: str) -> Still:
    """With the session's id replaced by `ID`; they are of one length, and the checksums made anew."""

    def lines(data: bytes) -> bytes:
        found = data.replace(id.encode(), ID.encode()).splitlines(keepends=True)
        return b"".join(encode(_unchecked(line)) for line in found)

    return Still(
        lines(still.durable), lines(still.batch), tuple(a.replace(id, ID) for a in still.acknowledged)
    )


def _unchecked(line: bytes) -> Event:
    fields = json.loads(line)
    fields.pop("crc")
    fields["sources"] = tuple(fields["sources"]) if "sources" in fields else None
    return Event(**fields)


@pytest.fixture
async def stills(autojump_clock: Any) -> list[Still]:
    return await film()


def disk_with(log: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.create_dir_synced(PATH.parent)
    disk.create_dir_synced(STATE / "active")
    disk.write_synced(PATH, log)
    disk.sync_dir(PATH.parent)
    return disk


def zeroed(data: bytes, at: int) -> bytes:
    return data[:at] + b"\0" + data[at + 1 :]


# --- the batch that was not acknowledged --------------------------------------------------------------


def places(stills: list[Still]) -> Iterator[tuple[Still, int]]:
    """Every byte of the largest batches and of the last one; of the others some, and all line ends."""
    whole = [stills[-1]]
    for n, still in enumerate(stills):
        ends = {i for i, byte in enumerate(still.batch) if byte == 0x0A}
        for at in range(len(still.batch)):
            if LONG or still in whole or at % 199 == n or at in ends:
                yield still, at


def check_opened(log: bytes, still: Still, kept: int) -> None:
    """It opens; ``kept`` bytes of the log are believed at least, and what isn't is set aside."""
    disk = disk_with(log)
    loaded = opening.load(disk, PATH)
    assert loaded.broken is None, loaded.broken
    assert loaded.opened.size >= kept
    state = loaded.state
    for id in still.acknowledged:
        assert id in state.receipts
    believed = disk.read_bytes(PATH)
    assert log.startswith(believed)
    if loaded.opened.torn:
        assert disk.read_bytes(PATH.with_name(loaded.opened.torn.file)) == log[len(believed) :]
    check_log([decode(line) for line in believed.splitlines(keepends=True)])
    assert loaded.file is not None
    loaded.file.close()


async def test_a_log_cut_at_any_byte_of_its_last_batch_opens_and_lost_nothing(stills: list[Still]) -> None:
    for still, at in places(stills):
        check_opened(still.durable + still.batch[:at], still, len(still.durable))


async def test_a_log_with_any_byte_of_its_last_batch_zeroed_opens_and_lost_nothing(
    stills: list[Still],
) -> None:
    for still, at in places(stills):
        check_opened(still.durable + zeroed(still.batch, at), still, len(still.durable))


async def test_zeros_in_the_middle_of_a_batch_with_good_lines_behind_are_no_damage(
    stills: list[Still],
) -> None:
    for still in stills:
        for start in range(0, len(still.batch), 512):
            hole = (
                still.batch[:start] + bytes(min(512, len(still.batch) - start)) + still.batch[start + 512 :]
            )
            check_opened(still.durable + hole, still, len(still.durable))


async def test_a_session_whose_tail_was_cut_goes_on(stills: list[Still], autojump_clock: Any) -> None:
    for n, still in enumerate(stills):
        await drive_to_rest(disk_with(still.durable + still.batch[: n * 61 % len(still.batch)]), still)


async def drive_to_rest(disk: MemoryDisk, still: Still) -> None:
    world = World(disk)
    world.gate.opened.set()
    async with world.run():
        session = await world.registry.get(ID)
        await session.start()
        with trio.fail_after(100):
            await session.wait_idle()
        events = world.events(session)
        check_log(events, quiet=True)
        check_memory(session, events)
        check_acknowledged(session, still.acknowledged)


# --- lines that were acknowledged ---------------------------------------------------------------------


def damaged_lines(log: bytes) -> Iterator[bytes]:
    """Each line that a later one proves to have been durable, with one byte of it zeroed, in three places."""
    lines = log.splitlines(keepends=True)
    synced = max((e.synced for line in lines if (e := decode(line)).synced is not None), default=-1)
    start = 0
    for n, line in enumerate(lines):
        if n <= synced:
            for at in (0, len(line) // 2, len(line) - 1):
                yield zeroed(log, start + at)
        start += len(line)


def lenient(events: list[Event]) -> None:
    """What must hold of a log with a gap in it: nothing begins, ends or enters twice."""
    for type, key in (("turn/start", "turn"), ("turn/end", "turn"), ("user/message", "id")):
        counted = Counter(e.data[key] for e in events if e.type == type)
        assert not [one for one, n in counted.items() if n > 1], (type, counted)
    numbers = [e.data["turn"] for e in events if e.type == "turn/start"]
    assert numbers == sorted(numbers)
    assert not [id for id, n in Counter(ids_inserted(events)).items() if n > 1]


async def test_a_byte_of_an_acknowledged_line_zeroed_is_damage_refused_and_repaired(
    stills: list[Still], autojump_clock: Any
) -> None:
    for n, still in enumerate(stills):
        for m, log in enumerate(damaged_lines(still.durable)):
            if (7 * n + m) % (3 if LONG else 97) == 0:
                await check_damaged(log, still)


async def check_damaged(log: bytes, still: Still) -> None:
    world = World(disk_with(log))
    world.gate.opened.set()
    async with world.run():
        session = await world.registry.get(ID)
        await check_refused(world, session)
        assert world.disk.read_bytes(PATH) == log, "reading changed it"
        report = await world.registry.repair(ID, ME)
        assert report["ok"], report
        again = await world.registry.get(ID)
        assert again.broken is None
        assert log in [world.disk.read_bytes(p) for p in _beside(world, "log.damaged")], (
            "old bytes were not kept"
        )
        await check_repaired(world, again, still)


def _beside(world: World, name: str) -> list[Path]:
    return [PATH.with_name(n) for n in world.disk.listdir(PATH.parent) if n.startswith(name)]


async def check_refused(world: World, session: Session) -> None:
    assert session.show()["state"] == "damaged"
    assert (await world.registry.fsck(ID))["exit"] == 7
    for ask in (followup(session, "x"), session.wake(wire.WakeParams(), ME), session.wait_idle()):
        with pytest.raises(Damaged) as refused:
            await ask
        assert "line" in refused.value.message
        assert (refused.value.hint or "").startswith("dshctl fsck --repair")
        assert refused.value.outcome == "not-written"


async def check_repaired(world: World, session: Session, still: Still) -> None:
    state = session.state
    events = world.events(session)
    lenient(events)
    repaired = next(e.seq for e in events if e.type == "log/repaired")
    began = [
        e.seq for e in events if e.type == "turn/start" and state.turn and e.data["turn"] == state.turn.number
    ]
    assert not began or began[0] > repaired, "the open turn was not closed"
    check_acknowledged(session, [id for id in still.acknowledged if id in state.receipts])
    lost = [id for id in still.acknowledged if id not in state.receipts]
    assert len(lost) <= 1, "more than the one event's messages were lost"
    with trio.fail_after(100):
        await session.wait_idle(stay=False)
    for message in list(session.state.queues["held"]):
        await session.wake(wire.WakeParams(message=message.id), ME)
    sent = await followup(session, "and on")
    with trio.fail_after(100):
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        await session.wait_idle()
    events = world.events(session)
    lenient(events)
    check_memory(session, events)
    assert not session.state.pending
    assert (await world.registry.fsck(ID))["ok"]


async def test_what_was_pending_before_the_gap_is_held_and_what_came_after_is_not() -> None:
    async with World().run() as world:
        session = await world.session()
        before = await followup(session, "before", no_wake=True)
        await session.change({"mode": "read-only"}, ME)
        after = await followup(session, "after", no_wake=True)
        await session.change({"mode": "full"}, ME)
        disk, path = world.disk, world.store.log_path(session.id)
        log = disk.read_bytes(path)
        assert isinstance(disk, MemoryDisk)
        damaged = disk.crash()
    damaged.poke(path, zeroed(log, log.index(b"read-only")))
    async with World(damaged).run() as world:
        await world.registry.repair(session.id, ME)
        again = await world.registry.get(session.id)
        messages = [again.message(r["message"]) for r in (before, after)]
        assert [m["state"] for m in messages] == ["held", "pending"]
        assert messages[0]["way"][-1]["source"]["via"] == "repair"
        assert (await again.wait_message(before["message"]))["exit"] == 18
        assert again.why(before["message"])["hint"] == f"dshctl wake {before['message']}"
        (need,) = [need for need in again.show()["needs"] if need["kind"] == "held"]
        assert (need["id"], need["what"]) == (before["message"], "repair")


async def test_a_repair_is_refused_to_a_tool_and_while_a_turn_runs() -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        with pytest.raises(Conflict):
            await world.registry.repair(session.id, ME)
        with pytest.raises(Denied):
            await world.registry.repair(session.id, Peer(uid=1000, kind="agent", session=session.id))


# --- logs from elsewhere --------------------------------------------------------------------------------


def header(**more: Any) -> Event:
    data = {"version": 1, "id": ID, "created": 0, "dir": "/", "model": "scripted", "mode": "full", **more}
    return Event(0, 1, "session/header", data)


def log_of(*events: Event) -> bytes:
    return b"".join(map(encode, events))


ELSEWHERE: dict[str, tuple[bytes, str, str]] = {
    "a newer format": (log_of(header(version=2)), "unsupported", "newer dshd"),
    "an event that is not known": (
        log_of(header(), Event(1, 2, "future/thing", {})), "unsupported", "newer dshd",
    ),
    "a turn that ends twice": (
        log_of(
            header(),
            Event(1, 2, "turn/start", {"turn": 1}),
            Event(2, 3, "turn/end", {"turn": 1, "reason": "completed"}),
            Event(3, 4, "turn/end", {"turn": 1, "reason": "completed"}),
        ),
        "damaged",
        "makes no sense at seq 3",
    ),
    "a claim of what was never sent": (
        log_of(
            header(),
            Event(1, 2, "turn/start", {"turn": 1}),
            Event(
                2, 3, "inbox/spliced",
                {"cause": "claim", "by": {}, "turn": 1,
                 "ops": [{"queue": "next-turn", "remove": [f"{ID}.7"], "insert": [], "before": None}]},
            ),
        ),
        "damaged",
        "makes no sense at seq 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ELSEWHERE)
async def test_what_cannot_be_driven_is_shown_refused_and_left_as_it_is(what: str) -> None:
    log, word, sentence = ELSEWHERE[what]
    async with World(disk_with(log)).run() as world:
        session = await world.registry.get(ID)
        assert session.show()["state"] == word
        with pytest.raises((Damaged, Unsupported)) as refused:
            await followup(session, "x")
        assert sentence in refused.value.message
        assert (refused.value.exit_status, refused.value.outcome) == (7, "not-written")
        assert world.disk.read_bytes(PATH) == log


async def test_an_unknown_event_that_says_it_can_be_ignored_is() -> None:
    log = log_of(header(), Event(1, 2, "future/thing", {"x": 1}, ignorable=True))
    async with World(disk_with(log)).run() as world:
        session = await world.registry.get(ID)
        sent = await followup(session, "x")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
