"""What a person may do to messages that still wait: each is one event, durable, and names who did it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.config import Config, Inbox
from dshd.errors import Conflict, Full, NotFound
from dshd.session.owner.session import Session
from tests.session.invariants import check_memory
from tests.session.rig import ME, World, call, followup, inject, settled, steer


async def queued(world: World, session: Session) -> dict[str, str]:
    """Turn 1 runs; a, b, c wait in next-turn, s and t in next-step. {text: id}."""
    world.script = [call("gate")]
    await followup(session, "running")
    await world.gate.began.wait()
    ids = {}
    for text in "abc":
        ids[text] = (await followup(session, text))["message"]
    for text in "st":
        ids[text] = (await steer(session, text))["message"]
    return ids


def order(session: Session) -> tuple[str, str, str]:
    """The texts of next-turn, next-step and held, in order."""
    queues = session.state.queues
    names: tuple[Any, Any, Any] = ("next-turn", "next-step", "held")
    turn, step, held = ("".join(m.text for m in queues[name]) for name in names)
    return turn, step, held


# {command and texts: (next-turn, next-step, held) afterwards}
MOVES: dict[str, tuple[str, str, str]] = {
    "first c": ("cab", "st", ""),
    "first a": ("abc", "st", ""),
    "first bc": ("bca", "st", ""),
    "first cb": ("cba", "st", ""),
    "first t": ("abc", "ts", ""),
    "first ct": ("cab", "ts", ""),
    "last a": ("bca", "st", ""),
    "last ab": ("cab", "st", ""),
    "last s": ("abc", "ts", ""),
    "promote b": ("ac", "stb", ""),
    "promote ca": ("b", "stca", ""),
    "promote s": ("abc", "ts", ""),
    "demote t": ("abct", "s", ""),
    "demote ts": ("abcts", "", ""),
    "rm b": ("ac", "st", ""),
    "rm as": ("bc", "t", ""),
}


@pytest.mark.parametrize("command", MOVES)
async def test_queue(command: str) -> None:
    op, texts = command.split()
    async with World().run() as world:
        session = await world.session()
        ids = await queued(world, session)
        before = len(world.events(session))
        answer = await session.queue_change(op, [ids[text] for text in texts], ME)
        assert order(session) == MOVES[command]
        (event,) = world.events(session)[before:]
        assert (event.type, event.data["cause"]) == ("inbox/spliced", "remove" if op == "rm" else "move")
        assert event.data["by"]["tty"] == "pts/3"
        assert [m["id"] for m in answer["messages"]] == [ids[text] for text in texts]
        check_memory(session, world.events(session))


async def test_what_is_promoted_enters_the_running_turn_and_what_is_demoted_the_next() -> None:
    async with World().run() as world:
        session = await world.session()
        ids = await queued(world, session)
        await session.queue_change("promote", [ids["c"]], ME)
        await session.queue_change("demote", [ids["s"]], ME)
        world.gate.opened.set()
        await session.wait_idle()
        where = {text: (session.message(id)["turn"], session.message(id)["step"]) for text, id in ids.items()}
        assert where == {"c": (1, 2), "t": (1, 2), "a": (2, 1), "b": (3, 1), "s": (4, 1)}


@pytest.mark.parametrize(
    ("queue", "left"),
    [
        (None, ("", "", "")),
        ("next-turn", ("", "st", "")),
        ("next-step", ("abc", "", "")),
        ("held", ("abc", "st", "")),
    ],
)
async def test_clearing(queue: Any, left: tuple[str, str, str]) -> None:
    async with World().run() as world:
        session = await world.session()
        ids = await queued(world, session)
        before = len(world.events(session))
        await session.queue_clear(queue, ME)
        assert order(session) == left
        assert len(world.events(session)) - before == (queue != "held")
        gone = [id for text, id in ids.items() if text not in "".join(left)]
        assert {session.message(id)["state"] for id in gone} <= {"cleared"}


async def test_an_edit_keeps_the_place_the_id_and_the_key_and_only_the_new_text_is_seen() -> None:
    async with World().run() as world:
        session = await world.session()
        await queued(world, session)
        sent = await steer(session, "old text", key="k", first=True)
        answer = await session.queue_edit(wire.QueueEditParams(message=sent["message"], text="new text"), ME)
        assert (answer["id"], answer["version"], answer["position"]) == (sent["message"], 2, 1)
        assert (await steer(session, "old text", key="k"))["message"] == sent["message"]
        world.gate.opened.set()
        await settled(session, sent["message"])
        assert b"new text" in world.requests[1]
        assert b"old text" not in world.requests[1]
        assert [stop["state"] for stop in session.message(sent["message"])["way"]] == [
            "pending", "pending", "claimed", "entered", "settled",
        ]  # fmt: skip


async def test_an_edit_of_what_was_edited_meanwhile_is_refused() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await inject(session, "x")
        first = wire.QueueEditParams(message=sent["message"], text="y", version=1)
        await session.queue_edit(first, ME)
        with pytest.raises(Conflict) as refused:
            await session.queue_edit(first, ME)
        assert "version 2" in refused.value.message
        assert session.message(sent["message"])["text"] == "y"


COMMANDS: dict[str, Callable[[Session, str], Awaitable[Any]]] = {
    "first": lambda s, id: s.queue_change("first", [id], ME),
    "promote": lambda s, id: s.queue_change("promote", [id], ME),
    "rm": lambda s, id: s.queue_change("rm", [id], ME),
    "edit": lambda s, id: s.queue_edit(wire.QueueEditParams(message=id, text="y"), ME),
    "release": lambda s, id: s.wake(wire.WakeParams(message=id), ME),
}


@pytest.mark.parametrize("what", COMMANDS)
async def test_what_does_not_wait_any_more_is_left_alone_and_told_where_it_is(what: str) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        entered = await followup(session, "x")
        await world.gate.began.wait()
        removed = await inject(session, "y")
        await session.queue_change("rm", [removed["message"]], ME)
        before = world.types(session)
        for id, words in ((entered["message"], "entered turn 1"), (removed["message"], "was removed")):
            with pytest.raises(Conflict) as refused:
                await COMMANDS[what](session, id)
            assert words in refused.value.message
            assert refused.value.hint == f"dshctl message {id}"
        with pytest.raises(NotFound):
            await COMMANDS[what](session, f"{session.id}.99")
        assert world.types(session) == before


async def test_of_several_ids_all_are_moved_or_none() -> None:
    async with World().run() as world:
        session = await world.session()
        ids = await queued(world, session)
        for op in ("rm", "first", "promote"):
            with pytest.raises(NotFound):
                await session.queue_change(op, [ids["c"], f"{session.id}.99"], ME)
        assert order(session) == ("abc", "st", "")


async def test_the_same_id_twice_in_one_command_is_meant_once() -> None:
    async with World().run() as world:
        session = await world.session()
        ids = await queued(world, session)
        await session.queue_change("first", [ids["c"], ids["c"]], ME)
        assert order(session)[0] == "cab"


async def test_a_claim_and_a_removal_at_once_are_decided_in_one_order() -> None:
    for n in range(30):
        async with World().run() as world:
            session = await world.session()
            world.script = [call("gate")]
            await followup(session, "running")
            await world.gate.began.wait()
            sent = await followup(session, "x")
            world.gate.opened.set()
            for _ in range(n):
                await trio.lowlevel.checkpoint()
            try:
                await session.queue_change("rm", [sent["message"]], ME)
                expected = "removed"
            except Conflict:
                expected = "completed"
            await session.wait_idle()
            assert session.message(sent["message"])["outcome"] == expected
            check_memory(session, world.events(session))


async def test_held_messages_can_be_moved_edited_and_removed_too(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        held = [await followup(session, text, hold=True) for text in "xyz"]
        x, y, z = (r["message"] for r in held)
        await session.queue_change("first", [z], ME)
        assert order(session) == ("", "", "zxy")
        await session.queue_edit(wire.QueueEditParams(message=y, text="Y"), ME)
        await session.queue_change("rm", [x], ME)
        assert order(session) == ("", "", "zY")
        await session.queue_change("demote", [z], ME)
        assert (await settled(session, z))["outcome"] == "completed"
        await session.wake(wire.WakeParams(message=y), ME)
        assert (await settled(session, y))["outcome"] == "completed"


async def test_what_comes_back_may_exceed_the_limit() -> None:
    class Fails:
        name = "fails"

        async def pre_step(self, proposal: Any) -> Any:
            raise ValueError("x")

    async with World(config=Config(inbox=Inbox(max_pending=2)), plugins=(Fails(),)).run() as world:
        session = await world.session()
        await followup(session, "a", no_wake=True)
        await followup(session, "b", no_wake=True)
        with pytest.raises(Full):
            await followup(session, "c")
        await session.wake(wire.WakeParams(), ME)
        await session.wait_idle()
        assert order(session)[0] == "ab"


async def test_the_queue_is_shown_as_it_will_be_taken() -> None:
    async with World().run() as world:
        session = await world.session()
        ids = await queued(world, session)
        shown = session.queue_ls()
        assert [m["text"] for m in shown["messages"]] == ["s", "t", "a", "b", "c"]
        assert [m["position"] for m in shown["messages"]] == [1, 2, 1, 2, 3]
        assert [m["text"] for m in session.queue_ls("next-turn")["messages"]] == ["a", "b", "c"]
        assert session.queue_show(ids["b"])["queue"] == "next-turn"


async def test_a_queue_of_long_texts_is_shown_by_their_heads_and_each_whole_when_asked_for() -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        await followup(session, "running")
        await world.gate.began.wait()
        sent = [await followup(session, f"{n:03}" + "x" * 60_000) for n in range(100)]
        rows = session.queue_ls()["messages"]
        assert [row["id"] for row in rows] == [receipt["message"] for receipt in sent]
        assert all(
            row["cut"] and row["text"] == f"{n:03}" + "x" * (len(row["text"]) - 3)
            for n, row in enumerate(rows)
        )
        assert 3 * 1024 * 1024 < sum(len(row["text"]) for row in rows) <= 4 * 1024 * 1024
        whole = session.queue_show(rows[7]["id"])
        assert (len(whole["text"]), whole["cut"]) == (60_003, False)
        assert not any(row["cut"] for row in session.queue_ls("held")["messages"])
