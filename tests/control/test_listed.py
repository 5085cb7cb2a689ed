"""The list of sessions, followed: which rows change, come and go, each told once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from dshd.control import listed
from dshd.control.outbox import SMALL
from dshd.session.registry.bell import Bell
from tests.control.rig import Client, Refused, Server
from tests.session.rig import followup, until

Json = dict[str, Any]
PATIENCE_S = 5.0


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "BETWEEN_S", 0.01)


async def told(client: Client, method: str, id: str, **fields: Any) -> Json:
    """The next notification of this session that has these fields."""
    while True:
        event = await client.event()
        params: Json = event["params"]
        of = params["id"] if event["method"] == "session.listed" else params["session"]
        if (event["method"], of) == (method, id) and fields.items() <= params.items():
            return params


async def nothing_more(client: Client) -> None:
    """What has been told by now is all; an answer comes behind it."""
    await trio.sleep(3 * listed.BETWEEN_S)
    await client.call("daemon.status")
    assert client.events == []


async def rows(client: Client, **params: Any) -> Json:
    """What a list has, by id, but for what is no news."""
    answer = await client.call("session.list", **params)
    return {row["id"]: without(row) for row in answer["sessions"]}


def without(row: Json) -> Json:
    return {name: value for name, value in row.items() if name not in listed.NO_NEWS}


@pytest.mark.usefixtures("often")
async def test_following_answers_what_listing_answers() -> None:
    async with Server().serving() as server:
        session = await server.named("api", implicit=True)
        client = await server.client(mode="read")
        for params in ({}, {"all": True}, {"cwd": "/usr/lib"}):
            followed = await client.call("session.follow_list", **params)
            assert followed == await client.call("session.list", **params)
            assert [row["id"] for row in followed["sessions"]] == [session.id]
        assert followed["current"] == session.id
        await nothing_more(client)


@pytest.mark.usefixtures("often")
async def test_a_session_that_comes_works_closes_opens_again_and_goes_is_told_of() -> None:
    async with Server().serving() as server:
        client, other = await server.client(), await server.client()
        assert (await client.call("session.follow_list"))["sessions"] == []
        session = await server.named("api")
        assert (await told(client, "session.listed", session.id))["name"] == "api"
        await other.call("session.rename", session=session.id, name="new")
        await told(client, "session.listed", session.id, name="new")
        await followup(session, "go")
        await until(session, lambda: session.quiet)
        row = await told(client, "session.listed", session.id, turn=1, state="idle")
        assert row["tokens"] == session.show()["tokens"]
        await other.call("session.close", session=session.id)
        await told(client, "session.gone", session.id, reason="closed")
        await other.call("session.reopen", session=session.id)
        await told(client, "session.listed", session.id, state="idle")
        await other.call("session.delete", session=session.id)
        await told(client, "session.gone", session.id, reason="removed")
        await nothing_more(client)


@pytest.mark.usefixtures("often")
async def test_with_all_a_closed_session_stays_until_it_is_removed() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client, other = await server.client(), await server.client()
        await client.call("session.follow_list", all=True)
        await other.call("session.close", session=session.id)
        await told(client, "session.listed", session.id, state="closed")
        await other.call("session.delete", session=session.id)
        await told(client, "session.gone", session.id, reason="removed")


@pytest.mark.usefixtures("often")
async def test_what_a_fork_makes_is_told_of_and_so_is_a_fault() -> None:
    async with Server().serving() as server:
        first = await server.named("api")
        client, other = await server.client(), await server.client()
        await client.call("session.follow_list")
        made = (await other.call("session.fork", session=first.id))["session"]
        await told(client, "session.listed", made["id"] if isinstance(made, dict) else made)
        first.give_up(RuntimeError("no way"))
        await told(client, "session.listed", first.id, state="faulted")


@pytest.mark.usefixtures("often")
async def test_one_that_is_not_in_memory_and_whose_directory_was_taken_away_goes_when_that_is_found() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        server.registry._listing.left(session)
        server.registry._loader.let_go(session)
        client, other = await server.client(), await server.client()
        await client.call("session.follow_list")
        await nothing_more(client)
        server.store.delete(session.id)
        with pytest.raises(Refused):
            await other.call("session.delete", session=session.id)
        await told(client, "session.gone", session.id, reason="removed")


@pytest.mark.usefixtures("often")
async def test_what_was_told_last_is_what_is_so() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client, other = await server.client(), await server.client()
        await client.call("session.follow_list")
        await nothing_more(client)
        for n in range(40):
            await other.call("session.send", session=session.id, verb="inject", text=str(n))
        row = await told(client, "session.listed", session.id, pending=session.show()["pending"])
        assert without(row) == (await rows(other))[session.id]
        await nothing_more(client)


class Deaf:
    """A client that takes what fits, and then nothing until ``reads`` is set."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.reads = trio.Event()

    @property
    def backlog(self) -> int:
        return sum(map(len, self.lines))

    def write(self, data: Any) -> None:
        self.lines.append(bytes(data))

    async def room(self) -> None:
        if self.backlog >= SMALL:
            await self.reads.wait()


