"""Where a message goes, who may send it, and when it is refused: decided once, with its insertion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import pytest
import trio
import trio.testing

from dshd import reasons, wire
from dshd.config import Config, Inbox
from dshd.errors import Conflict, Denied, DshError, Full, Invalid
from dshd.session.deciding import sending
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer, until

TOOL = Peer(uid=1000, pid=99, kind="agent")
Prepare = Callable[[World, Session], Awaitable[None]]


async def idle(world: World, session: Session) -> None:
    return


async def running(world: World, session: Session) -> None:
    """Turn 1 runs, a tool is open."""
    world.script = [call("gate")]
    await followup(session, "running")
    await world.gate.began.wait()


async def aborting(world: World, session: Session) -> None:
    """Turn 1 was aborted, and its end is not on disk yet."""
    await running(world, session)
    await parked_behind(session, "waits")
    abort = session.ledger
    assert abort is not None
    asked = {"turn": 1, "disposition": "keep", "cause": "user", "by": None}
    abort.post(lambda s: s.emit("abort/requested", asked))


async def before_the_disk_answers(world: World, *sends: Awaitable[Any]) -> list[Any]:
    """The receipts of what is sent, in this order, while something posted before is on its way to disk."""
    receipts: list[Any] = [None] * len(sends)
    free = trio.Event()
    world.disk.pause = free.wait

    async def one(n: int, send: Awaitable[Any]) -> None:
        receipts[n] = await send

    async with trio.open_nursery() as nursery:
        for n, send in enumerate(sends):
            nursery.start_soon(one, n, send)
            await trio.testing.wait_all_tasks_blocked()
        world.disk.pause = trio.lowlevel.checkpoint
        free.set()
    return receipts


async def parked_behind(session: Session, *texts: str) -> None:
    for text in texts:
        await followup(session, text)


async def parked_by_abort(world: World, session: Session) -> None:
    await running(world, session)
    await parked_behind(session, "waits")
    await session.abort(wire.AbortParams(), ME)


async def parked_by_error(world: World, session: Session) -> None:
    world.script = [RuntimeError("model")]
    await followup(session, "running", no_wake=True)
    await followup(session, "waits", no_wake=True)
    await session.wake(wire.WakeParams(), ME)
    await until(session, lambda: session.state.parked)


async def first_in_line(world: World, session: Session) -> None:
    """Something waits in both queues, one of it sent with --first."""
    await running(world, session)
    await followup(session, "waits", first=True)
    await steer(session, "waits too", first=True)


# --- the places ---------------------------------------------------------------------------------------

# {(session, verb, flags): (queue, position, redirected)}
PLACES: list[tuple[Prepare, dict[str, Any], tuple[str, int, bool]]] = [
    (idle, {"verb": "inject"}, ("next-step", 1, False)),
    (idle, {"verb": "followup", "no_wake": True}, ("next-turn", 1, False)),
    (running, {"verb": "followup"}, ("next-turn", 1, False)),
    (running, {"verb": "steer"}, ("next-step", 1, False)),
    (running, {"verb": "inject"}, ("next-step", 1, False)),
    (running, {"verb": "say"}, ("next-step", 1, False)),
    (running, {"queue": "next-step", "wake": False}, ("next-step", 1, False)),
    (first_in_line, {"verb": "followup"}, ("next-turn", 2, False)),
    (first_in_line, {"verb": "followup", "first": True}, ("next-turn", 1, False)),
    (first_in_line, {"verb": "steer", "first": True}, ("next-step", 1, False)),
    (aborting, {"verb": "steer"}, ("next-turn", 1, True)),
    (aborting, {"verb": "followup"}, ("next-turn", 1, True)),
    (aborting, {"verb": "say"}, ("next-turn", 1, True)),
    (aborting, {"verb": "inject"}, ("next-step", 1, False)),
    (aborting, {"verb": "followup", "no_wake": True}, ("next-turn", 2, False)),
    (aborting, {"verb": "steer", "as_": "schedule"}, ("next-turn", 1, True)),
    (parked_by_abort, {"verb": "inject"}, ("next-step", 1, False)),
    (parked_by_abort, {"verb": "followup", "no_wake": True}, ("next-turn", 2, False)),
    (parked_by_abort, {"verb": "followup", "as_": "schedule"}, ("next-turn", 2, False)),
    (parked_by_abort, {"verb": "steer", "as_": "schedule"}, ("next-step", 1, False)),
]


@pytest.mark.parametrize("row", PLACES, ids=lambda row: f"{row[0].__name__}-{sorted(row[1].items())}")
async def test_a_message_goes(row: Any) -> None:
    prepare, flags, expected = row
    async with World().run() as world:
        session = await world.session()
        await prepare(world, session)
        receipt = await session.send(wire.SendParams(text="new", **flags), ME)
        assert (receipt["queue"], receipt["position"], receipt["redirected"]) == expected
        message = session.message(receipt["message"])
        assert (message["state"], message["text"]) == ("pending", "new")


@pytest.mark.parametrize(("verb", "redirected"), [("followup", False), ("steer", True)])
@pytest.mark.parametrize(
    ("prepare", "as_"), [(parked_by_abort, None), (parked_by_error, None), (parked_by_error, "schedule")]
)
async def test_a_message_that_unparks_goes_to_the_front_and_the_parked_ones_follow(
    prepare: Prepare, as_: Any, verb: Any, redirected: bool
) -> None:
    async with World().run() as world:
        session = await world.session()
        await prepare(world, session)
        fact = await inject(session, "fact")
        waits = session.state.queues["next-turn"][0].id
        turn = session.state.last_turn + 1
        world.script = []
        receipt = await session.send(wire.SendParams(text="new", verb=verb, as_=as_), ME)
        assert (receipt["redirected"], receipt["released"], receipt["parked"]) == (redirected, 2, None)
        await session.wait_idle()
        where = [session.message(id)["turn"] for id in (fact["message"], receipt["message"], waits)]
        assert where == [turn, turn, turn + 1]


async def test_of_two_redirected_messages_the_earlier_stays_ahead() -> None:
    async with World().run() as world:
        session = await world.session()
        await aborting(world, session)
        first, second = await before_the_disk_answers(
            world, steer(session, "first"), followup(session, "second")
        )
        assert (first["position"], second["position"]) == (1, 2)
        await until(session, lambda: session.state.turn is None or session.state.last_turn > 1)
        await session.wait_idle()
        turns = [session.message(r["message"])["turn"] for r in (first, second)]
        assert turns == [2, 3]


async def test_what_came_before_an_abort_stays_and_enters_the_next_turns_first_step() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        before = await steer(session, "before")
        await session.abort(wire.AbortParams(), ME)
        after = await followup(session, "after")
        await session.wait_idle()
        assert [session.message(r["message"])["turn"] for r in (before, after)] == [2, 2]
        assert session.message(before["message"])["step"] == 1


async def test_a_place_is_decided_by_the_log_not_by_who_called_first() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        receipts: dict[str, Any] = {}

        async def send() -> None:
            receipts["steer"] = await steer(session, "s")

        async def abort() -> None:
            receipts["abort"] = await session.abort(wire.AbortParams(), ME)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(abort)
        asked = next(e.seq for e in world.events(session) if e.type == "abort/requested")
        came_after = receipts["steer"]["seq"] > asked
        assert receipts["steer"]["redirected"] == came_after
        assert (session.state.parked is None) == came_after


# --- preconditions --------------------------------------------------------------------------------------

CONDITIONS: list[tuple[Prepare, dict[str, Any], bool]] = [
    (idle, {"if_idle": True}, True),
    (running, {"if_idle": True}, False),
    (parked_by_abort, {"if_idle": True}, True),
    (idle, {"if_empty": True}, True),
    (running, {"if_empty": True}, True),
    (parked_by_abort, {"if_empty": True}, False),
    (running, {"if_turn": 1}, True),
    (running, {"if_turn": 2}, False),
    (idle, {"if_turn": 1}, False),
    (parked_by_abort, {"if_turn": 1}, False),
]


@pytest.mark.parametrize("row", CONDITIONS, ids=lambda row: f"{row[0].__name__}-{row[1]}")
async def test_a_precondition_holds_or_nothing_happens(row: Any) -> None:
    prepare, flags, holds = row
    async with World().run() as world:
        session = await world.session()
        await prepare(world, session)
        before = world.types(session)
        if holds:
            await session.send(wire.SendParams(text="new", verb="inject", **flags), ME)
            return
        with pytest.raises(Conflict) as refused:
            await session.send(wire.SendParams(text="new", verb="inject", **flags), ME)
        assert (refused.value.exit_status, refused.value.outcome) == (5, "not-written")
        assert world.types(session) == before


async def test_of_many_that_ask_for_idle_at_once_one_is_taken() -> None:
    async with World().run() as world:
        session = await world.session()
        taken: list[str] = []

        async def one(n: int) -> None:
            try:
                taken.append((await followup(session, f"t{n}", if_idle=True))["message"])
            except Conflict:
                return

        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(one, n)
        assert len(taken) == 1
        await session.wait_idle()
        assert session.state.last_turn == 1


@pytest.mark.parametrize("how", ["ends", "is aborted", "fails", "crashes"])
async def test_a_message_for_one_turn_expires_with_it(how: str) -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        late = await followup(session, "too late", if_turn=1)
        if how == "is aborted":
            await session.abort(wire.AbortParams(disposition="continue"), ME)
        elif how == "fails":
            world.script = [RuntimeError("x")]
        world.gate.opened.set()
        if how != "crashes":
            await until(session, lambda: session.state.turn is None)
            assert (await session.wait_message(late["message"]))["exit"] == 17
            assert session.message(late["message"])["state"] == "expired"
            assert session.state.last_turn == 1
            return
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        assert (await again.wait_message(late["message"]))["outcome"] == "expired"


async def test_a_message_for_one_turn_enters_it_in_time() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        sent = await steer(session, "in time", if_turn=1)
        world.gate.opened.set()
        await settled(session, sent["message"])
        assert (session.message(sent["message"])["turn"], session.message(sent["message"])["step"]) == (1, 2)


# --- keys -------------------------------------------------------------------------------------------------


async def test_a_key_gives_the_first_receipt_again_in_its_present_state_for_ever() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        first = await followup(session, "text", key="k")
        again = await followup(session, "text", key="k")
        assert (again["message"], again["duplicate"], again["state"]) == (first["message"], True, "pending")
        world.gate.opened.set()
        await settled(session, first["message"])
        consumed = await followup(session, "text", key="k")
        assert (consumed["message"], consumed["state"], consumed["turn"]) == (first["message"], "settled", 2)
        after = world.crash()
    async with after.run():
        session = await after.again(session)
        restarted = await followup(session, "text", key="k")
        assert (restarted["message"], restarted["duplicate"]) == (first["message"], True)
        assert session.state.last_turn == 2


KEY_OF: Final[dict[str, Any]] = {"text": "text", "key": "k", "verb": "followup", "tag": "t"}


@pytest.mark.parametrize(
    ("change", "conflict"),
    [
        ({"text": "other"}, True),
        ({"verb": "steer"}, True),
        ({"tag": "u"}, True),
        ({"tag": None}, True),
        ({"as_": "schedule"}, False),
        ({"first": True}, False),
        ({"no_wake": True}, False),
        ({"if_idle": True}, False),
        ({"if_turn": 99}, False),
    ],
    ids=str,
)
async def test_a_key_stands_for_verb_blocks_and_tag_and_for_nothing_else(
    change: dict[str, Any], conflict: bool
) -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        first = await session.send(wire.SendParams(**KEY_OF), ME)
        again = wire.SendParams(**{**KEY_OF, **change})
        if not conflict:
            assert (await session.send(again, ME))["message"] == first["message"]
            return
        with pytest.raises(Conflict) as refused:
            await session.send(again, ME)
        assert refused.value.data["message"] == first["message"]
        assert refused.value.hint == f"dshctl message {first['message']}"


async def test_a_key_is_asked_before_everything_else() -> None:
    world = World(config=Config(inbox=Inbox(max_pending=1)))
    async with world.run():
        session = await world.session()
        first = await inject(session, "text", key="k")
        full = await inject(session, "text", key="k")
        conditioned = await inject(session, "text", key="k", if_empty=True)
        assert {full["message"], conditioned["message"]} == {first["message"]}
        await session.queue_clear(None, ME)
        await session.close(False, ME)
        closed = await inject(session, "text", key="k")
        assert (closed["duplicate"], closed["state"], closed["reopened"]) == (True, "cleared", False)
        assert session.state.closed


async def test_many_at_once_with_one_key_are_one_message() -> None:
    async with World().run() as world:
        session = await world.session()
        receipts: list[dict[str, Any]] = []

        async def one() -> None:
            receipts.append(await followup(session, "text", key="k"))

        async with trio.open_nursery() as nursery:
            for _ in range(64):
                nursery.start_soon(one)
        assert len({r["message"] for r in receipts}) == 1
        assert [r["duplicate"] for r in receipts].count(False) == 1


# --- limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_", [None, "schedule"])
async def test_one_more_than_the_limit_is_refused_and_none_is_dropped(as_: Any) -> None:
    async with World(config=Config(inbox=Inbox(max_pending=3))).run() as world:
        session = await world.session()
        for n in range(3):
            await inject(session, f"t{n}")
        with pytest.raises(Full) as refused:
            await inject(session, "one more", as_=as_)
        assert (refused.value.exit_status, refused.value.outcome) == (6, "not-written")
        assert [m.text for m in session.state.queues["next-step"]] == ["t0", "t1", "t2"]


@pytest.mark.parametrize("kind", ["job", "hook", "plugin", "system"])
async def test_the_limit_is_for_people_schedules_and_agents(kind: Any) -> None:
    async with World(config=Config(inbox=Inbox(max_pending=1))).run() as world:
        session = await world.session()
        await inject(session, "t")
        await inject(session, "notice", as_=kind)
        assert session.state.pending == 2


async def test_all_pending_texts_together_have_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MAX_PENDING_BYTES", 100)
    async with World().run() as world:
        session = await world.session()
        await inject(session, "ü" * 40)
        with pytest.raises(Full):
            await inject(session, "ü" * 11)
        await inject(session, "ü" * 10)


async def test_of_many_at_once_as_many_are_taken_as_there_is_room_for() -> None:
    async with World(config=Config(inbox=Inbox(max_pending=10))).run() as world:
        session = await world.session()
        refused: list[DshError] = []

        async def one(n: int) -> None:
            try:
                await inject(session, f"t{n}")
            except Full as full:
                refused.append(full)

        async with trio.open_nursery() as nursery:
            for n in range(30):
                nursery.start_soon(one, n)
        assert (session.state.pending, len(refused)) == (10, 20)


# --- provenance -------------------------------------------------------------------------------------------


def agent_of(session: Session) -> Peer:
    return attrs.evolve(TOOL, session=session.id)


async def test_a_tool_may_send_to_its_own_session_and_is_named_as_an_agent_whatever_it_says() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        sent = await session.send(wire.SendParams(verb="steer", text="x", as_="user"), agent_of(session))
        assert session.message(sent["message"])["source"]["kind"] == "agent"


FENCED: dict[str, Callable[[Session, Peer, str], Awaitable[Any]]] = {
    "interrupt": lambda s, peer, id: s.interrupt(wire.InterruptParams(text="x"), peer),
    "abort": lambda s, peer, id: s.abort(wire.AbortParams(), peer),
    "wake": lambda s, peer, id: s.wake(wire.WakeParams(), peer),
    "release": lambda s, peer, id: s.wake(wire.WakeParams(message=id), peer),
    "queue first": lambda s, peer, id: s.queue_change("first", [id], peer),
    "queue rm": lambda s, peer, id: s.queue_change("rm", [id], peer),
    "queue edit": lambda s, peer, id: s.queue_edit(wire.QueueEditParams(message=id, text="y"), peer),
    "queue clear": lambda s, peer, id: s.queue_clear(None, peer),
    "set": lambda s, peer, id: s.change({"mode": "full"}, peer),
    "close": lambda s, peer, id: s.close(True, peer),
    "reopen": lambda s, peer, id: s.reopen(peer),
}


@pytest.mark.parametrize("what", FENCED)
async def test_a_tool_may_do_nothing_else(what: str) -> None:
    async with World().run() as world:
        session = await world.session()
        waits = await inject(session, "waits")
        before = world.types(session)
        with pytest.raises(Denied) as refused:
            await FENCED[what](session, agent_of(session), waits["message"])
        assert refused.value.exit_status == 8
        assert world.types(session) == before


async def test_a_tool_may_not_send_to_another_session_nor_make_or_mend_one() -> None:
    async with World().run() as world:
        mine, other = await world.session(), await world.session()
        agent = agent_of(mine)
        with pytest.raises(Denied):
            await other.send(wire.SendParams(verb="inject", text="x"), agent)
        with pytest.raises(Denied):
            await world.registry.create(wire.CreateParams(dir="/"), agent)
        with pytest.raises(Denied):
            await world.registry.delete(mine.id, True, agent)
        assert other.state.pending == 0


@pytest.mark.parametrize(
    "text", ["stop", "abort", "wait", "/abort", "y", "allow a1", "\u2028", "-n", "exit 0"]
)
async def test_a_text_is_never_a_command(text: str) -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        sent = await steer(session, text if text.strip() else f"x{text}")
        world.gate.opened.set()
        result = await settled(session, sent["message"])
        assert (result["outcome"], result["turn"]) == ("completed", 1)
        assert text in session.message(sent["message"])["text"]


# --- what is no message -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"text": ""},
        {"text": " \n"},
        {},
        {"text": "x", "content": [{"type": "text", "text": "y"}]},
        {"content": []},
        {"content": [{"type": "image"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"text": "x", "queue": "held"},
    ],
    ids=str,
)
async def test_what_is_no_message_is_refused_and_nothing_is_written(params: dict[str, Any]) -> None:
    async with World().run() as world:
        session = await world.session()
        before = world.types(session)
        with pytest.raises(Invalid) as refused:
            await session.send(wire.SendParams(**params), ME)
        assert refused.value.exit_status == 2
        assert world.types(session) == before


async def test_a_lone_surrogate_becomes_a_replacement_character_and_the_session_lives() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await followup(session, "broken \ud83d emoji")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        entered = next(e.data for e in world.events(session) if e.type == "user/message")
        assert entered["content"][0]["text"] == "broken \ufffd emoji"
        again = [await followup(session, "\udcff", key="k") for _ in range(2)]
        assert again[0]["message"] == again[1]["message"]


# --- order ------------------------------------------------------------------------------------------------


async def test_ten_quick_steers_are_ten_receipts_and_enter_in_order_in_one_step() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        sent = [await steer(session, "same text") for _ in range(10)]
        world.gate.opened.set()
        await session.wait_idle()
        ids = [r["message"] for r in sent]
        entered = [
            e.data["id"] for e in world.events(session) if e.type == "user/message" and e.data["step"] == 2
        ]
        assert entered == ids
        assert {session.message(id)["step"] for id in ids} == {2}


async def test_senders_at_once_get_a_place_each_in_the_order_of_acknowledgement() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        receipts: list[dict[str, Any]] = []

        async def one(n: int) -> None:
            receipts.append(await followup(session, f"t{n}"))

        async with trio.open_nursery() as nursery:
            for n in range(64):
                nursery.start_soon(one, n)
        by_seq = [r["message"] for r in sorted(receipts, key=lambda r: r["seq"])]
        assert [m.id for m in session.state.queues["next-turn"]] == by_seq
        assert sorted(r["position"] for r in receipts) == list(range(1, 65))
        numbers = [int(id.rpartition(".")[2]) for id in by_seq]
        assert numbers == sorted(numbers)
        world.gate.opened.set()
        await session.wait_idle()
        assert [session.message(id)["turn"] for id in by_seq] == list(range(2, 66))


async def test_an_edit_or_a_claim_never_gives_an_id_twice() -> None:
    async with World().run() as world:
        session = await world.session()
        first = await inject(session, "a")
        await session.queue_change("rm", [first["message"]], ME)
        second = await inject(session, "b")
        assert first["message"] != second["message"]
        after = world.crash()
    async with after.run():
        session = await after.again(session)
        third = await inject(session, "c")
        assert third["message"] not in (first["message"], second["message"])


async def test_a_closed_session_is_reopened_by_a_person_and_by_nobody_else() -> None:
    async with World().run() as world:
        session = await world.session()
        await session.close(False, ME)
        for lowered in ("schedule", "hook", "job"):
            with pytest.raises(Conflict):
                await inject(session, "x", as_=lowered)
        receipt = await inject(session, "x")
        assert receipt["reopened"]
        assert not session.state.closed
        assert world.types(session)[-2:] == ["session/reopened", "inbox/spliced"]


async def test_say_steers_what_runs_and_begins_what_does_not() -> None:
    async with World().run() as world:
        session = await world.session()
        await running(world, session)
        while_running = await session.send(wire.SendParams(verb="say", text="x"), ME)
        world.gate.opened.set()
        await session.wait_idle()
        world.script = [say("ok")]
        while_idle = await session.send(wire.SendParams(verb="say", text="y"), ME)
        assert (while_running["verb"], while_idle["verb"]) == ("steer", "followup")
        await settled(session, while_idle["message"])


# --- settings that the session must have ------------------------------------------------------------------

MADE: dict[str, Any] = {
    "name": "api", "mode": "read-only", "net": False, "max_cost": None, "max_steps": 20,
    "patience": 90.0, "env": {"EDITOR": "vi", "MY_TOKEN": "sesame"},
}  # fmt: skip
SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"name": "api", "mode": "read-only", "net": False, "max_steps": 20, "patience": 90}, ""),
    ({"dir": "/", "model": "scripted", "env.EDITOR": "vi", "env.MY_TOKEN": "sesame"}, ""),
    ({"name": "web"}, "name api, not web"),
    ({"dir": "/tmp"}, "dir /, not /tmp"),
    ({"model": "other"}, "model scripted, not other"),
    ({"mode": "workspace"}, "mode read-only, not workspace"),
    ({"mode": "x", "model": ["y"]}, "mode read-only, not x, model scripted, not ['y']"),
    ({"net": True}, "net off, not on"),
    ({"ask": "wait"}, "ask deny, not wait"),
    ({"patience": 0}, "patience 90s, not 0s"),
    ({"max_steps": 10, "max_cost": 0.5}, "max-steps 20, not 10, max-cost unset, not 0.5"),
    ({"env.EDITOR": "ed"}, "another EDITOR"),
    ({"env.MY_TOKEN": "open"}, "another MY_TOKEN"),
]


@pytest.mark.parametrize(("asked", "differs"), SETTINGS)
async def test_a_session_that_is_there_has_the_settings_that_a_send_asks_for_or_nothing_is_sent(
    asked: dict[str, Any], differs: str
) -> None:
    async with World().run() as world:
        session = await world.session(**MADE)
        before = world.types(session)
        send = wire.SendParams(text="x", verb="inject", settings=asked)
        would = await session.send(send.replace(dry_run=True), ME)
        assert would["exit"] == (5 if differs else 0)
        if not differs:
            await session.send(send, ME)
            return
        with pytest.raises(Conflict) as refused:
            await session.send(send, ME)
        assert (refused.value.exit_status, refused.value.outcome) == (5, "not-written")
        assert refused.value.message == f"not sent: api has {differs}."
        assert "sesame" not in f"{refused.value.hint} {refused.value.data}"
        assert world.types(session) == before


async def test_settings_that_change_between_the_asking_and_the_step_count_as_they_are_then() -> None:
    async with World().run() as world:
        session = await world.session(**MADE)
        refused: list[str] = []

        async def send() -> None:
            try:
                await session.send(wire.SendParams(text="x", settings={"mode": "read-only"}), ME)
            except Conflict as error:
                refused.append(error.message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.change, {"mode": "full"}, ME)
            nursery.start_soon(send)
        kinds = world.types(session)
        sent_first = "inbox/spliced" in kinds[: kinds.index("session/changed")]
        assert bool(refused) != sent_first


async def test_what_the_policy_makes_of_a_mode_is_what_was_asked_for() -> None:
    async with World().run() as world:
        policy = attrs.evolve(world.config.policy, max_mode="workspace")
        world.config = attrs.evolve(world.config, policy=policy)
        session = await world.session(name="api", mode="full")
        assert session.state.settings["mode"] == "workspace"
        receipt = await session.send(wire.SendParams(text="x", settings={"mode": "full"}), ME)
        assert receipt["state"] == "pending"


@pytest.mark.parametrize(("first", "again", "says"), [
    ({}, {"verb": "steer"}, "Z with another verb, followup (s"),
    ({"verb": "steer"}, {}, "Z with another verb, steer (s"),
    ({}, {"tag": "t"}, "Z without a tag (s"),
    ({"tag": "one"}, {"tag": "two"}, 'Z with another tag, "one" (s'),
    ({"tag": "one"}, {"verb": "inject"}, 'with another verb, followup, and with another tag, "one" (s'),
    ({}, {"text": "other"}, "Z for another text (s"),
    ({}, {"text": "other", "tag": "t"}, "Z for another text (s"),
])  # fmt: skip
async def test_a_key_that_was_used_otherwise_says_in_what(first: Any, again: Any, says: str) -> None:
    async with World().run() as world:
        session = await world.session()
        words = {"verb": "followup", "text": "words", "key": "k"}
        await session.send(wire.SendParams(**{**words, **first}), ME)
        with pytest.raises(Conflict) as caught:
            await session.send(wire.SendParams(**{**words, **again}), ME)
        at = reasons.utc(0).when(session.state.receipts[f"{session.id}.1"].message.created)
        assert caught.value.message.startswith(f'key "k" was used at {at} ')
        assert says in caught.value.message
