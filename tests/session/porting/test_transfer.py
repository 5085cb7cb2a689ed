"""Fork, export and import: what goes along, what stays, and that nothing of it runs by itself."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterable
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.errors import Conflict, Damaged, DshError, Invalid, NotFound, Unsupported
from dshd.log.codec import Event, encode
from dshd.log.memory import MemoryDisk
from dshd.model.errors import ModelError
from dshd.session.fold.folding import fold
from dshd.session.fold.state import _parts
from dshd.session.owner.session import Session
from dshd.session.porting import tar
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer, until
from tests.session.scripted import Account, play

LONG = "long\n" * 20_000


async def fork(world: World, session: Session, at: int | None = None, name: str | None = None) -> Session:
    answer = await world.registry.fork(session, wire.ForkParams(at=at, name=name), ME)
    return await world.registry.get(answer["session"])


async def export(world: World, session: Session | str) -> bytes:
    made = await world.registry.export(session if isinstance(session, str) else session.id)
    data = b""
    while piece := await made.next():
        data += piece
    return data


async def take(world: World, data: bytes, **more: Any) -> dict[str, Any]:
    params = wire.ImportParams(upload="u1", **more)
    return await world.registry.take(io.BytesIO(data).read, params, ME)


async def taken(world: World, data: bytes, **more: Any) -> Session:
    return await world.registry.get((await take(world, data, **more))["session"])


async def begin(world: World, session: Session, text: str = "work") -> dict[str, Any]:
    """A turn that waits in a tool."""
    world.gate.began, world.gate.opened = trio.Event(), trio.Event()
    world.script = [call("quick:a", "gate")]
    sent = await followup(session, text)
    with trio.fail_after(5):
        await world.gate.began.wait()
    return sent


async def end(world: World, session: Session, sent: dict[str, Any]) -> None:
    world.gate.opened.set()
    await settled(session, sent["message"])


def seen(events: Iterable[Event]) -> list[tuple[str, Any]]:
    """What the model sees of a log."""
    kept = [e for e in events if e.surface is not None]
    return [(e.type, {k: v for k, v in e.data.items() if k not in ("id", "key")}) for e in kept]


def files(data: bytes) -> dict[str, bytes]:
    found, reader, at = {}, tar.Reader(), 0
    while (member := reader.member(data[at : at + tar.BLOCK])) is not None:
        at += tar.BLOCK
        found[member.name] = data[at : at + member.size]
        at += member.size + member.padding
    return found


def archive(contents: dict[str, bytes]) -> bytes:
    parts = [tar.header(n, len(c), 0) + c + tar.padding(len(c)) for n, c in contents.items()]
    return b"".join(parts) + tar.END


async def talk(world: World, session: Session) -> None:
    world.script = [call("quick:x"), say("one"), say("two")]
    for text in ("first", LONG):
        await settled(session, (await followup(session, text, key=f"k{len(text)}"))["message"])


# --- fork ------------------------------------------------------------------------------------------


async def test_a_fork_sees_what_its_parent_saw_and_starts_idle_and_empty() -> None:
    world = World()
    async with world.run():
        parent = await world.session(name="api")
        await talk(world, parent)
        await session_with_a_queue(world, parent)
        child = await fork(world, parent)
        assert seen(world.events(child)) == seen(world.events(parent))
        state = child.state
        assert (state.pending, state.parked, state.turn, state.runnable) == (0, None, None, False)
        assert (state.name, state.last_turn, state.title) == ("api-2", 4, "first")
        assert (state.header or {})["parent"] == parent.id
        assert not list(state.keys.items())
        assert dict(state.spent) == {}
        check_log(world.events(child), quiet=True)
        check_memory(child, world.events(child))
        assert (await world.registry.fsck(child.id, requests=True))["requests"]["compared"] == 5
        assert (await world.registry.fsck(child.id, requests=True))["ok"]


async def session_with_a_queue(world: World, session: Session) -> None:
    """Parked by an error, with something waiting, and something held."""
    world.script = [ModelError("AUTH", "no")]
    await settled(session, (await followup(session, "fails"))["message"])
    await session.wake(wire.WakeParams(), ME)
    world.script = [ModelError("AUTH", "no")]
    await settled(session, (await followup(session, "fails too"))["message"])
    await inject(session, "waits")
    await followup(session, "held", hold=True)


async def test_the_history_of_a_fork_is_sent_with_its_first_message_and_both_go_their_ways() -> None:
    world = World()
    async with world.run():
        parent = await world.session(name="api")
        await talk(world, parent)
        child = await fork(world, parent)
        before = world.disk.read_bytes(world.store.log_path(parent.id))
        world.script = [say("three")]
        done = await settled(child, (await followup(child, "third"))["message"])
        assert done["turn"] == 3
        assert done["message"] == f"{child.id}.{parent.state.next_message}"
        assert b"first" in world.requests[-1]
        assert b"quick x" in world.requests[-1]
        assert world.disk.read_bytes(world.store.log_path(parent.id)) == before
        check_log(world.events(child), quiet=True)
        assert (await world.registry.fsck(child.id, requests=True))["ok"]


async def test_a_forks_attachments_are_its_own() -> None:
    world = World()
    async with world.run():
        parent = await world.session()
        await talk(world, parent)
        child = await fork(world, parent)
        names = world.disk.listdir(world.store.attachments(parent.id))
        assert names == world.disk.listdir(world.store.attachments(child.id)) != []
        await world.registry.delete(parent.id, False, ME)
        for name in names:
            assert world.disk.read_bytes(world.store.attachments(child.id) / name).decode() == LONG
        assert child.message(f"{child.id}.2")["state"] == "settled"
        await followup(child, LONG, key=f"k{len(LONG)}")  # a key of the parent's is a new one here


async def test_every_point_outside_a_turn_can_be_forked_and_no_other() -> None:
    world = World()
    async with world.run():
        parent = await world.session()
        world.script = [call("look:a", "quick:b"), say("one"), ModelError("AUTH", "no"), say("three")]
        for text in ("first", "second", "third"):
            await settled(parent, (await followup(parent, text))["message"])
        events, inside, outside = world.events(parent), False, []
        for event in events:
            inside = inside or event.type == "turn/start"
            inside = inside and event.type != "turn/end"
            outside += [] if inside else [event.seq]
        for event in events:
            if event.seq in outside:
                child = await fork(world, parent, at=event.seq)
                assert seen(world.events(child)) == seen(events[: event.seq + 1])
                assert not child.state.runnable
                continue
            with pytest.raises(Conflict, match=f"event {event.seq} .* inside turn") as refused:
                await fork(world, parent, at=event.seq)
            near = [max(s for s in outside if s < event.seq), min(s for s in outside if s > event.seq)]
            assert refused.value.data["nearest"] == near
            assert f"dshctl fork --at {near[0]}" in refused.value.hint
        with pytest.raises(NotFound, match=f"its last is {events[-1].seq}"):
            await fork(world, parent, at=events[-1].seq + 1)


async def test_a_session_is_forked_while_its_turn_runs_before_that_turn() -> None:
    world = World()
    async with world.run():
        parent = await world.session(name="api")
        await talk(world, parent)
        sent = await begin(world, parent)
        answer = await world.registry.fork(parent, wire.ForkParams(), ME)
        assert (answer["turn"], answer["runs"]) == (2, 3)
        child = await world.registry.get(answer["session"])
        assert child.state.last_turn == 2
        start = next(e.seq for e in world.events(parent) if e.type == "turn/start" and e.data["turn"] == 3)
        with pytest.raises(Conflict, match="inside turn 3") as refused:
            await fork(world, parent, at=start + 1)
        assert refused.value.data["nearest"] == [start - 1]
        await end(world, parent, sent)


@pytest.mark.parametrize("at", [None, 3])
async def test_a_fork_of_a_session_that_is_removed_meanwhile_says_that_it_is_gone(at: int | None) -> None:
    world = World()
    async with world.run():
        parent = await world.session(name="api")
        await talk(world, parent)
        await world.registry.delete(parent.id, True, ME)
        with pytest.raises(NotFound, match="api|" + parent.id) as refused:
            await fork(world, parent, at=at)
        assert "log.jsonl" not in refused.value.message
        left = world.disk.listdir(world.store.sessions)
        assert not [name for name in left if not name.startswith(".trash")]


async def test_a_fork_of_a_turn_that_failed_can_retry_it() -> None:
    world = World()
    async with world.run():
        parent = await world.session()
        world.script = [ModelError("AUTH", "no")]
        await settled(parent, (await followup(parent, "work"))["message"])
        child = await fork(world, parent)
        world.script = [say("done")]
        retried = await child.retry(wire.RetryParams(), ME)
        assert (await settled(child, retried["message"]))["outcome"] == "completed"
        check_log(world.events(child), quiet=True)


async def test_a_fork_of_a_fork_and_of_a_repaired_log_is_whole() -> None:
    world = World()
    async with world.run():
        parent = await world.session()
        await talk(world, parent)
        path = world.store.log_path(parent.id)
        lines = world.disk.read_bytes(path).splitlines(keepends=True)
        broken = next(n for n, line in enumerate(lines) if b'"tool/result"' in line)
        data = b"".join([*lines[:broken], b"x" * len(lines[broken]), *lines[broken + 1 :]])
        id = parent.id
    world.disk.write_synced(path, data)
    again = world.crash()
    async with again.run():
        with pytest.raises(Damaged):
            await fork(again, await again.registry.get(id))
        await again.registry.repair(id, ME)
        parent = await again.registry.get(id)
        child = await fork(again, await fork(again, parent))
        theirs = [(e.type, e.data["turn"]) for e in parent.state.surface]
        assert [(kind, data["turn"]) for kind, data in seen(again.events(child))] == theirs
        assert child.state.last_turn == parent.state.last_turn


async def test_a_fork_keeps_settings_and_is_neither_a_run_nor_its_directorys() -> None:
    world = World()
    async with world.run():
        run = await world.session(
            run=True, key="nightly", text="work", env={"LANG": "C", "MY_TOKEN": "secret"}
        )
        await until(run, lambda: run.state.closed)
        child = await fork(world, run)
        settings = child.state.settings
        assert [settings.get(name) for name in ("run", "key", "implicit")] == [None, None, None]
        assert settings["mode"] == run.state.settings["mode"]
        assert world.registry.services.environment(child.state)["MY_TOKEN"] == "secret"
        assert b"secret" not in world.disk.read_bytes(world.store.log_path(child.id))
        await settled(child, (await followup(child, "more"))["message"])
        assert not child.state.closed


async def test_a_forks_name_is_free_or_refused() -> None:
    world = World()
    async with world.run():
        parent = await world.session(name="api")
        assert (await fork(world, parent)).state.name == "api-2"
        assert (await fork(world, parent, name="other")).state.name == "other"
        for name in ("other", "api"):
            with pytest.raises(Conflict, match=f'"{name}" is taken'):
                await fork(world, parent, name=name)
        with pytest.raises(Invalid):
            await fork(world, parent, name="s1234567")
        assert len(await world.registry.rows()) == 3
        assert [n for n in world.disk.listdir(world.store.sessions) if n.startswith(".")] == []


# --- export and import -----------------------------------------------------------------------------


async def test_an_export_is_the_log_and_what_belongs_to_it_without_environment_and_keys() -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api", env={"MY_TOKEN": "secret"})
        await talk(world, session)
        data = await export(world, session)
        found = files(data)
        log = world.disk.read_bytes(world.store.log_path(session.id))
        assert found.pop(f"{session.id}/log.jsonl") == log
        manifest = json.loads(found.pop(f"{session.id}/session.json"))
        assert (manifest["format"], manifest["id"], manifest["name"]) == (1, session.id, "api")
        assert [content.decode() for content in found.values()] == [LONG]
        assert b"secret" not in data


async def test_what_was_exported_while_a_turn_ran_is_parked_with_its_turn_closed() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session(name="api", env={"PATH": "/there"})
        await talk(world, session)
        sent = await begin(world, session)
        waiting = [(await steer(session, "steered"))["message"], (await followup(session, "next"))["message"]]
        data = await export(world, session)
        await end(world, session, sent)
    async with elsewhere.run():
        answer = await take(elsewhere, data, env={"PATH": "/here"})
        assert (answer["session"], answer["turn"], answer["pending"]) == (session.id, 3, 2)
        came = await elsewhere.registry.get(session.id)
        ended = came.state.turns[3]
        assert (ended.reason, ended.cause) == ("interrupted", "import")
        results = [e for e in elsewhere.events(came) if e.type == "tool/result" and e.data["turn"] == 3]
        assert len(results) == 2
        assert came.state.parked is not None
        assert came.state.parked.by == "import"
        assert elsewhere.registry.services.environment(came.state)["PATH"] == "/here"
        with trio.fail_after(5):
            assert (await came.wait_idle())["exit"] == 18
        assert elsewhere.requests == []
        check_memory(came, elsewhere.events(came))
        check_log(elsewhere.events(came), quiet=True)
        elsewhere.script = [say("a"), say("b")]
        await came.wake(wire.WakeParams(), ME)
        assert [(await settled(came, id))["outcome"] for id in waiting] == ["completed"] * 2
        assert (await elsewhere.registry.fsck(came.id, requests=True))["ok"]


async def test_nothing_of_an_import_runs_also_after_a_restart_until_a_users_waking_send() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session()
        sent = await begin(world, session)
        await followup(session, "next")
        due = await followup(session, "due", at=world.now() + 60_000)
        data = await export(world, session)
        await end(world, session, sent)
    async with elsewhere.run():
        await take(elsewhere, data)
    again = elsewhere.crash()
    again.clock_offset += 120_000
    async with again.run():
        came = await again.registry.get(session.id)
        await until(came, lambda: came.state.receipts[due["message"]].state == "pending")
        await trio.testing.wait_all_tasks_blocked()
        assert again.requests == []
        await inject(came, "still nothing")
        assert again.requests == []
        assert (await settled(came, (await followup(came, "go on"))["message"]))["outcome"] == "completed"
        await until(came, lambda: came.state.pending == 0)


async def test_an_id_that_is_taken_is_refused_and_a_new_one_renames_every_message() -> None:
    world = World()
    async with world.run():
        session = await world.session(name="api")
        await talk(world, session)
        await followup(session, "held", hold=True)
        data = await export(world, session)
        with pytest.raises(Conflict, match=f"{session.id} already") as refused:
            await take(world, data)
        assert "--as-new" in refused.value.hint
        came = await taken(world, data, as_new=True)
        assert came.id != session.id
        assert came.state.name == "api-2"
        old, new = world.events(session), world.events(came)
        assert [(e.seq, e.type) for e in new[: len(old)]] == [(e.seq, e.type) for e in old]
        assert session.id not in {id.partition(".")[0] for id, _ in came.state.receipts.items()}
        (held,), (copied,) = session.state.queues["held"], came.state.queues["held"]
        assert copied.id == held.id.replace(session.id, came.id)
        assert seen(new) == seen(old)
        check_log(new, quiet=True)
        check_memory(came, new)
        assert (await world.registry.fsck(came.id, requests=True))["ok"]
        await world.registry.delete(session.id, True, ME)
        assert (await take(world, data))["session"] == session.id


async def test_the_same_key_of_a_run_means_the_first_one_still() -> None:
    world = World()
    async with world.run():
        run = await world.session(run=True, key="nightly", text="work")
        await until(run, lambda: run.state.closed)
        copy = await taken(world, await export(world, run), as_new=True)
        assert copy.state.settings.get("key") is None
        again = await world.session(run=True, key="nightly", text="work")
        assert again.id == run.id


async def test_an_import_does_not_become_the_session_of_a_directory_that_has_one() -> None:
    world = World()
    async with world.run():
        session = await world.session(implicit=True)
        came = await taken(world, await export(world, session), as_new=True)
        assert came.state.settings["implicit"] is False
        assert await world.registry.resolve(None, "/") == session.id


async def test_two_imports_of_one_session_at_once_make_one() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session()
        await talk(world, session)
        data = await export(world, session)
    came: list[str] = []
    async with elsewhere.run():

        async def one() -> None:
            try:
                came.append((await take(elsewhere, data))["session"])
            except Conflict:
                came.append("refused")

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
        assert sorted(came) == ["refused", "refused", session.id]
        assert elsewhere.disk.listdir(elsewhere.store.sessions) == [session.id]


async def test_a_damaged_session_is_exported_and_imported_only_with_its_repair() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session(name="api")
        await talk(world, session)
        await followup(session, "parked", hold=True)
        path, id = world.store.log_path(session.id), session.id
        lines = world.disk.read_bytes(path).splitlines(keepends=True)
    lines[5] = b"x" * len(lines[5])
    world.disk.write_synced(path, b"".join(lines))
    async with world.crash().run():
        pass
    again = world.crash()
    async with again.run():
        data = await export(again, id)
        assert files(data)[f"{id}/log.jsonl"] == b"".join(lines)
    async with elsewhere.run():
        with pytest.raises(Damaged, match="damaged at line 6") as refused:
            await take(elsewhere, data)
        assert refused.value.hint == "dshctl import --repair FILE"
        assert elsewhere.disk.listdir(elsewhere.store.sessions) == []
        answer = await take(elsewhere, data, repair=True)
        assert answer["repaired"]
        came = await elsewhere.registry.get(id)
        assert came.usable
        assert came.state.parked is not None
        check_memory(came, elsewhere.events(came)) if not came.state.gap else None
        assert "log.damaged-5" in elsewhere.disk.listdir(elsewhere.store.session_dir(id))
        # Its id is taken now: whatever is tried first, the hint is what works.
        for flags, code in (({}, 7), ({"as_new": True}, 7), ({"repair": True}, 5)):
            with pytest.raises(DshError) as refused_too:
                await take(elsewhere, data, **flags)
            assert refused_too.value.exit_status == code
            assert refused_too.value.hint == "dshctl import --as-new --repair FILE"
        assert (await take(elsewhere, data, as_new=True, repair=True))["repaired"]


async def test_a_torn_tail_in_an_export_is_set_aside() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session()
        await talk(world, session)
        found = files(await export(world, session))
    found[f"{session.id}/log.jsonl"] += b'{"seq":99,"ti'
    async with elsewhere.run():
        came = await taken(elsewhere, archive(found))
        assert came.state.last_turn == 2
        names = elsewhere.disk.listdir(elsewhere.store.session_dir(came.id))
        assert any(name.startswith("log.torn-") for name in names)


async def test_a_plain_tar_of_a_sessions_directory_is_imported_without_what_is_left_behind() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session(env={"MY_TOKEN": "secret"})
        await talk(world, session)
        directory = world.store.session_dir(session.id)
        found = {}
        for name in ("log.jsonl", "env.json"):
            found[f"{session.id}/{name}"] = world.disk.read_bytes(directory / name)
        found[f"{session.id}/checkpoint.json"] = b"{}"
        found[f"{session.id}/.log.jsonl.new"] = b"{}"
        found[f"{session.id}/spill/1-2.txt"] = b"a lot"
    async with elsewhere.run():
        came = await taken(elsewhere, archive(found))
        assert came.state.last_turn == 2
        names = elsewhere.disk.listdir(elsewhere.store.session_dir(came.id))
        assert not {"env.json", "checkpoint.json", "spill"} & set(names)


async def test_an_attachment_that_is_not_what_its_name_says_is_left_out() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session()
        await talk(world, session)
        found = files(await export(world, session))
    attachment = next(name for name in found if "/attachments/" in name)
    found[attachment] = b"something else"
    async with elsewhere.run():
        assert (await take(elsewhere, archive(found)))["lost"] == 1
        assert elsewhere.disk.listdir(elsewhere.store.attachments(session.id)) == []


def header(**changes: Any) -> bytes:
    data = {"version": 1, "id": "s1234567", "created": 1, "dir": "/", "model": "m", "mode": "full", **changes}
    return encode(Event(0, 1, "session/header", {k: v for k, v in data.items() if v != "absent"}))


NEW = b'{"seq":0,"time":1,"type":"session/header","data":{"version":9}}\n'


@pytest.mark.parametrize(
    ("contents", "error", "why"),
    [
        ({"s1234567/log.jsonl": b"", "other/log.jsonl": b""}, Invalid, "no session's"),
        ({"s1234567/session.json": b"{}"}, Invalid, "can't be read"),
        ({"s1234567/session.json": b"[" * 60_000}, Invalid, "can't be read"),
        ({"s1234567/session.json": b" " * 70_000}, Invalid, "too long"),
        ({"s1234567/session.json": b'{"format":2}'}, Unsupported, "newer one"),
        ({"s1234567/attachments/x": b""}, Invalid, "no session's"),
        ({"s1234567/evil.sh": b""}, Invalid, "no session's"),
        ({"log.jsonl": b""}, Invalid, "no session's"),
        ({"s1234567/env.json": b"{}"}, Invalid, "holds no log.jsonl"),
        ({"s1234567/log.jsonl": b""}, Invalid, "which session it is"),
        ({"s1234567/log.jsonl": header(id="../../x")}, Invalid, "which session it is"),
        ({"s1234567/log.jsonl": header(id=7)}, Invalid, "which session it is"),
        ({"s1234567/log.jsonl": header(version=9)}, Unsupported, "newer"),
        ({"s1234567/log.jsonl": header(name=5)}, Invalid, "its name is 5"),
        ({"s1234567/log.jsonl": header(name="a\x1b[31m")}, Invalid, "its name is"),
        ({"s1234567/log.jsonl": header(dir="here")}, Invalid, "its dir is"),
        ({"s1234567/log.jsonl": header(dir="absent")}, Invalid, "lacks"),
        ({"s1234567/log.jsonl": header(mode="root")}, Invalid, "its mode is"),
        ({"s1234567/log.jsonl": header(mode=["full"])}, Invalid, "its mode is"),
        ({"s1234567/log.jsonl": header(created="now")}, Invalid, "lacks"),
        (
            {"s1234567/log.jsonl": header() + encode(Event(1, 1, "turn/end", {"turn": 1}))},
            Damaged,
            "makes no sense",
        ),
        (
            {"s1234567/log.jsonl": header() + encode(Event(1, 1, "inbox/spliced", {
                "cause": "send", "ops": [{"queue": "next-turn", "remove": [], "insert": [
                    {"id": "x", "content": [5]}], "before": None}]}))},
            Damaged,
            "makes no sense",
        ),
        (
            {"s1234567/log.jsonl": header() + encode(Event(1, 1, "future/thing", {}))},
            Unsupported,
            "newer",
        ),
    ],
)  # fmt: skip
async def test_what_no_dshd_wrote_is_refused_and_leaves_nothing(
    contents: dict[str, bytes], error: type[DshError], why: str
) -> None:
    world = World()
    async with world.run():
        for as_new in (False, True):
            with pytest.raises(error, match=why):
                await take(world, archive(contents), as_new=as_new)
        assert world.disk.listdir(world.store.sessions) == []
        assert await world.registry.rows() == []


async def test_an_export_cut_at_any_place_is_refused_and_leaves_nothing() -> None:
    world, elsewhere = World(), World()
    async with world.run():
        session = await world.session()
        world.script = [say("one")]
        await settled(session, (await followup(session, "first"))["message"])
        data = await export(world, session)
    async with elsewhere.run():
        end_mark = len(data) - len(tar.END)
        for size in [*range(0, end_mark, 97), end_mark]:
            with pytest.raises(Invalid):
                await take(elsewhere, data[:size])
        assert elsewhere.disk.listdir(elsewhere.store.sessions) == []
        assert (await take(elsewhere, data))["session"] == session.id


# --- crashes and full disks -----------------------------------------------------------------------


async def test_a_power_cut_while_one_is_imported_or_forked_leaves_the_whole_parked_session_or_none() -> None:
    world = World()
    async with world.run():
        session = await world.session()
        await talk(world, session)
        await followup(session, "held", hold=True)
        data = await export(world, session)
        disk, cuts = world.disk, []
        assert isinstance(disk, MemoryDisk)
        disk.before(lambda name, path: cuts.append(disk.crash()))
        child = await fork(world, session)
        copy = await taken(world, data, as_new=True)
        ids = {session.id, child.id, copy.id}
        cuts = cuts[:]
    assert len(cuts) > 40
    for cut in cuts:
        after = World(cut)
        async with after.run():
            there = set(cut.listdir(after.store.sessions))
            assert there <= ids
            for id in there - {session.id}:
                found = await after.registry.get(id)
                assert found.usable
                assert not found.state.runnable
                if id == copy.id:
                    assert found.state.parked is not None
                    assert len(found.state.queues["held"]) == 1
                check_log(after.events(found), quiet=True)


@pytest.mark.parametrize("name", ["create", "write", "fsync", "fdatasync", "rename", "mkdir"])
async def test_a_disk_that_fails_leaves_no_half_of_a_session(name: str) -> None:
    world = World()
    async with world.run():
        session = await world.session()
        await talk(world, session)
        data = await export(world, session)
        disk, failed = world.disk, 0
        assert isinstance(disk, MemoryDisk)
        for skip in range(4):
            for make in (lambda: fork(world, session), lambda: take(world, data, as_new=True)):
                disk.fail(name, errno.ENOSPC, skip=skip)
                try:
                    await make()
                except DshError:
                    failed += 1
                disk.heal()
        names = disk.listdir(world.store.sessions)
        assert failed > 0
        assert [name for name in names if name.startswith(".")] == []
        assert {row.id for row in await world.registry.rows()} == set(names)
        assert all(row.state != "damaged" for row in await world.registry.rows())


async def test_a_history_of_every_kind_is_the_same_under_another_id_and_forked_at_every_place() -> None:
    world = World()
    async with world.run():
        session = await world.session()
        await play(world, session, Account())
        old = world.events(session)
        came = await taken(world, await export(world, session), as_new=True)
        new = world.events(came)[: len(old)]
        for part, value in _parts(fold(old)).items():
            assert repr(_parts(fold(new))[part]) == repr(value).replace(session.id, came.id), part
        open_turn = False
        for event in old:
            open_turn = (open_turn or event.type == "turn/start") and event.type != "turn/end"
            if not open_turn and event.type == "turn/end":
                child = await fork(world, session, at=event.seq)
                assert seen(world.events(child)) == seen(old[: event.seq + 1])
                check_log(world.events(child), quiet=True)
                assert (await world.registry.fsck(child.id, requests=True))["ok"]