class Known:
    """As much of a registry as a follower asks; looks are counted."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.views: dict[str, Json] = {}
        self.looks = 0

    def put(self, id: str, **fields: Any) -> None:
        self.views[id] = {"id": id, "state": "idle", "phase": "idle", "bytes": 0, "active_at": 0, **fields}
        self.bell.ring(id)

    def known(self) -> list[Json]:
        return list(self.views.values())

    def view(self, id: str) -> Json | None:
        self.looks += 1
        return self.views.get(id)


@pytest.fixture
def known() -> Known:
    known = Known()
    known.put("s1")
    return known


def follower(known: Known, sink: Deaf) -> listed.ListFollower:
    registry: Any = known
    out: Any = sink
    return listed.ListFollower(registry, out, all=False)


async def test_a_client_that_does_not_read_is_told_what_is_still_true_and_no_more(
    known: Known, autojump_clock: trio.testing.MockClock
) -> None:
    sink = Deaf()
    async with trio.open_nursery() as nursery:
        one = follower(known, sink)
        nursery.start_soon(one.run)
        for n in range(100):
            known.put("s1", title=f"{n}" * 10_000)
            known.put(f"t{n}")
            del known.views[f"t{n}"]
            await trio.sleep(listed.BETWEEN_S)
        held = len(sink.lines)
        assert sink.backlog < SMALL + 25_000
        sink.lines.clear()
        sink.reads.set()
        await trio.sleep(1)
        assert held < 20
        assert len(sink.lines) == 1
        assert b"99" * 10_000 in sink.lines[0]
        one.end("enough")
    assert not known.bell._ears


async def test_a_row_is_told_at_most_five_times_a_second_and_what_only_grows_never(
    known: Known, autojump_clock: trio.testing.MockClock
) -> None:
    sink = Deaf()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower(known, sink).run)
        await trio.sleep(1)
        for n in range(100):
            known.put("s1", bytes=n, active_at=n)
            await trio.sleep(0.01)
        assert sink.lines == []
        for n in range(100):
            known.put("s1", title=str(n))
            await trio.sleep(0.01)
        assert 2 <= len(sink.lines) <= 6
        await trio.sleep(1)
        assert b'"title":"99"' in sink.lines[-1]
        nursery.cancel_scope.cancel()


async def test_who_works_is_looked_at_without_a_ring_and_who_rests_is_not(
    known: Known, autojump_clock: trio.testing.MockClock
) -> None:
    sink = Deaf()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower(known, sink).run)
        await trio.sleep(1)
        looks = known.looks
        await trio.sleep(100)
        assert known.looks == looks
        known.put("s1", phase="running")
        await trio.sleep(1)
        known.views["s1"] = {**known.views["s1"], "doing": "waits for a place"}
        await trio.sleep(2 * listed.LOOK_S)
        assert b"waits for a place" in sink.lines[-1]
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("often")
async def test_following_ends_with_unfollow_and_with_the_connection() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client, leaves, other = await server.client(), await server.client(), await server.client()
        await client.call("session.follow_list")
        await leaves.call("session.follow_list")
        while len(server.registry.bell._ears) < 2:
            await trio.lowlevel.checkpoint()
        await client.call("log.unfollow")
        leaves.close()
        with trio.fail_after(PATIENCE_S):
            while server.registry.bell._ears:
                await trio.lowlevel.checkpoint()
        await other.call("session.rename", session=session.id, name="new")
        await nothing_more(client)
