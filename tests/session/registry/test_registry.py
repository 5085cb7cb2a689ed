"""All sessions of a state directory: made, found, opened at a start, closed and removed."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from dshd import wire
from dshd.errors import Conflict, DshError, Invalid, NoSpace, NotFound
from dshd.log.memory import Everything
from dshd.session.fold.events import HEADER
from dshd.session.owner.session import Session
from dshd.session.registry import listing
from dshd.session.registry.environment import Environments
from tests.session.rig import ME, STATE, World, call, followup, inject, memory, say, settled, until


async def run(world: World, text: str = "work", **more: Any) -> tuple[Session, dict[str, Any]]:
    params = wire.CreateParams(**{"dir": "/", "run": True, "mode": "full", "text": text, **more})
    session, receipt = await world.registry.create(params, ME)
    assert receipt is not None
    return session, receipt


# --- making ---------------------------------------------------------------------------------------------


async def test_a_new_session_is_on_disk_with_its_first_message_when_it_is_acknowledged() -> None:
    async with World().run() as world:
        _session, receipt = await run(world)
        assert (receipt["created"], receipt["turn"]) == (True, 1)
        after = world.crash()
    async with after.run():
        again = await after.registry.of_message(receipt["message"])
        assert (await settled(again, receipt["message"]))["outcome"] == "completed"


async def test_a_header_has_all_its_keys_whoever_makes_the_session() -> None:
    async with World().run() as world:
        session, receipt = await run(world)
        await settled(session, receipt["message"])
        forked = await world.registry.fork(session, wire.ForkParams(), ME)
        headers = [world.events(id)[0].data for id in (session.id, forked["session"])]
    for data in headers:
        assert list(data)[: len(HEADER)] == list(HEADER)
    assert (headers[0]["parent"], headers[0]["seed"]) == (None, None)
    assert headers[1]["parent"] == session.id


@pytest.mark.parametrize("n", range(12))
async def test_a_power_cut_while_a_session_is_made_leaves_a_whole_one_or_none(n: int) -> None:
    async with World().run() as world:
        disk, cuts = memory(world), []
        disk.before(lambda name, path: cuts.append(disk.crash(Everything() if n % 2 else None)))
        await run(world)
        disk.before(None)
    world = World(cuts[min(n, len(cuts) - 1)])
    async with world.run():
        for id in world.store.ids():
            session = await world.registry.get(id)
            assert session.broken is None
            await session.wait_idle()
        assert not [name for name in world.disk.listdir(STATE / "sessions") if name.startswith(".")]
        for id in world.store.marked():
            assert id in world.store.ids()


@pytest.mark.parametrize("skip", range(10))
async def test_without_room_nothing_is_made_and_it_is_said(skip: int) -> None:
    async with World().run() as world:
        memory(world).fail("write", errno.ENOSPC, skip=skip)
        memory(world).fail("create", errno.ENOSPC, skip=skip)
        refused: NoSpace | None = None
        try:
            await run(world)
        except NoSpace as error:
            refused = error
        if refused is not None:
            assert refused.outcome == "not-written"
            assert world.store.ids() == []
        memory(world).calls.faults.clear()
        session, receipt = await run(world)
        assert (await settled(session, receipt["message"]))["outcome"] == "completed"


async def test_a_run_key_is_one_session_in_the_whole_state_directory() -> None:
    async with World().run() as world:
        first, receipt = await run(world, key="nightly")
        await settled(first, receipt["message"])
        again, second = await run(world, key="nightly")
        assert again.id == first.id
        assert (second["message"], second["duplicate"]) == (receipt["message"], True)
        with pytest.raises(Conflict):
            await run(world, "another text", key="nightly")
        after = world.crash()
    async with after.run():
        _, third = await run(after, key="nightly")
        assert third["message"] == receipt["message"]
        assert len(after.store.ids()) == 1


async def test_many_runs_at_once_with_one_key_are_one_session() -> None:
    async with World().run() as world:
        found: set[str] = set()

        async def one() -> None:
            found.add((await run(world, key="k"))[1]["message"])

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
        assert (len(found), len(world.store.ids())) == (1, 1)


async def test_names_are_unique_among_open_sessions() -> None:
    async with World().run() as world:
        first = await world.session(name="api")
        with pytest.raises(Conflict):
            await world.session(name="api")
        await first.close(False, ME)
        second = await world.session(name="api")
        with pytest.raises(Conflict):
            await world.registry.reopen(first, ME)
        other = await world.session(name="web")
        with pytest.raises(Conflict):
            await world.registry.rename(other, "api", ME)
        assert await world.registry.resolve("api", None) == second.id


async def test_a_send_does_not_open_a_closed_session_again_under_a_name_that_is_taken() -> None:
    async with World().run() as world:
        old = await world.session(name="api")
        known = await inject(old, "x", key="k")
        await old.close(True, ME)
        new = await world.session(name="api")
        with pytest.raises(Conflict) as refused:
            await inject(old, "y")
        assert refused.value.outcome == "not-written"
        assert (await inject(old, "x", key="k"))["message"] == known["message"]
        await new.close(False, ME)
        assert (await inject(old, "y"))["reopened"]


async def test_many_that_make_one_name_at_once_make_one() -> None:
    async with World().run() as world:
        made: list[str] = []

        async def one() -> None:
            try:
                made.append((await world.session(name="api")).id)
            except Conflict:
                return

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one)
        assert len(made) == 1


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"dir": "rel"}, Invalid),
        ({"dir": "/no/such/dir"}, NotFound),
        ({"dir": "/", "name": "s1234567"}, Invalid),
    ],
)
async def test_what_cannot_be_made_is_refused(params: dict[str, Any], error: type[DshError]) -> None:
    async with World().run() as world:
        with pytest.raises(error):
            await world.registry.create(wire.CreateParams(**params), ME)
        assert world.store.ids() == []


@pytest.mark.parametrize(("dir", "mode"), [("/", "read-only"), ("/tmp", "workspace")])
async def test_a_session_of_everything_may_only_read_unless_it_is_said(dir: str, mode: str) -> None:
    async with World().run() as world:
        session, _ = await world.registry.create(wire.CreateParams(dir=dir), ME)
        assert session.show()["mode"] == mode
        said, _ = await world.registry.create(wire.CreateParams(dir=dir, mode="full"), ME)
        assert said.show()["mode"] == "full"


# --- opened at a start ----------------------------------------------------------------------------------


async def waiting(world: World, session: Session) -> None:
    """A turn that waits in a tool."""
    world.script = [call("gate")]
    await followup(session, "work")
    await world.gate.began.wait()


async def held(world: World, session: Session) -> None:
    await followup(session, "later", in_=3600.0)


async def parked(world: World, session: Session) -> None:
    await waiting(world, session)
    await followup(session, "parked")
    await session.abort(wire.AbortParams(), ME)


async def with_an_inject(world: World, session: Session) -> None:
    await inject(session, "fact")


async def nothing(world: World, session: Session) -> None:
    sent = await followup(session, "x")
    await settled(session, sent["message"])


OPENED = {waiting: True, held: True, parked: False, with_an_inject: False, nothing: False}


@pytest.mark.parametrize("how", OPENED, ids=lambda how: how.__name__)
async def test_exactly_what_has_something_to_do_is_opened_at_a_start(how: Any, autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        await how(world, session)
        await trio.sleep(5)  # what a session doesn't need any more is taken away after a while
        after = world.crash(Everything())
    async with after.run():
        assert (session.id in after.registry.loaded) == OPENED[how]


async def test_a_marker_is_durable_with_the_acknowledgement() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await followup(session, "x")
        after = world.crash()
    async with after.run():
        assert session.id in after.registry.loaded
        assert (await settled(await after.again(session), sent["message"]))["outcome"] == "completed"


async def test_a_marker_that_is_taken_away_while_a_message_comes_is_there_again(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        for n in range(40):
            sent = await followup(session, f"t{n}")
            await settled(session, sent["message"])
            await trio.sleep(1.97 + n * 0.001)
            last = await followup(session, "a send in the instant of the unmarking", no_wake=True)
            await session.wake(wire.WakeParams(), ME)
            assert session.id in World(memory(world).crash()).store.marked() or session.message(
                last["message"]
            )["state"] in ("settled", "entered", "claimed")
            await session.wait_idle()


async def test_a_session_that_cannot_be_opened_does_not_keep_the_others() -> None:
    async with World().run() as world:
        bad, good = await world.session(), await world.session()
        world.script = [call("gate"), call("gate")]
        await followup(bad, "x")
        sent = await followup(good, "y")
        await until(good, lambda: good.state.turn)
        after = world.crash()
    path = after.store.log_path(bad.id)
    after.disk.write_synced(path, b"no log at all\n")
    after.gate.opened.set()
    async with after.run():
        again = await after.again(good)
        assert (await settled(again, sent["message"]))["outcome"] in ("completed", "interrupted")
        assert (await after.registry.get(bad.id)).show()["state"] in ("damaged", "unsupported")


async def test_a_marker_that_cannot_be_taken_away_stops_nothing(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with World().run() as world:
        session = await world.session()
        for id in (session.id, "s2345678"):
            memory(world).fail("unlink", errno.EIO, path=f"active/{id}", times=-1)
        world.store.mark("s2345678")
        async with World(world.disk).run():
            pass
        for n in range(3):
            await settled(session, (await followup(session, f"t{n}"))["message"])
            await trio.sleep(60)
            assert world.store.is_marked(session.id)
        assert "s2345678" in caplog.text
        assert session.id in caplog.text


MISTAKES = [
    pytest.param(True, Environments, "read", id="when one is loaded"),
    pytest.param(False, listing, "view_from_log", id="when one is listed"),
]


@pytest.mark.parametrize(("busy", "where", "name"), MISTAKES)
async def test_a_mistake_of_ours_in_one_session_is_not_the_end_of_the_others(
    busy: bool, where: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with World().run() as world:
        sessions = [await world.session() for _ in range(5)]
        if busy:
            for session in sessions:
                await followup(session, "x", hold=True)
        after = world.crash()
    bad, good = sessions[2].id, getattr(where, name)

    def mistaken(*args: Any) -> Any:
        if bad in str(args[1]):
            raise RuntimeError("a bug")
        return good(*args)

    monkeypatch.setattr(where, name, mistaken)
    async with after.run():
        assert bool(after.registry.loaded) == busy
        assert len(await after.registry.rows()) == 5
        for session in sessions:
            if session.id != bad:
                again = await after.again(session)
                assert (await settled(again, (await followup(again, "y"))["message"]))["exit"] == 0
    assert f"session {bad}" in caplog.text


async def test_loading_one_session_many_times_at_once_is_one_loading() -> None:
    async with World().run() as world:
        session = await world.session()
        await inject(session, "x")
        after = world.crash()
    async with after.run():
        found: set[int] = set()

        async def one() -> None:
            found.add(id(await after.registry.get(session.id)))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one)
        assert len(found) == 1


async def test_reading_never_writes() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await followup(session, "x")
        await settled(session, sent["message"])
        await inject(session, "y")
        after = world.crash(Everything())
    async with after.run():
        before = after.disk.read_bytes(after.store.log_path(session.id))
        again = await after.again(session)
        again.show()
        again.queue_ls()
        again.message(sent["message"])
        again.why(sent["message"])
        again.answer(None, 1)
        await again.wait_idle()
        await after.registry.fsck(session.id)
        await after.registry.rows()
        assert after.disk.read_bytes(after.store.log_path(session.id)) == before


# --- closing and removing -------------------------------------------------------------------------------


async def test_a_run_session_closes_itself_when_it_is_done() -> None:
    async with World().run() as world:
        session, receipt = await run(world)
        await settled(session, receipt["message"])
        await until(session, lambda: session.state.closed)
        assert world.types(session)[-1] == "session/closed"


async def test_a_run_session_with_something_pending_stays_open() -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("x")]
        session, receipt = await run(world)
        await world.gate.began.wait()
        await followup(session, "quiet", no_wake=True, hold=True)
        world.gate.opened.set()
        await settled(session, receipt["message"])
        await session.wait_idle()
        assert not session.state.closed


@pytest.mark.parametrize("how", [waiting, held, with_an_inject], ids=lambda how: how.__name__)
async def test_closing_and_removing_refuse_what_runs_or_holds_messages_unless_forced(how: Any) -> None:
    for what in ("close", "remove"):
        async with World().run() as world:
            session = await world.session()
            await how(world, session)
            with pytest.raises(Conflict):
                await (
                    session.close(False, ME)
                    if what == "close"
                    else world.registry.delete(session.id, False, ME)
                )
            if what == "close":
                assert (await session.close(True, ME))["state"] == "closed"
                assert session.state.pending == 0
            else:
                await world.registry.delete(session.id, True, ME)
                assert world.store.ids() == []
                with pytest.raises(NotFound):
                    await world.registry.get(session.id)


@pytest.mark.parametrize("n", range(6))
async def test_a_power_cut_while_a_session_is_removed_leaves_it_whole_or_gone(n: int) -> None:
    async with World().run() as world:
        session = await world.session()
        await inject(session, "x")
        disk, cuts = memory(world), []
        disk.before(lambda name, path: cuts.append(disk.crash()))
        await world.registry.delete(session.id, True, ME)
        disk.before(None)
    world = World(cuts[min(n, len(cuts) - 1)])
    async with world.run():
        if world.store.ids():
            assert (await world.registry.get(session.id)).broken is None
        assert not [name for name in world.disk.listdir(STATE / "sessions") if name.startswith(".")]
