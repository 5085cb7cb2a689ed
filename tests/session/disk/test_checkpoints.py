"""Checkpoints and the archive: whatever becomes of them, what is loaded is what the log says."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.errors import Conflict
from dshd.log.memory import Everything, MemoryDisk, Nothing, Prefix, Seeded
from dshd.session.disk import archive, checkpoint, freeze, opening
from dshd.session.disk.checkpoint import Unfit
from dshd.session.fold.events import Message
from dshd.session.fold.state import Keyed, Parked, State
from dshd.session.fold.turns import Abort, CallState, OpenTurn
from dshd.session.fold.undo import Removal
from dshd.session.owner.loading import Upkeep
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, memory, say, settled, steer

EAGER = Upkeep(idle=2.0, look=0.5, least=1, working=3000)
FILES = (checkpoint.NAME, archive.INDEX, archive.LINES)


def same(world: World, id: str) -> opening.Loaded:
    """What a glance gives is what the whole log gives."""
    path = world.store.log_path(id)
    whole, quick = opening.look(world.disk, path), opening.glance(world.disk, path)
    expected, got = whole.state.digest(), quick.state.digest()
    assert got == expected, [part for part in got if got[part] != expected[part]]
    assert [e.data for e in quick.state.surface] == [e.data for e in whole.state.surface]
    assert quick.opened == whole.opened
    assert quick.partial == whole.partial
    return quick


def place(world: World, id: str, name: str) -> Path:
    return world.store.session_dir(id) / name


async def unloaded(world: World, id: str) -> None:
    with trio.fail_after(30):
        while id in world.registry.loaded:  # noqa: ASYNC110 - the registry looks by the clock, too
            await trio.sleep(0.5)


async def a_life(world: World, session: Session) -> list[str]:
    """Turns with tools, keys, an abort, a removal; a few things that still wait."""
    world.script = [call("quick:a", "look:b"), say("one"), say("two"), call("gate"), say("three")]
    first = await followup(session, "work", key="first")
    second = await followup(session, "second", key="second")
    await settled(session, second["message"])
    third = await followup(session, "third")
    await world.gate.began.wait()
    await steer(session, "steered")
    await session.abort(wire.AbortParams(), ME)
    removed = await inject(session, "removed")
    await session.queue_change("rm", [removed["message"]], ME)
    waits = await inject(session, "waits", key="waits")
    return [one["message"] for one in (first, second, third, removed, waits)]


async def a_kept_session(world: World) -> tuple[str, list[str]]:
    """A session that was unloaded, with a checkpoint and an archive beside its log."""
    session = await world.session()
    ids = await a_life(world, session)
    await unloaded(world, session.id)
    assert same(world, session.id).kept.mark.offset > 0  # type: ignore[union-attr]
    return session.id, ids


# --- what is loaded --------------------------------------------------------------------------------


async def test_a_session_that_rests_leaves_memory_and_comes_back_as_it_was(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, ids = await a_kept_session(world)
        again = await world.registry.get(id)
        assert not {ids[0], ids[1]} & set(again.state.receipts.hot())
        assert again.message(ids[0])["state"] == "settled"
        assert again.answer(ids[0], 1)["text"] == "one"
        assert (await again.wait_message(ids[1]))["outcome"] == "completed"
        assert again.message(ids[4])["state"] == "pending"
        check_memory(again, world.events(id))


async def test_a_key_of_long_ago_finds_its_first_receipt(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, ids = await a_kept_session(world)
        again = await world.registry.get(id)
        receipt = await followup(again, "work", key="first")
        assert (receipt["message"], receipt["duplicate"], receipt["state"]) == (ids[0], True, "settled")
        with pytest.raises(Conflict):
            await followup(again, "other work", key="first")


async def test_the_model_gets_the_same_history_as_if_nothing_had_been_unloaded(autojump_clock: Any) -> None:
    requests = []
    for upkeep in (None, EAGER):
        async with World(upkeep=upkeep).run() as world:
            session = await world.session()
            await a_life(world, session)
            if upkeep is not None:
                await unloaded(world, session.id)
            again = await world.registry.get(session.id)
            world.script = [say("four")]
            await settled(again, (await followup(again, "go on"))["message"])
            text = world.requests[-1].decode()
            requests.append(text[text.index("work") :].replace(session.id, "S"))
    assert requests[0].count("'role'") == requests[1].count("'role'") > 8


async def test_old_turns_are_found_by_their_answers(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, _ids = await a_kept_session(world)
        again = await world.registry.get(id)
        assert again.answer(None, 1)["text"] == "two"
        assert again.answer(None, 2)["text"] == "one"


async def test_what_is_held_by_a_request_stays(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        session = await world.session()
        release = session.hold()
        await trio.sleep(20)
        assert session.id in world.registry.loaded
        release()
        await unloaded(world, session.id)


async def test_who_waits_for_a_message_keeps_the_session(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world, trio.open_nursery() as nursery:
        session = await world.session()
        waits = await session.send(wire.SendParams(verb="inject", text="a fact"), ME)

        async def wait() -> None:
            await session.wait_message(waits["message"], stay=True)

        nursery.start_soon(wait)
        await trio.sleep(20)
        assert session.id in world.registry.loaded
        nursery.cancel_scope.cancel()


async def test_what_comes_due_is_not_unloaded(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        session = await world.session()
        sent = await session.send(wire.SendParams(verb="followup", text="later", in_=100.0), ME)
        world.clock_offset += 200_000
        with trio.fail_after(60):
            assert (await session.wait_message(sent["message"]))["outcome"] == "completed"


async def test_a_session_that_was_unloaded_refuses_to_be_written_to(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        session = await world.session()
        await unloaded(world, session.id)
        with pytest.raises(Exception, match="try again"):
            await followup(session, "too late")
        assert world.types(session.id) == ["session/header"]


async def test_a_small_log_is_not_worth_a_checkpoint(autojump_clock: Any) -> None:
    async with World(upkeep=attrs.evolve(EAGER, least=1 << 20)).run() as world:
        session = await world.session()
        await a_life(world, session)
        await unloaded(world, session.id)
        assert not world.disk.exists(place(world, session.id, checkpoint.NAME))
        same(world, session.id)


# --- what is wrong with them ------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
async def test_a_changed_byte_anywhere_is_noticed(name: str, autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, _ids = await a_kept_session(world)
        disk, path, rng = memory(world), place(world, id, name), Random(name)
        good = disk.peek(path)
        for _ in range(60):
            at = rng.randrange(len(good))
            disk.poke(path, good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :])
            if name == archive.LINES:  # it is only read where somebody asks
                await check_and_mend(world, id)
            else:
                assert same(world, id).kept.mark.offset == 0  # type: ignore[union-attr]


async def check_and_mend(world: World, id: str) -> None:
    again = await world.registry.get(id)
    for n in range(1, again.state.next_message):
        (await again.recall(("m", f"{id}.{n}")))()
    check_memory(again, world.events(id))
    await unloaded(world, id)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut in the middle": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"not what you think\n",
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("name", FILES)
async def test_a_file_that_is_another_is_ignored_and_made_again(
    name: str, how: str, autojump_clock: Any
) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, ids = await a_kept_session(world)
        disk, path = memory(world), place(world, id, name)
        disk.poke(path, CHANGES[how](disk.peek(path)))
        if name == archive.LINES:
            await check_and_mend(world, id)
        same(world, id)
        again = await world.registry.get(id)
        check_memory(again, world.events(id))
        world.script = [say("more")]
        await settled(again, (await followup(again, "more"))["message"])
        await unloaded(world, id)
        assert same(world, id).kept.mark.offset > 0  # type: ignore[union-attr]
        assert (await world.registry.get(id)).message(ids[0])["state"] == "settled"


@pytest.mark.parametrize("name", FILES)
async def test_a_file_deleted_while_the_daemon_runs_is_made_again(name: str, autojump_clock: Any) -> None:
    async with World(upkeep=attrs.evolve(EAGER, idle=20.0)).run() as world:
        id, ids = await a_kept_session(world)
        again = await world.registry.get(id)
        world.disk.unlink(place(world, id, name))
        drop = await again.recall(("m", ids[0]), ("k", "first"))
        assert again.message(ids[0])["state"] == "settled"
        assert (await followup(again, "work", key="first"))["duplicate"]
        drop()
        check_memory(again, world.events(id))
        world.script = [say("more")]
        await settled(again, (await followup(again, "more"))["message"])
        await unloaded(world, id)
        assert same(world, id).kept.mark.offset > 0  # type: ignore[union-attr]


async def test_a_foreign_checkpoint_is_ignored(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, _ids = await a_kept_session(world)
        world.gate.began, world.gate.opened = trio.Event(), trio.Event()
        other, _ = await a_kept_session(world)
        for name in FILES:
            memory(world).poke(place(world, id, name), memory(world).peek(place(world, other, name)))
        assert same(world, id).kept.mark.offset == 0  # type: ignore[union-attr]


async def test_a_checkpoint_of_another_version_is_ignored(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, _ids = await a_kept_session(world)
        monkeypatch.setattr(freeze, "fingerprint", lambda: "another")
        assert same(world, id).kept.mark.offset == 0  # type: ignore[union-attr]


async def test_an_old_checkpoint_is_a_beginning(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, _ids = await a_kept_session(world)
        old = {name: memory(world).peek(place(world, id, name)) for name in FILES}
        again = await world.registry.get(id)
        world.script = [say("more")]
        await settled(again, (await followup(again, "more"))["message"])
        await unloaded(world, id)
        memory(world).poke(place(world, id, checkpoint.NAME), old[checkpoint.NAME])
        loaded = same(world, id)  # the archive is longer than it says, and that is fine
        assert 0 < loaded.kept.mark.seq < loaded.state.seq  # type: ignore[union-attr]


async def test_damage_in_the_part_that_a_checkpoint_covers_is_found(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, _ids = await a_kept_session(world)
        path = world.store.log_path(id)
        good = memory(world).peek(path)
        at = good.index(b"second")
        memory(world).poke(path, good[:at] + b"X" + good[at + 1 :])
        quick = opening.glance(world.disk, path)
        assert quick.broken is not None
        assert quick.broken.word == "damaged"


async def test_a_shorter_log_is_not_what_the_checkpoint_speaks_of(autojump_clock: Any) -> None:
    async with World(upkeep=EAGER).run() as world:
        id, _ids = await a_kept_session(world)
        path = world.store.log_path(id)
        good = memory(world).peek(path)
        memory(world).poke(path, good[: good.rindex(b"\n", 0, -1) + 1])
        quick = same(world, id)
        assert quick.kept.mark.offset == 0  # type: ignore[union-attr]
        assert quick.broken is not None
        assert quick.broken.word == "damaged"


# --- crashes ---------------------------------------------------------------------------------------

SURVIVORS: dict[str, Callable[[int], Any]] = {
    "only what was synced": lambda n: Nothing(),
    "all that was written": lambda n: Everything(),
    "the first bytes": lambda n: Prefix(1 + n * 37 % 400),
    "some blocks": lambda n: Seeded(Random(n)),
}


@pytest.mark.parametrize("survivor", SURVIVORS)
async def test_a_power_cut_at_any_disk_call_never_changes_what_is_loaded(
    survivor: str, autojump_clock: Any
) -> None:
    cuts: list[MemoryDisk] = []
    async with World(upkeep=EAGER).run() as world:
        session = await world.session()
        disk = memory(world)
        disk.before(lambda name, path: cuts.append(disk.crash(SURVIVORS[survivor](len(cuts)))))
        await a_life(world, session)
        await unloaded(world, session.id)
        again = await world.registry.get(session.id)
        world.script = [call("quick:z"), say("more")]
        await settled(again, (await followup(again, "more"))["message"])
        await unloaded(world, session.id)
        disk.before(None)
    written = 0
    for cut in cuts:
        after = World(cut)
        assert same(after, session.id).broken is None  # what is told of a log is never more than the log
        if after.disk.exists(place(after, session.id, checkpoint.NAME)):
            written += 1
            checkpoint.restore(after.disk, after.store.log_path(session.id))  # what is there always fits
    assert written > 20
    for cut in cuts[::5]:
        after = World(cut, upkeep=EAGER)
        after.clock_offset = 60_000
        after.gate.opened.set()
        async with after.run():
            session = await after.registry.get(session.id)
            await session.wait_idle()
            check_log(after.events(session), quiet=True)
            check_memory(session, after.events(session))


@pytest.mark.parametrize("call_", ["open", "write", "fsync", "rename"])
async def test_a_disk_that_fails_under_a_checkpoint_changes_nothing(call_: str, autojump_clock: Any) -> None:
    async with World(upkeep=attrs.evolve(EAGER, idle=5.0)).run() as world:
        session = await world.session()
        for name in (*FILES, f".{checkpoint.NAME}.tmp"):
            memory(world).fail(call_, 5, path=str(place(world, session.id, name)), times=3)
        ids = await a_life(world, session)
        check_memory(session, world.events(session))
        await unloaded(world, session.id)
        again = await world.registry.get(session.id)
        assert again.broken is None
        assert again.message(ids[0])["state"] == "settled"
        same(world, session.id)


async def test_a_checkpoint_is_never_in_the_way_of_what_is_sent(autojump_clock: Any) -> None:
    async with World(upkeep=attrs.evolve(EAGER, working=1)).run() as world:
        session = await world.session()
        world.script = [say(str(n)) for n in range(30)]
        sent = [await followup(session, f"number {n}", key=str(n)) for n in range(30)]
        await settled(session, sent[-1]["message"])
        check_memory(session, world.events(session))
        assert len(session.state.receipts.hot()) < 20
        again = [await followup(session, f"number {n}", key=str(n)) for n in range(30)]
        assert [one["message"] for one in again] == [one["message"] for one in sent]
        same(world, session.id)


# --- freezing --------------------------------------------------------------------------------------


def test_everything_that_a_state_holds_comes_back_equal() -> None:
    message = Message("s.1", ({"type": "text", "text": "~x"},), {"~": 1}, 1, True, "say", key="k", due=5)
    turn = OpenTurn(3, 1, claimed=(("next-turn", message),), calls={"c": CallState("c", "bash", "{}")},
                    abort=Abort("user", "keep", {"kind": "user"}), usage={"input": 1.5})  # fmt: skip
    state = State(
        header={"id": "s", "~Odd": [1]}, queues={"next-turn": (message,), "next-step": (), "held": ()},
        turn=turn, parked=Parked("abort", None, 1, 2), removals=(Removal(1, "clear", 2, None, ("s.1",)),),
    )  # fmt: skip
    state.keys["k"] = Keyed("s.1", "f")
    state.files["a"] = 5
    assert freeze.thaw(freeze.freeze(state)).digest() == state.digest()


def test_every_field_of_the_state_is_frozen_or_lies_on_disk() -> None:
    names = {field.name for field in attrs.fields(State)}
    assert set(freeze._fields()[State]) == names


def test_what_the_fold_does_not_know_is_refused() -> None:
    with pytest.raises(freeze.Unfreezable):
        freeze.freeze({"a": {1, 2}})
    stale: Any
    for stale in ({"~Nobody": []}, {"~Message": [1]}, {"~Table": 5}):
        with pytest.raises(freeze.Stale):
            freeze.thaw(stale)


def test_the_version_of_the_fold_covers_every_module_that_the_fold_imports() -> None:
    for module in freeze.fold_modules():
        if module == freeze.__name__:
            continue
        tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text())
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dshd.session."):
                assert imported(node) <= set(freeze.fold_modules())


def imported(node: ast.ImportFrom) -> set[str]:
    """The modules: those of a package that are named, or the one that something is taken from."""
    package = hasattr(sys.modules[str(node.module)], "__path__")
    return {f"{node.module}.{alias.name}" for alias in node.names} if package else {str(node.module)}


def test_no_checkpoint_is_no_error() -> None:
    disk = MemoryDisk()
    with pytest.raises(Unfit):
        checkpoint.restore(disk, Path("/nowhere/log.jsonl"))
