"""The flags of a send: what each of them does to the queues, and what the receipt says."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from dshd import wire
from dshd.config import Config, Inbox
from dshd.errors import Conflict, DshError, Full, Invalid, NoSpace, Unavailable
from dshd.log.memory import MemoryDisk
from dshd.plugins import PreStep
from dshd.session.fold import attachments
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, settled, until

SMALL = Config(inbox=Inbox(max_pending=2))
BIG = "0123456789abcdef\n" * 5000  # 85 kB


async def busy(world: World) -> Session:
    """A session whose turn 1 runs a tool until the gate opens."""
    session = await world.session()
    world.script = [call("gate")]
    await followup(session, "work")
    await world.gate.began.wait()
    return session


# --- contradictions

WRONG: dict[str, dict[str, Any]] = {
    "two times": {"at": 1_900_000_000_000, "in_": 5.0},
    "a time and a person": {"in_": 5.0, "hold": True},
    "first, later": {"first": True, "in_": 5.0},
    "first, held": {"first": True, "hold": True},
    "supersede what": {"supersede": True},
    "a time before now": {"in_": -1.0},
    "gone at once": {"expires": 0.0},
    "held directly": {"queue": "held"},
}


@pytest.mark.parametrize("what", WRONG)
async def test_flags_that_contradict_each_other_are_refused(what: str) -> None:
    async with World().run() as world:
        session = await world.session()
        with pytest.raises(Invalid):
            await session.send(wire.SendParams(text="x", **WRONG[what]), ME)
        assert session.state.pending == 0


# --- supersede


async def test_a_message_replaces_all_that_wait_with_its_tag_in_one_event() -> None:
    async with World().run() as world:
        session = await world.session()
        old = [
            (await inject(session, "a", tag="t"))["message"],
            (await followup(session, "b", tag="t", hold=True))["message"],
            (await followup(session, "c", tag="t", no_wake=True))["message"],
        ]
        other = (await inject(session, "other", tag="u"))["message"]
        plain = (await inject(session, "plain"))["message"]
        receipt = await inject(session, "new", tag="t", supersede=True)
        assert sorted(receipt["superseded"]) == old
        assert [m.id for m in session.state.queues["next-step"]] == [other, plain, receipt["message"]]
        event = world.events(session)[-1]
        assert event.data["cause"] == "supersede"
        for id in old:
            found = session.message(id)
            assert (found["state"], found["outcome"]) == ("superseded", "superseded")
            assert found["way"][-1]["by"] == receipt["message"]
            assert (await session.wait_message(id))["exit"] == 17
        check_memory(session, world.events(session))


async def test_with_nothing_to_replace_it_is_an_ordinary_send() -> None:
    async with World().run() as world:
        session = await world.session()
        receipt = await inject(session, "new", tag="t", supersede=True)
        assert receipt["superseded"] == []
        assert world.events(session)[-1].data["cause"] == "send"


async def test_what_a_turn_has_taken_is_not_replaced(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate"), say("one"), say("two")]
        old = (await followup(session, "old", tag="t"))["message"]
        await world.gate.began.wait()
        receipt = await followup(session, "new", tag="t", supersede=True)
        assert receipt["superseded"] == []
        world.gate.opened.set()
        assert (await settled(session, old))["outcome"] == "completed"


async def test_a_full_queue_has_room_for_what_replaces_something() -> None:
    async with World(config=SMALL).run() as world:
        session = await world.session()
        await inject(session, "a", tag="t")
        await inject(session, "b")
        assert (await inject(session, "c", tag="t", supersede=True))["state"] == "pending"


async def test_a_tools_message_replaces_no_persons() -> None:
    async with World().run() as world:
        session = await world.session()
        mine = (await inject(session, "mine", tag="t"))["message"]
        tool = attrs.evolve(ME, kind="agent", session=session.id)
        its = await session.send(wire.SendParams(verb="inject", text="1", tag="t", supersede=True), tool)
        again = await session.send(wire.SendParams(verb="inject", text="2", tag="t", supersede=True), tool)
        assert (its["superseded"], again["superseded"]) == ([], [its["message"]])
        assert session.message(mine)["state"] == "pending"


async def test_the_same_key_supersedes_once() -> None:
    async with World().run() as world:
        session = await world.session()
        old = (await inject(session, "old", tag="t"))["message"]
        flags = {"tag": "t", "supersede": True, "key": "k"}
        first = await inject(session, "new", **flags)
        later = (await inject(session, "later", tag="t"))["message"]
        again = await inject(session, "new", **flags)
        assert (again["message"], again["duplicate"], again["superseded"]) == (first["message"], True, [old])
        assert session.message(later)["state"] == "pending"


# --- keys: verb as asked, blocks as first sent, tag


async def test_a_key_stands_for_what_was_asked() -> None:
    async with World().run() as world:
        session = await world.session()
        said = wire.SendParams(verb="say", text="x", key="k", wake=False)
        first = await session.send(said, ME)
        again = await session.send(said.replace(no_wake=True, first=True, expires=60.0), ME)
        assert (again["message"], again["duplicate"]) == (first["message"], True)
        for other in ({"verb": "followup"}, {"text": "y"}, {"tag": "t"}):
            with pytest.raises(Conflict):
                await session.send(said.replace(**other), ME)


async def test_a_key_of_say_means_the_same_whatever_runs(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await busy(world)
        said = wire.SendParams(verb="say", text="x", key="k")
        first = await session.send(said, ME)
        assert (first["verb"], first["queue"]) == ("steer", "next-step")
        world.gate.opened.set()
        await settled(session, first["message"])
        again = await session.send(said, ME)
        assert (again["message"], again["duplicate"]) == (first["message"], True)


async def test_an_edit_changes_no_key() -> None:
    async with World().run() as world:
        session = await world.session()
        first = await inject(session, "x", key="k")
        await session.queue_edit(wire.QueueEditParams(message=first["message"], text="y"), ME)
        assert (await inject(session, "x", key="k"))["duplicate"]
        with pytest.raises(Conflict):
            await inject(session, "y", key="k")


# --- on-crash


class Stuck:
    name = "stuck"

    async def pre_step(self, proposal: PreStep) -> PreStep:
        await trio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize(("on_crash", "state"), [(None, "pending"), ("requeue", "pending"), ("hold", "held")])
async def test_what_becomes_of_a_claimed_message_in_a_crash(
    on_crash: Any, state: str, autojump_clock: MockClock
) -> None:
    async with World(plugins=(Stuck(),)).run() as world:
        session = await world.session()
        id = (await followup(session, "x", on_crash=on_crash))["message"]
        await until(session, lambda: session.state.receipts[id].state == "claimed")
        again = world.crash()
    again.plugins = ()
    async with again.run():
        session = await again.registry.get(session.id)
        way = [stop["state"] for stop in session.message(id)["way"]]
        assert way[:3] == ["pending", "claimed", state]
        if state == "held":
            assert session.why(id)["reason"] == "held"
            assert session.why(id)["what"] == "crash"
            (need,) = session.show()["needs"]
            assert (need["kind"], need["id"], need["what"], need["count"]) == ("held", id, "crash", 1)
            await session.wake(wire.WakeParams(message=id), ME)
        assert (await settled(session, id))["outcome"] == "completed"
        assert session.show()["needs"] == []


class Failing:
    name = "failing"

    async def pre_step(self, proposal: PreStep) -> PreStep:
        raise RuntimeError("no")


async def test_what_is_held_after_three_failures_is_a_persons_and_what_a_person_holds_is_not() -> None:
    async with World(plugins=(Failing(),)).run() as world:
        session = await world.session()
        id = (await followup(session, "x"))["message"]
        for _ in range(3):
            await until(session, lambda: session.quiet)
            await session.wake(wire.WakeParams(session=session.id), ME)
        await until(session, lambda: session.state.receipts[id].state == "held")
        await followup(session, "mine", hold=True)
        (need,) = session.show()["needs"]
        assert (need["kind"], need["id"], need["what"], need["count"]) == ("held", id, "failed", 1)


# --- dry runs


async def would(session: Session, peer: Peer = ME, **flags: Any) -> dict[str, Any]:
    params = {"verb": "followup", "text": "x", **flags}
    return await session.send(wire.SendParams(**params, dry_run=True), peer)


IDLE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"would": "start-turn", "turn": 1, "exit": 0}),
    ({"verb": "steer"}, {"would": "start-turn", "turn": 1}),
    ({"verb": "inject"}, {"would": "wait", "queue": "next-step", "position": 2}),
    ({"no_wake": True}, {"would": "wait"}),
    ({"hold": True}, {"would": "wait", "queue": "held"}),
    ({"in_": 60.0}, {"would": "wait", "queue": "held"}),
    ({"key": "k", "verb": "inject", "tag": "t"}, {"would": "duplicate", "state": "pending", "exit": 0}),
    ({"key": "k", "text": "y"}, {"would": "refused", "exit": 5}),
    ({"if_turn": 3}, {"would": "refused", "exit": 5}),
    ({"if_empty": True}, {"would": "refused", "exit": 5}),
    ({"if_idle": True}, {"would": "start-turn"}),
    ({"tag": "t", "supersede": True}, {"would": "start-turn"}),
]


@pytest.mark.parametrize(("flags", "expected"), IDLE, ids=[str(flags) for flags, _ in IDLE])
async def test_a_dry_run_says_what_would_be_and_writes_nothing(flags: Any, expected: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        await inject(session, "x", key="k", tag="t")
        before = world.events(session)
        answer = await would(session, **flags)
        assert answer["type"] == "would"
        assert {name: answer[name] for name in expected} == expected
        assert (answer["error"] is not None) == (expected["would"] == "refused")
        assert world.events(session) == before


async def test_a_dry_run_while_a_turn_runs(autojump_clock: MockClock) -> None:
    async with World(config=SMALL).run() as world:
        session = await busy(world)
        assert (await would(session))["would"] == "wait"
        joins = await would(session, verb="steer")
        assert (joins["would"], joins["turn"]) == ("join-turn", 1)
        assert (await would(session, if_idle=True))["exit"] == 5
        await inject(session, "a")
        await inject(session, "b")
        assert (await would(session))["exit"] == 6
        world.gate.opened.set()


async def test_a_dry_run_keeps_no_attachment() -> None:
    async with World().run() as world:
        session = await world.session()
        await would(session, text=BIG)
        assert not world.disk.exists(world.store.attachments(session.id))


# --- when full


async def test_who_waits_for_room_is_served_in_order(autojump_clock: MockClock) -> None:
    async with World(config=SMALL).run() as world:
        session = await world.session()
        kept = [(await inject(session, text))["message"] for text in "ab"]
        order: list[str] = []

        async def wait(text: str) -> None:
            receipt = await inject(session, text, when_full="wait")
            order.append(session.message(receipt["message"])["text"])

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for text in "cde":
                    nursery.start_soon(wait, text)
                    await trio.testing.wait_all_tasks_blocked()
                assert order == []
                with pytest.raises(Full):
                    await inject(session, "refused")
                await session.queue_change("rm", kept, ME)
                await trio.testing.wait_all_tasks_blocked()
                assert order == ["c", "d"]
                await session.queue_clear(None, ME)
        assert order == ["c", "d", "e"]


async def test_who_goes_while_waiting_has_sent_nothing(autojump_clock: MockClock) -> None:
    async with World(config=SMALL).run() as world:
        session = await world.session()
        await inject(session, "a")
        await inject(session, "b")
        with trio.move_on_after(5):
            await inject(session, "gone", when_full="wait")
        await session.queue_clear(None, ME)
        assert (await inject(session, "c", when_full="wait"))["position"] == 1


async def test_a_known_key_waits_for_no_room(autojump_clock: MockClock) -> None:
    async with World(config=SMALL).run() as world:
        session = await world.session()
        first = await inject(session, "a", key="k")
        await inject(session, "b")
        with trio.fail_after(5):
            again = await inject(session, "a", key="k", when_full="wait")
        assert (again["message"], again["duplicate"]) == (first["message"], True)


async def test_a_stop_of_the_daemon_sends_those_away_who_wait(autojump_clock: MockClock) -> None:
    async with World(config=SMALL).run() as world:
        session = await world.session()
        await inject(session, "a")
        await inject(session, "b")
        refused: list[DshError] = []

        async def wait() -> None:
            try:
                await inject(session, "c", when_full="wait")
            except Unavailable as error:
                refused.append(error)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                await world.registry.drain(1)
        assert [error.outcome for error in refused] == ["not-written"]


async def test_bytes_are_a_limit_too_and_attachments_count_whole() -> None:
    async with World().run() as world:
        session = await world.session()
        text = "x" * (8 * 1024 * 1024)
        for n in range(8):
            await inject(session, text[:-1] + str(n))
        with pytest.raises(Full) as caught:
            await inject(session, text)
        assert caught.value.outcome == "not-written"
        assert (await inject(session, "one more", as_="hook"))["message"]  # only people are limited


# --- attachments


def file_of(world: World, session: Session, text: str) -> Any:
    sha = hashlib.sha256(text.encode()).hexdigest()
    return world.store.attachments(session.id) / f"{sha}.txt"


async def test_a_long_text_is_a_file_of_which_the_model_sees_both_ends(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        text = "first line\n" + BIG + "last line"
        id = (await followup(session, text))["message"]
        await settled(session, id)
        said = [e.data for e in world.events(session) if e.type == "user/message"]
        ((block,),) = [data["content"] for data in said if data["id"] == id]
        assert (block["type"], block["bytes"], block["lines"]) == ("file", len(text), 5002)
        path = file_of(world, session, text)
        assert world.disk.read_bytes(path) == text.encode()
        asked = world.requests[0].decode()
        assert "first line" in asked
        assert "last line" in asked
        assert str(path) in asked
        assert f"{len(text)} bytes" in asked
        assert len(asked) < 30_000
        (context,) = [e.data for e in world.events(session) if e.type == "request/context"]
        assert context["attachments"] == str(path.parent)


@pytest.mark.parametrize(("size", "kind"), [(64 * 1024, "text"), (64 * 1024 + 1, "file")])
async def test_64_kib_are_the_border(size: int, kind: str) -> None:
    async with World().run() as world:
        session = await world.session()
        id = (await inject(session, "é" * (size // 2) + "x" * (size % 2)))["message"]
        assert session.state.receipts[id].message.content[0]["type"] == kind


async def test_more_than_8_mib_are_refused() -> None:
    async with World().run() as world:
        session = await world.session()
        with pytest.raises(Full) as caught:
            await inject(session, "x" * (wire.MAX_TEXT + 1))
        assert caught.value.exit_status == 6


async def test_the_file_is_on_disk_before_the_receipt(autojump_clock: MockClock) -> None:
    """A power cut right after the acknowledgement leaves both, or neither was acknowledged."""
    async with World().run() as world:
        session = await world.session()
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        cuts: list[MemoryDisk] = []
        disk.before(lambda name, path: cuts.append(disk.crash()))
        await inject(session, BIG)
        disk.before(None)
        cuts.append(disk.crash())
        path, log = file_of(world, session, BIG), world.store.log_path(session.id)
        assert cuts[-1].read_bytes(path) == BIG.encode()
        for cut in cuts:
            if hashlib.sha256(BIG.encode()).hexdigest().encode() in cut.read_bytes(log):
                assert cut.read_bytes(path) == BIG.encode()


async def test_a_sessions_first_message_may_be_long(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        p = wire.CreateParams(dir="/", mode="full", text=BIG)
        session, receipt = await world.registry.create(p, ME)
        assert receipt is not None
        await settled(session, receipt["message"])
        assert world.disk.read_bytes(file_of(world, session, BIG)) == BIG.encode()
        assert isinstance(world.disk, MemoryDisk)
        assert world.disk.crash().read_bytes(file_of(world, session, BIG)) == BIG.encode()


async def test_what_a_refused_send_left_is_taken_away_unless_somebody_needs_it(
    autojump_clock: MockClock,
) -> None:
    async with World().run() as world:
        session = await world.session()
        other = BIG + "other"
        await inject(session, BIG, key="k")
        again = await inject(session, BIG, key="k")
        assert again["duplicate"]
        with pytest.raises(Conflict):
            await inject(session, other, key="k")
        with pytest.raises(Conflict):
            await inject(session, BIG, if_empty=True)
        await trio.testing.wait_all_tasks_blocked()
        assert world.disk.exists(file_of(world, session, BIG))
        assert not world.disk.exists(file_of(world, session, other))


async def test_a_full_disk_refuses_a_long_text_and_nothing_is_left(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        disk.limit(free=1000)
        with pytest.raises(NoSpace):
            await inject(session, BIG)
        disk.limit()
        await trio.testing.wait_all_tasks_blocked()
        assert session.state.pending == 0
        assert not world.disk.exists(file_of(world, session, BIG))
        await inject(session, BIG)


async def test_an_edit_may_be_long_and_a_restart_finds_all(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        id = (await inject(session, "short"))["message"]
        await session.queue_edit(wire.QueueEditParams(message=id, text=BIG), ME)
        again = world.crash()
    async with again.run():
        session = await again.registry.get(session.id)
        assert session.state.receipts[id].message.bytes == len(BIG)
        assert again.disk.read_bytes(file_of(again, session, BIG)) == BIG.encode()
        check_log(again.events(session), quiet=True)


def test_head_and_tail_are_whole_lines_where_lines_are_short() -> None:
    text = "".join(f"line {n}\n" for n in range(20_000))
    (block,) = attachments.content_of(text, None).blocks
    assert block["head"].startswith("line 0\n")
    assert all(line.startswith("line ") for line in block["head"].split("\n"))
    assert all(line.startswith("line ") for line in block["tail"].splitlines())
    assert text.endswith(block["tail"])
    (one,) = attachments.content_of("x" * 100_000, None).blocks
    assert (len(one["head"]), len(one["tail"]), one["lines"]) == (attachments.HEAD, attachments.TAIL, 1)


# --- why


WAITING: dict[str, tuple[dict[str, Any], str]] = {
    "behind": ({}, "behind"),
    "joins": ({"verb": "steer"}, "joins"),
    "held": ({"hold": True}, "held"),
    "due": ({"in_": 60.0}, "due"),
}


@pytest.mark.parametrize("what", WAITING)
async def test_why_says_what_is_waited_for_while_a_turn_runs(what: str, autojump_clock: MockClock) -> None:
    flags, reason = WAITING[what]
    async with World().run() as world:
        session = await busy(world)
        params = {"verb": "followup", "text": "x", **flags}
        id = (await session.send(wire.SendParams(**params), ME))["message"]
        facts = session.why(id)
        assert facts["reason"] == reason
        assert facts["sentence"].endswith(".")
        if reason == "behind":
            assert (facts["turn"], facts["doing"]) == (1, "gate:")
            assert facts["hint"] == f"dshctl queue promote {id}"


async def test_why_names_who_parked_it_and_when(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await busy(world)
        await followup(session, "a")
        id = (await followup(session, "b", expires=60.0))["message"]
        await session.abort(wire.AbortParams(), ME)
        facts = session.why(id)
        assert (facts["reason"], facts["what"], facts["ahead"]) == ("parked", "abort", 1)
        assert facts["by"]["tty"] == "pts/3"
        assert facts["at"] is not None
        assert facts["expires_at"] is not None


async def test_why_of_what_does_not_wait(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        done = (await followup(session, "a"))["message"]
        await settled(session, done)
        lone = (await inject(session, "b"))["message"]
        quiet = (await followup(session, "c", no_wake=True))["message"]
        gone = (await inject(session, "d"))["message"]
        await session.queue_change("rm", [gone], ME)
        reasons = {id: session.why(id)["reason"] for id in (done, lone, quiet, gone)}
        assert reasons == {done: "entered", lone: "rides", quiet: "no-wake", gone: "ended"}


async def test_why_waits_for_the_provider(autojump_clock: MockClock) -> None:
    from dshd.model.errors import ModelError

    async with World().run() as world:
        session = await world.session()
        world.script = [ModelError("RATE_LIMIT", "slow down", retry_after=5.0)]
        await followup(session, "a")
        id = (await followup(session, "b"))["message"]
        await until(session, lambda: "llm/retry" in world.types(session))
        facts = session.why(id)
        assert facts["reason"] == "provider"
        assert facts["until_at"] > world.now()
        await settled(session, id)
