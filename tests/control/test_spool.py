"""Sends that waited for the daemon: taken up in order, once, before any other; refused ones are kept."""

from __future__ import annotations

import errno
import json
import re
from functools import partial
from typing import Any

import pytest
import trio

from dshd import spool
from dshd.control.handlers.saying import deliver_spooled
from dshd.control.takeup import TakingUp, due_now
from dshd.errors import Conflict
from dshd.log.memory import MemoryDisk
from dshd.spool import Broken, Spool, Spooled
from tests.control.rig import Refused, Server
from tests.session.rig import STATE, settled

Json = dict[str, Any]
NOW = 1_796_040_000_000
WHO: Json = {"uid": 1000, "pid": 7, "tty": "pts/3", "client": "dshctl"}


def to(session: str, text: str, **more: Any) -> Spooled:
    """Somebody's send to a session of this name, made if there is none."""
    params = {"verb": "followup", "no_wake": True, "session": session, "cwd": "/", "text": text}
    create = {} if session == "nowhere" else {"create": {"dir": "/", "name": session}}
    return Spooled(spool.new_id(), NOW - 3_600_000, WHO, {**params, **create, **more})


def put(disk: MemoryDisk, *sends: Spooled) -> Spool:
    place = Spool(disk, STATE)
    place.prepare()
    for one in sends:
        place.put(one)
    return place


async def take_up(server: Server) -> None:
    room = server.room
    with trio.fail_after(60):
        taking = TakingUp(room.spool, room.gate, partial(deliver_spooled, room), server.now)
        room.gate.close()
        await taking.run(await taking.look())


async def texts(server: Server, name: str) -> list[str]:
    session = await server.registry.get(await server.registry.resolve(name, None))
    return [m.content[0]["text"] for _, items in sorted(session.state.queues.items()) for m in items]


def reasons(place: Spool) -> list[str]:
    names = place.disk.listdir(place.refused) if place.disk.exists(place.refused) else []
    found = [n for n in names if n.endswith(".json")]
    return [json.loads(place.disk.read_bytes(place.refused / name))["reason"] for name in found]


# ---------------------------------------------------------------- a file


def test_what_is_written_is_what_is_read_whatever_its_text() -> None:
    one = to("api", 'ü 🌍 "\\ \n\x1b crc')
    assert spool.decode(spool.encode(one)) == one


@pytest.mark.parametrize("spoil", [
    lambda raw: b"", lambda raw: raw[:-3], lambda raw: raw.replace(b"api", b"apx"),
    lambda raw: bytes(len(raw)), lambda raw: raw + raw,
])  # fmt: skip
def test_a_file_that_changed_is_broken(spoil: Any) -> None:
    with pytest.raises(Broken):
        spool.decode(spoil(spool.encode(to("api", "x"))))


def test_names_keep_the_order_of_arrival_whatever_the_clock_says() -> None:
    sends = [to("api", str(n))._replace(created=NOW - n) for n in range(12)]
    place = put(MemoryDisk(), *sends)
    assert [place.read(name) for name in place.waiting()] == sends


def test_what_was_handed_in_survives_a_power_cut() -> None:
    disk = MemoryDisk()
    put(disk, one := to("api", "x"))
    place = Spool(disk.crash(), STATE)
    assert [place.read(name) for name in place.waiting()] == [one]


