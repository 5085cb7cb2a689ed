"""Followers: everything once and in order, from the file and from memory, whoever is slow."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from dshd.control import feed
from dshd.control.encoding import Data
from dshd.control.feed import Follower, Hub
from dshd.errors import Conflict, NotFound
from dshd.log.codec import Event, crc_of, encode
from dshd.log.memory import MemoryDisk
from dshd.order import InOrder
from dshd.wire import Position
from tests.control.rig import Refused, Server
from tests.session.rig import call, followup, inject, say, settled

S = "s1234567"
PATH = Path("/log.jsonl")


def line(seq: int, type: str = "todo/write", **data: Any) -> bytes:
    return encode(Event(seq, 1_796_040_000_000 + seq, type, data))


class Log:
    """A log on a memory disk, written and told by the test, and a hub for it. ``told`` None: the session
    isn't loaded."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.lines: list[bytes] = []
        self.told: int | None = -1
        self.hub = Hub(self.disk, lambda session: PATH, lambda session: self.told)

    def store(self, *lines: bytes) -> None:
        self.lines += lines
        self.disk.write_synced(PATH, b"".join(self.lines))

    def write(self, count: int, type: str = "todo/write", **data: Any) -> None:
        """Put events into the file, without telling anybody."""
        first = len(self.lines)
        self.store(*(line(seq, type, **data) for seq in range(first, first + count)))

    def tell(self) -> None:
        """Tell of what was written since."""
        assert self.told is not None
        first = self.told + 1
        self.told = len(self.lines) - 1
        self.hub.publish(S, first, self.lines[first:])

    def add(self, count: int, **more: Any) -> None:
        self.write(count, **more)
        self.tell()

    def withdraw(self, to: int) -> None:
        self.lines = self.lines[: to + 1]
        self.told = to
        self.store()
        self.hub.reset(S, to)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.hub.run)
            yield nursery
            nursery.cancel_scope.cancel()


