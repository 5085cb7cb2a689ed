"""`queue undo`: each kind of removal comes back as a whole, once, the newest first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from dshd import wire
from dshd.errors import Conflict, NotFound
from dshd.plugins import PreStep, Reject
from dshd.session.owner.session import Session
from tests.session.invariants import check_acknowledged, check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer, until

Act = Callable[[World, Session, list[str]], Awaitable[Any]]


async def remove(world: World, session: Session, ids: list[str]) -> None:
    await session.queue_change("rm", ids, ME)


async def clear(world: World, session: Session, ids: list[str]) -> None:
    await session.queue_clear(None, ME)


async def expire(world: World, session: Session, ids: list[str]) -> None:
    for id in ids:  # all at one instant
        message = session.state.receipts[id].message
        assert message.expires is not None
    await trio.sleep(61)


async def supersede(world: World, session: Session, ids: list[str]) -> None:
    receipt = await inject(session, "newer", tag="t", supersede=True)
    assert receipt["superseded"] == ids


async def abort_and_clear(world: World, session: Session, ids: list[str]) -> None:
    await session.abort(wire.AbortParams(disposition="clear"), ME)


REMOVALS: dict[str, tuple[Act, str, str]] = {
    "a removal": (remove, "removed", "remove"),
    "a clearing": (clear, "cleared", "clear"),
    "an expiry": (expire, "expired", "expire"),
    "a supersession": (supersede, "superseded", "supersede"),
    "an idle abort --clear": (abort_and_clear, "cleared", "clear"),
}


async def three(session: Session) -> list[str]:
    """Three that wait in three queues, with a tag and an expiry."""
    return [
        (await followup(session, "held", hold=True, tag="t", expires=60.0))["message"],
        (await inject(session, "inject", tag="t", expires=60.0))["message"],
        (await followup(session, "later", no_wake=True, tag="t", expires=60.0))["message"],
    ]


def in_order(session: Session, ids: list[str]) -> dict[str, list[str]]:
    return {q: [m.id for m in items if m.id in ids] for q, items in session.state.queues.items()}


@pytest.mark.parametrize("what", REMOVALS)
async def test_all_of_it_comes_back_to_where_it_was(what: str, autojump_clock: MockClock) -> None:
    act, word, cause = REMOVALS[what]
    async with World().run() as world:
        session = await world.session()
        ids = await three(session)
        if what == "a supersession":  # by queue
            ids = [ids[2], ids[1], ids[0]]
        before = in_order(session, ids)
        await act(world, session, ids)
        assert {session.message(id)["state"] for id in ids} == {word}
        answer = await session.queue_undo(ME)
        assert (answer["type"], answer["cause"]) == ("undone", cause)
        assert sorted(m["id"] for m in answer["messages"]) == sorted(ids)
        assert in_order(session, ids) == before
        assert all(session.state.receipts[id].message.expires is None for id in ids)
        assert all(session.message(id)["outcome"] is None for id in ids)
        with pytest.raises(NotFound):
            await session.queue_undo(ME)
        events = world.events(session)
        check_log(events, quiet=True)
        check_memory(session, events)
        check_acknowledged(session, ids)


async def test_undoing_a_supersession_leaves_the_new_one() -> None:
    async with World().run() as world:
        session = await world.session()
        old = (await inject(session, "old", tag="t"))["message"]
        new = (await inject(session, "new", tag="t", supersede=True))["message"]
        await session.queue_undo(ME)
        assert [m.id for m in session.state.queues["next-step"]] == [old, new]


async def test_the_newest_first_and_each_once() -> None:
    async with World().run() as world:
        session = await world.session()
        a, b, c = [(await inject(session, t))["message"] for t in "abc"]
        await session.queue_change("rm", [a], ME)
        await session.queue_change("rm", [c, b], ME)
        assert [m["id"] for m in (await session.queue_undo(ME))["messages"]] == [b, c]
        assert [m["id"] for m in (await session.queue_undo(ME))["messages"]] == [a]
        with pytest.raises(NotFound):
            await session.queue_undo(ME)
        assert [m.id for m in session.state.queues["next-step"]] == [a, b, c]


async def test_what_was_undone_and_removed_again_is_undone_again() -> None:
    async with World().run() as world:
        session = await world.session()
        a = (await inject(session, "a"))["message"]
        for _ in range(3):
            await session.queue_change("rm", [a], ME)
            await session.queue_undo(ME)
        assert session.message(a)["state"] == "pending"


async def test_it_comes_back_among_those_that_came_meanwhile() -> None:
    async with World().run() as world:
        session = await world.session()
        a = (await inject(session, "a"))["message"]
        b = (await inject(session, "b"))["message"]
        await session.queue_change("rm", [a], ME)
        c = (await inject(session, "c"))["message"]
        await session.queue_undo(ME)
        assert [m.id for m in session.state.queues["next-step"]] == [a, b, c]


async def test_what_was_first_comes_back_behind_the_others_in_front(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        plain = (await inject(session, "plain"))["message"]
        front = (await inject(session, "front", first=True))["message"]
        await session.queue_change("rm", [front], ME)
        other = (await inject(session, "other", first=True))["message"]
        await session.queue_undo(ME)
        assert [m.id for m in session.state.queues["next-step"]] == [other, front, plain]


@attrs.define
class Judge:
    """Rejects the first time, all or one, then passes."""

    whole: bool
    name: str = "judge"
    asked: int = 0

    async def pre_step(self, proposal: PreStep) -> PreStep | Reject:
        self.asked += 1
        if self.asked > 1:
            return proposal
        return Reject("no", None if self.whole else (proposal.messages[0]["id"],))


@pytest.mark.parametrize("whole", [True, False])
async def test_what_was_rejected_comes_back_and_is_judged_anew(whole: bool, autojump_clock: Any) -> None:
    async with World(plugins=(Judge(whole),)).run() as world:
        session = await world.session()
        a = (await inject(session, "a"))["message"]
        b = (await followup(session, "b"))["message"]
        await settled(session, b)
        await session.wait_idle()
        gone = [a, b] if whole else [a]
        assert [id for id in (a, b) if session.message(id)["state"] == "rejected"] == gone
        answer = await session.queue_undo(ME)
        assert [m["id"] for m in answer["messages"]] == gone
        if not whole:
            await followup(session, "again")
        for id in gone:
            assert (await settled(session, id))["outcome"] == "completed"


async def test_an_aborted_message_comes_back_parked(autojump_clock: MockClock) -> None:
    class Stuck:
        name = "stuck"

        async def pre_step(self, proposal: PreStep) -> PreStep:
            await trio.sleep_forever()
            raise AssertionError

    async with World(plugins=(Stuck(),)).run() as world:
        session = await world.session()
        id = (await followup(session, "work"))["message"]
        await until(session, lambda: session.state.receipts[id].state == "claimed")
        await session.abort(wire.AbortParams(), ME)
        assert session.message(id)["state"] == "aborted"
        answer = await session.queue_undo(ME)
        assert answer["cause"] == "abort"
        found = session.message(id)
        assert (found["state"], found["turn"], found["outcome"]) == ("pending", None, None)
        assert session.state.parked is not None


async def test_an_abort_that_clears_is_one_removal_with_what_its_turn_had_claimed(
    autojump_clock: MockClock,
) -> None:
    class Stuck:
        name = "stuck"

        async def pre_step(self, proposal: PreStep) -> PreStep:
            await trio.sleep_forever()
            raise AssertionError

    async with World(plugins=(Stuck(),)).run() as world:
        session = await world.session()
        a = (await followup(session, "claimed"))["message"]
        await until(session, lambda: session.state.receipts[a].state == "claimed")
        b = (await followup(session, "queued"))["message"]
        await session.abort(wire.AbortParams(disposition="clear"), ME)
        assert {session.message(id)["state"] for id in (a, b)} == {"cleared"}
        answer = await session.queue_undo(ME)
        assert sorted(m["id"] for m in answer["messages"]) == [a, b]
        assert [m.id for m in session.state.queues["next-turn"]] == [a, b]


async def test_what_expired_with_its_turn_comes_back_without_it(autojump_clock: MockClock) -> None:
    """`--if-turn N` held on until N ended; undone, it is for any turn."""
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate"), say("one")]
        first = (await followup(session, "work"))["message"]
        await world.gate.began.wait()
        tied = (await followup(session, "for turn 1", if_turn=1))["message"]
        world.gate.opened.set()
        await settled(session, first)
        assert (await settled(session, tied))["outcome"] == "expired"
        await session.queue_undo(ME)
        assert (await settled(session, tied))["outcome"] == "completed"


async def test_an_overdue_message_that_comes_back_is_due_at_once(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        id = (await followup(session, "later", in_=60.0))["message"]
        await session.queue_change("rm", [id], ME)
        await trio.sleep(600)
        await session.queue_undo(ME)
        assert (await settled(session, id))["outcome"] == "completed"


async def test_a_closed_session_takes_nothing_back(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        id = (await inject(session, "a"))["message"]
        await session.close(True, ME)
        with pytest.raises(Conflict):
            await session.queue_undo(ME)
        await session.reopen(ME)
        await session.queue_undo(ME)
        assert session.message(id)["state"] == "pending"


async def test_a_restart_remembers_what_can_be_undone(autojump_clock: MockClock) -> None:
    async with World().run() as world:
        session = await world.session()
        a = (await inject(session, "a"))["message"]
        b = (await inject(session, "b"))["message"]
        await session.queue_change("rm", [a], ME)
        await session.queue_change("rm", [b], ME)
        await session.queue_undo(ME)
        again = world.crash()
    async with again.run():
        session = await again.registry.get(session.id)
        assert [m["id"] for m in (await session.queue_undo(ME))["messages"]] == [a]
        with pytest.raises(NotFound):
            await session.queue_undo(ME)


async def test_a_key_stays_used_through_removal_and_undo() -> None:
    async with World().run() as world:
        session = await world.session()
        first = await inject(session, "a", key="k")
        await session.queue_change("rm", [first["message"]], ME)
        again = await inject(session, "a", key="k")
        assert (again["message"], again["duplicate"], again["state"]) == (first["message"], True, "removed")
        await session.queue_undo(ME)
        assert (await inject(session, "a", key="k"))["state"] == "pending"


async def test_an_undo_may_exceed_the_limit(autojump_clock: MockClock) -> None:
    from dshd.config import Config, Inbox
    from dshd.errors import Full

    async with World(config=Config(inbox=Inbox(max_pending=2))).run() as world:
        session = await world.session()
        await inject(session, "a")
        await inject(session, "b")
        await session.queue_clear(None, ME)
        await inject(session, "c")
        await session.queue_undo(ME)
        assert session.state.pending == 3
        with pytest.raises(Full):
            await steer(session, "d")