def test_what_was_half_written_by_a_killed_writer_is_swept_and_never_taken() -> None:
    disk = MemoryDisk()
    disk.fail("rename", errno.EIO)
    disk.fail("unlink", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        put(disk, to("api", "x"))
    place = put(disk, to("api", "y"))
    assert len(place.look()) == 1
    assert [name for name in disk.listdir(place.path) if name.startswith(".")] == []


# ---------------------------------------------------------------- decisions


def test_times_count_from_when_it_was_said() -> None:
    hour_ago = to("api", "x", **{"in": 7200.0, "expires": 9000.0})
    params = due_now(hour_ago, NOW)
    assert (params.at, params.in_, params.expires) == (NOW + 3_600_000, None, 5400.0)


def test_what_came_due_meanwhile_is_due_now_and_what_expired_is_refused() -> None:
    assert due_now(to("api", "x", at=NOW - 1), NOW).at is None
    with pytest.raises(Conflict):
        due_now(to("api", "x", expires=3000.0), NOW)


def test_its_own_key_stays_and_else_its_name_is_the_key() -> None:
    named, bare = to("api", "x", key="k"), to("api", "x")
    assert (due_now(named, NOW).key, due_now(bare, NOW).key) == ("k", bare.id)


# ---------------------------------------------------------------- taking up


async def test_sends_are_taken_up_in_order_and_their_files_go() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    place = put(disk, *(to("api", f"m{n}") for n in range(3)))
    async with server.serving():
        await take_up(server)
        assert await texts(server, "api") == ["m0", "m1", "m2"]
        assert place.counts() == (0, 0, None)


async def test_a_message_says_who_said_it_and_when() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    one = to("api", "x")
    put(disk, one)
    async with server.serving():
        await take_up(server)
        found = await (await server.client()).call("message.show", message=one.id)
        source = {**WHO, "kind": "user", "via": "spool", "created": one.created}
        assert found["source"] == source
        assert found["key"] == one.id


async def test_a_direct_send_waits_for_those_handed_in_before_it() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    put(disk, to("api", "first"))
    async with server.serving():
        server.room.gate.close()
        await server.named("api")
        client = await server.client()
        number = await client.post("session.send", session="api", text="second", no_wake=True)
        other = await client.post("session.send", session="api", text="third", no_wake=True)
        assert (await client.call("session.list"))["sessions"]
        assert await texts(server, "api") == []
        await take_up(server)
        assert {(await client.line())["id"], (await client.line())["id"]} == {number, other}
        assert await texts(server, "api") == ["first", "second", "third"]


async def test_the_name_given_at_first_means_the_message_for_ever() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    mine, keyed = to("api", "x", no_wake=False), to("api", "y", key="k", no_wake=False)
    put(disk, mine, keyed)
    async with server.serving():
        await take_up(server)
        client = await server.client()
        await client.call("session.wait", messages=[mine.id, keyed.id], stay=True)
    again = Server(disk)
    async with again.serving():
        client = await again.client()
        for one in (mine, keyed):
            found = await client.call("message.show", message=one.id)
            assert found["text"] == one.send["text"]
            (result,) = (await client.call("session.wait", messages=[one.id], stay=True))["results"]
            assert (result["message"], result["outcome"]) == (found["id"], "completed")
            assert (await client.call("answer.show", message=one.id))["message"] == found["id"]
            assert (await client.call("message.why", message=one.id))["message"] == found["id"]


async def test_a_name_that_means_nothing_is_not_found() -> None:
    async with (server := Server()).serving():
        client = await server.client()
        with pytest.raises(Refused) as caught:
            await client.call("message.show", message=spool.new_id())
        assert caught.value.code == "NOT_FOUND"


@pytest.mark.parametrize("lost", [True, False], ids=["power cut", "killed"])
async def test_a_crash_at_any_step_of_taking_up_sends_each_once_and_in_order(lost: bool) -> None:
    origin = MemoryDisk()
    sends = [to("api", "m0"), to("api", "m1", key="own"), to("web", "m2")]
    put(origin, *sends)
    steps = 0
    while True:
        disk = origin.copy()
        if not await _crashes_after(disk, steps):
            break
        again = Server(disk.crash() if lost else disk.copy())
        async with again.serving():
            await take_up(again)
            assert await texts(again, "api") == ["m0", "m1"], steps
            assert await texts(again, "web") == ["m2"], steps
            client = await again.client()
            for one in sends:
                assert (await client.call("message.show", message=one.id))["text"] == one.send["text"]
            assert again.room.spool.counts() == (0, 0, None)
        steps += 3
    assert steps > 30


class PowerCut(BaseException):
    pass


async def _crashes_after(disk: MemoryDisk, steps: int) -> bool:
    """Whether the power went; it goes before the change number ``steps``, for good."""
    server, left = Server(disk), [steps]

    def hook(call: str, path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise PowerCut

    async def life() -> None:
        async with server.serving():
            disk.before(hook)
            await take_up(server)
            disk.before(None)

    try:
        await life()
    except BaseException as error:
        if not _is_cut(error):
            raise
        disk.before(None)
        return True
    return False


def _is_cut(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_cut, error.exceptions))
    return isinstance(error, PowerCut)


async def test_what_is_refused_is_kept_with_the_reason_and_counted_and_holds_up_nobody() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    conflict = to("api", "other words", key="k")
    place = put(
        disk, to("nowhere", "a"), to("api", "b", key="k"), conflict, to("api", "c"),
        to("api", "d", shout=True),
    )  # fmt: skip
    async with server.serving():
        await take_up(server)
        assert await texts(server, "api") == ["b", "c"]
        client = await server.client()
        assert (await client.call("daemon.status"))["spool"] == {
            "waiting": 0, "refused": 3, "problem": None, "dir": "/state/spool",
        }  # fmt: skip
        with pytest.raises(Refused, match="was refused"):
            await client.call("message.show", message=conflict.id)
    nowhere, used, unknown = reasons(place)
    assert 'no session "nowhere"' in nowhere
    assert re.search(r'key "k" was used .+ for another text', used)
    assert "unknown key" in unknown


async def test_a_broken_file_is_set_aside_as_it_is_and_the_others_are_taken_up() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    place = put(disk, to("api", "a"), to("api", "b"))
    name = place.waiting()[0]
    disk.poke(place.path / name, b"\0" * 50)
    disk.write_synced(place.path / "notes.txt", b"what is this")
    async with server.serving():
        await take_up(server)
        assert await texts(server, "api") == ["b"]
    assert place.counts() == (0, 2, None)
    kept = [n for n in disk.listdir(place.refused) if n.endswith(".broken")]
    assert {disk.read_bytes(place.refused / n) for n in kept} == {b"\0" * 50, b"what is this"}


async def test_on_a_full_disk_nothing_is_refused_senders_are_told_and_it_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    server = Server(disk)
    place = put(disk, to("api", "a"), to("api", "b"))
    async with server.serving():
        await server.named("api")
        server.room.gate.close()
        client = await server.client()
        disk.limit(free=0, files=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_up, server)
            await trio.sleep(2)
            with pytest.raises(Refused) as caught:
                await client.call("session.send", session="api", text="direct", no_wake=True)
            assert caught.value.code == "NO_SPACE"
            assert place.counts() == (2, 0, None)
            disk.heal()
        assert await texts(server, "api") == ["a", "b"]
        await client.call("session.send", session="api", text="c", no_wake=True)
        assert await texts(server, "api") == ["a", "b", "c"]


async def test_settled_work_goes_on_as_usual() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    one = to("api", "x", no_wake=False)
    put(disk, one)
    async with server.serving():
        await take_up(server)
        session = await server.registry.get(await server.registry.resolve("api", None))
        taken = server.room.spool.find(one.id)
        assert taken is not None
        assert taken.message is not None
        await settled(session, taken.message)


async def test_settings_are_those_of_the_session_it_makes_and_else_must_be_the_sessions() -> None:
    create = {"dir": "/", "name": "api", "mode": "read-only"}
    disk = MemoryDisk()
    server = Server(disk)
    place = put(
        disk,
        to("api", "makes it", create=create, settings={"mode": "read-only"}),
        to("api", "agrees", create=create, settings={"mode": "read-only", "name": "api"}),
        to("api", "differs", create=create, settings={"mode": "full"}),
    )
    async with server.serving():
        await take_up(server)
        assert await texts(server, "api") == ["makes it", "agrees"]
    assert reasons(place) == ["not sent: api has mode read-only, not full."]