class Sink:
    """Takes lines; while ``stopped`` nothing leaves its backlog."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.held: list[Data] = []
        self.backlog = 0
        self.most = 0
        self.stopped = False
        self.reading = InOrder()
        self._changed = trio.Event()

    def write(self, data: Data) -> None:
        self.seen += map(json.loads, data.splitlines())
        if self.stopped:
            self.held.append(data)
            self.backlog += len(data)
            self.most = max(self.most, self.backlog)
        self._changed.set()
        self._changed = trio.Event()

    async def room(self) -> None:
        while self.backlog:
            await self._changed.wait()

    def go_on(self) -> None:
        self.stopped, self.backlog = False, 0
        self.held.clear()
        self._changed.set()
        self._changed = trio.Event()

    @property
    def seqs(self) -> list[int]:
        return [one["params"]["event"]["seq"] for one in self.seen if one["method"] == "log.event"]

    async def until(self, seq: int) -> None:
        with trio.fail_after(10):
            while not self.seqs or self.seqs[-1] < seq:
                await self._changed.wait()


async def follow(log: Log, nursery: trio.Nursery, after: Position | None = None, **options: Any) -> Sink:
    sink = Sink()
    turns = options.pop("turns", None)
    sink.stopped = options.pop("stopped", False)
    next_seq, offset = await log.hub.start(S, after, turns)
    nursery.start_soon(Follower(log.hub, S, sink, next_seq, offset, **options).run)
    return sink


def at(log: Log, seq: int) -> Position:
    return Position(seq=seq, crc=crc_of(log.lines[seq]))


# ---------------------------------------------------------------- the way from file to memory


async def test_history_comes_first_and_then_what_happens() -> None:
    log = Log()
    log.add(20)
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(19)
        log.add(5)
        await sink.until(24)
        assert sink.seqs == list(range(25))


async def test_events_that_come_while_history_is_read_are_neither_lost_nor_doubled() -> None:
    log = Log()
    log.add(50, text="x" * 100_000)
    reads = 0

    async def pause() -> None:
        nonlocal reads
        reads += 1
        if len(log.lines) < 100:
            log.add(3)
        await trio.lowlevel.checkpoint()

    log.disk.pause = pause
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert len(log.lines) > 60
        assert sink.seqs == list(range(len(log.lines)))


async def test_events_that_are_written_but_not_told_are_not_told_by_us() -> None:
    log = Log()
    log.add(10)
    log.write(5)
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(9)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert sink.seqs == list(range(10))
        log.tell()
        await sink.until(14)
        assert sink.seqs == list(range(15))


async def test_a_log_that_nobody_has_loaded_is_synced_before_it_is_told() -> None:
    log = Log()
    log.told = None
    log.write(3)
    before = log.disk.counts["fdatasync"]
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(2)
        assert log.disk.counts["fdatasync"] > before
        log.told = 2  # it is loaded, and goes on
        log.add(2)
        await sink.until(4)
        assert sink.seqs == list(range(5))


async def test_a_torn_tail_is_not_told() -> None:
    log = Log()
    log.told = None
    log.write(3)
    log.store(line(3)[:-5])
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(2)
        assert sink.seqs == [0, 1, 2]


async def test_a_line_in_the_middle_of_being_written_waits() -> None:
    log = Log()
    log.add(2)
    log.store(line(2)[:-7])
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(1)
        log.lines[2] = line(2)
        log.store()
        log.tell()
        await sink.until(2)
        assert sink.seqs == [0, 1, 2]


# ---------------------------------------------------------------- where it begins


async def test_it_goes_on_behind_the_last_line_seen() -> None:
    log = Log()
    log.add(2500)
    async with log.running() as nursery:
        sink = await follow(log, nursery, at(log, 5))
        await sink.until(2499)
        assert sink.seqs == list(range(6, 2500))


@pytest.mark.parametrize("turns", [0, 1, 2, 9])
async def test_it_begins_with_the_last_turns(turns: int) -> None:
    log = Log()
    for turn in (1, 2, 3):
        log.add(1, type="turn/start", turn=turn)
        log.add(4)
    async with log.running() as nursery:
        sink = await follow(log, nursery, turns=turns)
        log.add(1)
        await sink.until(15)
        assert sink.seqs[0] == {0: 15, 1: 10, 2: 5, 9: 0}[turns]
        assert sink.seqs == list(range(sink.seqs[0], 16))


@pytest.mark.parametrize("seq", [99_999, 12])
async def test_a_place_that_never_was_is_an_error_that_says_where_the_log_ends(seq: int) -> None:
    log = Log()
    log.add(10)
    log.write(5)
    with pytest.raises(Conflict) as caught:
        await log.hub.start(S, Position(seq=seq, crc="00000000"), None)
    assert caught.value.data == {"reset_to": 9}


async def test_a_line_that_was_replaced_since_leads_back_before_the_opening_that_followed() -> None:
    log = Log()
    log.add(4)
    log.add(1, type="session/opened", boot="2")
    log.add(4)
    with pytest.raises(Conflict) as caught:
        await log.hub.start(S, Position(seq=6, crc="00000000"), None)
    assert caught.value.data == {"reset_to": 3}
    assert await log.hub.start(S, at(log, 3), None) == (4, sum(map(len, log.lines[:4])))


async def test_one_who_missed_several_crashes_asks_its_way_back_to_the_last_line_that_stayed() -> None:
    log = Log()
    log.add(4)
    seen = [at(log, seq) for seq in range(4)] + [Position(seq=seq, crc="00000000") for seq in range(4, 9)]
    for boot in ("2", "3"):
        log.add(1, type="session/opened", boot=boot)
        log.add(2)
    place, gone_back = seen[-1], []
    while place.seq > 3:
        with pytest.raises(Conflict) as caught:
            await log.hub.start(S, place, None)
        gone_back.append(caught.value.data["reset_to"])
        place = seen[gone_back[-1]]
    assert gone_back == [6, 3]
    assert (await log.hub.start(S, place, None))[0] == 4


async def test_a_log_that_is_not_there_is_not_an_empty_one() -> None:
    log = Log()
    with pytest.raises(NotFound):
        await log.hub.start(S, None, None)


async def test_chunks_are_left_out_when_they_are_not_wanted() -> None:
    log = Log()
    for _ in range(5):
        log.add(1)
        log.add(1, type="assistant/chunk", chunks=[])
    async with log.running() as nursery:
        sink = await follow(log, nursery, chunks=False)
        await sink.until(8)
        log.add(1, type="assistant/chunk", chunks=[])
        log.add(1)
        await sink.until(11)
        assert sink.seqs == [0, 2, 4, 6, 8, 11]


# ---------------------------------------------------------------- what is withdrawn


async def test_a_withdrawal_is_told_to_those_who_had_seen_it() -> None:
    log = Log()
    log.add(10)
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(9)
        log.withdraw(6)
        assert sink.seen[-1]["method"] == "log.reset"
        assert sink.seen[-1]["params"] == {"session": S, "to": 6}
        log.add(2, text="anew")
        await trio.testing.wait_all_tasks_blocked()
        assert sink.seqs == [*range(10), 7, 8]


async def test_a_withdrawal_is_told_to_those_who_are_behind_when_they_come_to_it() -> None:
    log = Log()
    log.add(10)
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(9)
        sink.stopped = True
        log.add(5, text="x" * 40_000)
        await sink.until(14)
        log.add(20, text="x" * 100_000)
        log.withdraw(12)
        sink.go_on()
        log.add(3, text="anew")
        await trio.testing.wait_all_tasks_blocked(0.01)
        resets = [one["params"]["to"] for one in sink.seen if one["method"] == "log.reset"]
        assert resets == [12]
        assert sink.seqs[-3:] == [13, 14, 15]


async def test_who_has_not_seen_it_is_not_told_of_a_withdrawal() -> None:
    log = Log()
    log.add(10)
    log.write(3)
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(9)
        log.withdraw(9)
        log.add(1)
        await sink.until(10)
        assert [one["method"] for one in sink.seen] == ["log.event"] * 11


async def test_a_deleted_session_ends_its_followers() -> None:
    log = Log()
    log.add(3)
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(2)
        log.hub.forget(S)
        assert sink.seen[-1] == {
            "jsonrpc": "2.0", "method": "log.end", "params": {"session": S, "reason": "deleted"},
        }  # fmt: skip
        await trio.testing.wait_all_tasks_blocked()


# ---------------------------------------------------------------- slow ones


async def test_one_that_stops_is_fed_from_the_file_when_it_goes_on_and_costs_no_more_than_a_mebibyte() -> (
    None
):
    log = Log()
    log.add(1)
    async with log.running() as nursery:
        slow, fast = await follow(log, nursery), await follow(log, nursery)
        await slow.until(0)
        await fast.until(0)
        slow.stopped = True
        for _ in range(100):
            log.add(1, text="x" * 100_000)
            await trio.lowlevel.checkpoint()
        await fast.until(100)
        assert fast.seqs == list(range(101))
        assert slow.most <= feed.UNSENT
        slow.go_on()
        await slow.until(100)
        assert slow.seqs == list(range(101))
        log.add(1)
        await slow.until(101)


async def test_a_line_that_is_longer_than_memory_is_not_lost() -> None:
    log = Log()
    log.add(1)
    async with log.running() as nursery:
        sinks = [await follow(log, nursery) for _ in range(2)]
        for number in range(5):
            log.add(1, text="x" * (feed.KEPT + 5))
            if number == 2:
                sinks.append(await follow(log, nursery, at(log, 0)))
            await trio.lowlevel.checkpoint()
        log.add(1)
        for sink, first in zip(sinks, (0, 0, 1), strict=True):
            await sink.until(6)
            assert sink.seqs == list(range(first, 7))


async def test_many_followers_of_one_slow_client_cost_no_more_than_one() -> None:
    log = Log()
    log.add(40, text="x" * 100_000)
    async with log.running() as nursery:
        sink = Sink()
        sink.stopped = True
        for _ in range(20):
            nursery.start_soon(Follower(log.hub, S, sink, 0, 0).run)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert sink.most < feed.READ + 150_000  # a piece, and the line that it ends in


async def test_a_long_line_is_the_same_bytes_for_all_who_hold_it_and_goes_with_the_last() -> None:
    log = Log()
    log.add(1)
    async with log.running() as nursery:
        sinks = [await follow(log, nursery) for _ in range(3)]  # who are fed from memory
        for sink in sinks:
            await sink.until(0)
        await trio.testing.wait_all_tasks_blocked(0.01)
        for sink in sinks:
            sink.stopped = True
        log.add(1, text="x" * 300_000)
        await trio.testing.wait_all_tasks_blocked(0.01)
        sinks += [await follow(log, nursery, at(log, 0), stopped=True) for _ in range(3)]  # from the file
        for sink in sinks:
            await sink.until(1)
        held = {id(data) for sink in sinks for data in sink.held if len(data) > 300_000}
        assert len(held) == 1
        for sink in sinks:
            sink.go_on()
        log.add(10, text="y" * 200_000)  # so that memory has other lines
        await sinks[0].until(11)
        await trio.testing.wait_all_tasks_blocked(0.01)
        for sink in sinks:
            sink.held.clear()
        gc.collect()
        assert len(log.hub.encoder) * 200_000 <= feed.KEPT  # what memory keeps, and no more


async def test_memory_keeps_no_more_than_a_mebibyte() -> None:
    log = Log()
    log.add(1)
    async with log.running() as nursery:
        sink = await follow(log, nursery)
        await sink.until(0)
        for _ in range(100):
            log.add(1, text="x" * 100_000)
            await trio.testing.wait_all_tasks_blocked()
        channel = log.hub.join(S)
        assert sum(frame.size for frame in channel.frames) <= feed.KEPT
        await sink.until(100)
        assert sink.seqs == list(range(101))


async def test_without_followers_nothing_is_kept() -> None:
    log = Log()
    log.add(10)
    async with log.running() as nursery:
        async with trio.open_nursery() as short:
            sink = await follow(log, short)
            await sink.until(9)
            short.cancel_scope.cancel()
        log.add(10)
        channel = log.hub.join(S)
        assert not channel.frames
        log.hub.leave(channel)
        nursery.cancel_scope.cancel()


async def test_a_hundred_followers_each_get_every_event_in_order() -> None:
    log = Log()
    log.add(1)
    async with log.running() as nursery:
        sinks = [await follow(log, nursery) for _ in range(100)]
        for _ in range(50):
            log.add(2)
            await trio.lowlevel.checkpoint()
        for sink in sinks:
            await sink.until(100)
            assert sink.seqs == list(range(101))


# ---------------------------------------------------------------- through a connection


async def test_a_client_follows_a_turn_from_its_first_event_to_its_last() -> None:
    async with Server().serving() as server:
        server.script = [call("quick"), say("done")]
        session = await server.named("api")
        client = await server.client()
        answer = await client.call("log.follow", session="api")
        assert answer["session"] == session.id
        await settled(session, (await followup(session, "go"))["message"])
        events = server.events(session)
        assert await client.seqs(len(events)) == list(range(len(events)))


async def test_reading_gives_the_events_and_then_the_answer() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        for text in "one", "two":
            await settled(session, (await followup(session, text))["message"])
        client = await server.client()
        answer = await client.call("log.read", session="api", chunks=True)
        events = server.events(session)
        assert [one["params"]["event"]["seq"] for one in client.events] == [e.seq for e in events]
        assert answer["at"]["seq"] == events[-1].seq
        client.events.clear()
        await client.call("log.read", session="api", turn=[2, 2])
        read = [one["params"]["event"] for one in client.events]
        assert read[0]["type"] == "turn/start"
        assert {e["data"]["turn"] for e in read if "turn" in e["data"]} == {2}
        assert not [e for e in read if e["type"] == "assistant/chunk"]


async def test_following_a_place_that_is_gone_is_a_conflict_with_the_place_to_go_back_to() -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client()
        with pytest.raises(Refused) as caught:
            await client.call("log.follow", session="api", after={"seq": 99_999, "crc": "00000000"})
        assert caught.value.code == "CONFLICT"
        assert isinstance(caught.value.error["data"]["reset_to"], int)


async def test_unfollowing_ends_the_stream() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        await client.call("log.follow", session="api")
        await client.seqs(len(server.events(session)))
        await client.call("log.unfollow", session=session.id)
        await inject(session, "unheard")
        await client.call("session.list")
        assert client.events == []


async def test_following_all_begins_with_the_first_event_that_comes() -> None:
    async with Server().serving() as server:
        first = await server.named("first")
        before = len(server.events(first))
        client = await server.client()
        await client.call("log.follow", all=True)
        second = await server.named("second")
        await inject(second, "hello")
        await inject(first, "hello")
        seen: dict[str, list[int]] = {first.id: [], second.id: []}
        want = {s.id: len(server.events(s)) for s in (first, second)}
        while len(seen[first.id]) < want[first.id] - before or len(seen[second.id]) < 1:
            event = (await client.event())["params"]
            seen[event["session"]].append(event["event"]["seq"])
        assert seen[first.id] == list(range(before, want[first.id]))


async def test_two_followers_of_which_one_leaves() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        stays, leaves = await server.client(), await server.client()
        for client in stays, leaves:
            await client.call("log.follow", session="api", turns=0)
        leaves.close()
        first = len(server.events(session))
        for i in range(20):
            await inject(session, f"{i}")
        count = len(server.events(session)) - first
        assert await stays.seqs(count) == list(range(first, first + count))
