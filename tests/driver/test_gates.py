"""The gates before a step: what is claimed, what plugins make of it, and what opens."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.plugins import Defer, PreStep, Reject, TurnStopping, text_of
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, quiet
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer

Answer = PreStep | Reject | Defer


class Chain:
    """A plugin that answers with one function after the other, then passes."""

    def __init__(self, *answers: Callable[[PreStep], Any], name: str = "chain") -> None:
        self.name = name
        self.answers = list(answers)
        self.seen: list[PreStep] = []

    async def pre_step(self, proposal: PreStep) -> Answer:
        self.seen.append(proposal)
        answer = self.answers.pop(0)(proposal) if self.answers else proposal
        return await answer if isinstance(answer, Awaitable) else answer


def passes(proposal: PreStep) -> PreStep:
    return proposal


def text(word: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": word}]}


def rejecting(word: str) -> Callable[[PreStep], Answer]:
    """Rejects the messages that hold this word."""

    def answer(proposal: PreStep) -> Answer:
        ids = tuple(m["id"] for m in proposal.messages if word in text_of(m))
        return Reject(f"it says {word}", ids)

    return answer


def entered(world: World, session: Session, turn: int | None = None) -> list[str]:
    """The texts that entered, but for the runtime context."""
    return [
        text_of(e.data)
        for e in world.events(session)
        if e.type == "user/message"
        and e.data["source"].get("via") not in ("context", "notice")
        and turn in (None, e.data["turn"])
    ]


def boundaries(world: World, session: Session) -> list[str]:
    """Turn and step events, with how turns ended."""
    events = [e for e in world.events(session) if e.type.startswith(("turn/", "step/"))]
    return [
        f"{e.type} {e.data['reason']}" if e.type in ("turn/end", "step/rejected") else e.type for e in events
    ]


# --- what is claimed ----------------------------------------------------------------------------------


async def test_the_first_step_takes_all_of_next_step_and_then_one_of_next_turn() -> None:
    chain = Chain()
    async with World(plugins=(chain,)).run() as world:
        session = await world.session()
        await inject(session, "fact 1")
        await inject(session, "fact 2")
        await followup(session, "work", no_wake=True)
        await followup(session, "more", no_wake=True)
        await session.wake(wire.WakeParams(), ME)
        await quiet(world, session)
        assert [list(map(text_of, p.messages)) for p in chain.seen] == [
            ["fact 1", "fact 2", "work"],
            ["more"],
        ]


async def test_later_steps_take_next_step_and_leave_next_turn_alone() -> None:
    chain = Chain()
    async with World(plugins=(chain,)).run() as world:
        world.script = [call("gate"), say("one"), say("two")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        await followup(session, "next")
        await steer(session, "s")
        await inject(session, "i")
        world.gate.opened.set()
        await quiet(world, session)
        seen = [(p.turn, p.step, list(map(text_of, p.messages))) for p in chain.seen]
        assert seen == [(1, 1, ["work"]), (1, 2, ["s", "i"]), (2, 1, ["next"])]


async def test_what_comes_while_a_gate_is_passed_waits_for_the_next_step() -> None:
    hold, held = trio.Event(), trio.Event()

    async def slowly(proposal: PreStep) -> Answer:
        held.set()
        await hold.wait()
        return proposal

    async with World(plugins=(Chain(lambda p: slowly(p)),)).run() as world:
        world.script = [say("one"), say("two")]
        session = await world.session()
        await followup(session, "work")
        await held.wait()
        s, i = await steer(session, "s"), await inject(session, "i")
        hold.set()
        await quiet(world, session)
        assert [session.message(r["message"])["step"] for r in (s, i)] == [2, 2]
        assert session.state.last_turn == 1


async def test_the_runtime_context_comes_last_and_only_when_it_changed() -> None:
    async with World().run() as world:
        session = await world.session()
        await followup(session, "a")
        await quiet(world, session)
        await followup(session, "b")
        await quiet(world, session)
        vias = [e.data["source"]["via"] for e in world.events(session) if e.type == "user/message"]
        assert vias == ["rpc", "context", "rpc"]


# --- reject -------------------------------------------------------------------------------------------


async def test_a_rejected_message_spends_no_model_call_and_its_turn_ends_blocked() -> None:
    async with World(plugins=(Chain(lambda p: Reject("no")),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        result = await settled(session, sent["message"])
        await quiet(world, session)
        assert (result["outcome"], result["exit"]) == ("rejected", 11)
        assert result["by"]["reason"] == "no"
        assert boundaries(world, session) == ["turn/start", "step/rejected no", "turn/end blocked"]
        assert not world.requests
        rejected = next(e.data for e in world.events(session) if e.type == "step/rejected")
        assert rejected == {"by": "chain", "reason": "no", "messages": [sent["message"]]}
        way = session.message(sent["message"])["way"]
        assert [stop["state"] for stop in way] == ["pending", "claimed", "rejected"]
        assert (way[-1]["by"], way[-1]["source"]) == ("chain", {"by": "chain", "reason": "no"})
        assert session.state.parked is None


async def test_one_blocked_message_does_not_hold_up_the_others() -> None:
    async with World(plugins=(Chain(passes, passes, rejecting("bad")),)).run() as world:
        world.script = [call("gate"), say("one"), say("three")]
        session = await world.session()
        sent = [await followup(session, "one")]
        await world.gate.began.wait()
        sent += [await followup(session, "bad"), await followup(session, "three")]
        world.gate.opened.set()
        await quiet(world, session)
        outcomes = [session.message(r["message"])["outcome"] for r in sent]
        assert outcomes == ["completed", "rejected", "completed"]
        assert [session.state.turns[n].reason for n in (1, 2, 3)] == ["completed", "blocked", "completed"]
        assert len(world.requests) == 3


async def test_of_a_batch_the_others_enter_when_one_is_rejected() -> None:
    async with World(plugins=(Chain(rejecting("bad")),)).run() as world:
        session = await world.session()
        await inject(session, "bad fact")
        await inject(session, "good fact")
        await followup(session, "work")
        await quiet(world, session)
        assert entered(world, session) == ["good fact", "work"]
        assert session.state.turns[1].reason == "completed"


async def test_results_that_wait_are_sent_without_the_rejected_steer() -> None:
    async with World(plugins=(Chain(passes, rejecting("bad")),)).run() as world:
        world.script = [call("gate"), say("done")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        bad = await steer(session, "bad")
        world.gate.opened.set()
        await quiet(world, session)
        assert session.message(bad["message"])["state"] == "rejected"
        assert session.state.turns[1].reason == "completed"
        assert len(world.requests) == 2


async def test_a_step_that_is_rejected_itself_blocks_the_turn_though_results_wait() -> None:
    async with World(plugins=(Chain(passes, lambda p: Reject("enough")),)).run() as world:
        world.script = [call("quick"), say("never")]
        session = await world.session()
        sent = await followup(session, "work")
        assert (await settled(session, sent["message"]))["outcome"] == "blocked"
        await quiet(world, session)
        assert len(world.requests) == 1
        assert boundaries(world, session)[-2:] == ["step/rejected enough", "turn/end blocked"]


async def test_a_later_batch_rejected_as_a_whole_blocks_the_turn() -> None:
    async with World(plugins=(Chain(passes, rejecting("bad")),)).run() as world:
        gate = trio.Event()

        async def slow() -> Any:
            await gate.wait()
            return say("one")

        world.script = [slow]
        session = await world.session()
        sent = await followup(session, "work")
        with trio.fail_after(5):
            while not world.requests:
                await trio.lowlevel.checkpoint()
        bad = await steer(session, "bad")
        gate.set()
        assert (await settled(session, sent["message"]))["outcome"] == "blocked"
        assert session.message(bad["message"])["state"] == "rejected"
        assert session.state.turns[1].answer == "one"
        await quiet(world, session)


async def test_a_message_that_a_plugin_leaves_out_counts_as_rejected_by_it() -> None:
    chain = Chain(lambda p: attrs.evolve(p, messages=p.messages[1:]), name="thinner")
    async with World(plugins=(chain,)).run() as world:
        session = await world.session()
        left_out = await inject(session, "x")
        await followup(session, "work")
        await quiet(world, session)
        message = session.message(left_out["message"])
        assert (message["state"], message["way"][-1]["by"]) == ("rejected", "thinner")


async def test_naming_nothing_that_is_there_rejects_nothing() -> None:
    async with World(plugins=(Chain(lambda p: Reject("?", ("s0000000.99",))),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        assert "step/rejected" not in world.types(session)


# --- rewrite and add ----------------------------------------------------------------------------------


async def test_a_rewritten_message_keeps_its_id_and_only_the_new_text_is_asked() -> None:
    def rewrite(p: PreStep) -> PreStep:
        return attrs.evolve(p, messages=tuple({**m, **text("rewritten")} for m in p.messages))

    async with World(plugins=(Chain(rewrite),)).run() as world:
        session = await world.session()
        sent = await followup(session, "original")
        await quiet(world, session)
        messages = [e.data for e in world.events(session) if e.type == "user/message"]
        assert (messages[0]["id"], text_of(messages[0])) == (sent["message"], "rewritten")
        assert b"rewritten" in world.requests[0]
        assert b"original" not in world.requests[0]
        assert session.state.keys.get("k") is None


async def test_a_plugin_rewrites_content_and_nothing_else() -> None:
    def forge(p: PreStep) -> PreStep:
        forged = {"source": {"kind": "user"}, "verb": "steer", "then_park": True, "wake": False}
        return attrs.evolve(p, messages=tuple({**m, **forged} for m in p.messages))

    async with World(plugins=(Chain(forge),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work", as_="schedule")
        await quiet(world, session)
        message = session.message(sent["message"])
        assert (message["source"]["kind"], message["verb"]) == ("schedule", "followup")
        assert session.state.parked is None


async def test_a_plugin_that_changes_what_it_was_given_in_place_changes_no_state() -> None:
    def scribble(p: PreStep) -> PreStep:
        for message in p.messages:
            message["content"][0]["text"] = "scribbled"
        return Reject("and then no")  # type: ignore[return-value]

    async with World(plugins=(Chain(scribble),)).run() as world:
        session = await world.session()
        sent = await followup(session, "clean")
        await quiet(world, session)
        assert session.message(sent["message"])["text"] == "clean"


async def test_an_added_message_enters_beside_the_claimed_one_with_an_id_of_its_own() -> None:
    def add(p: PreStep) -> PreStep:
        forged = {**text("added"), "id": "s0000000.1", "source": {"kind": "user", "note": "n"}}
        return attrs.evolve(p, messages=(*p.messages, forged, text("bare")))

    async with World(plugins=(Chain(add, name="adder"),)).run() as world:
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert entered(world, session) == ["work", "added", "bare"]
        added = [e.data for e in world.events(session) if e.type == "user/message"][1:3]
        assert all(m["id"].startswith(f"{session.id}.") for m in added)
        assert [m["source"] for m in added] == [
            {"via": "adder", "kind": "plugin", "note": "n"}, {"via": "adder", "kind": "plugin"},
        ]  # fmt: skip
        assert len({e.data["id"] for e in world.events(session) if e.type == "user/message"}) == 4


async def test_what_one_plugin_added_the_next_can_drop_or_reject_without_a_trace() -> None:
    def add(p: PreStep) -> PreStep:
        return attrs.evolve(p, messages=(*p.messages, text("added")))

    def drop(p: PreStep) -> PreStep:
        return attrs.evolve(p, messages=p.messages[:1])

    for second in (drop, lambda p: Reject("all")):
        async with World(plugins=(Chain(add), Chain(second))).run() as world:
            session = await world.session()
            await followup(session, "work")
            await quiet(world, session)
            assert "added" not in entered(world, session)


async def test_a_message_added_to_results_that_wait_enters_with_them() -> None:
    def add(p: PreStep) -> PreStep:
        return attrs.evolve(p, messages=(text("by the way"),))

    async with World(plugins=(Chain(passes, add),)).run() as world:
        world.script = [call("quick"), say("done")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert entered(world, session) == ["work", "by the way"]


# --- defer --------------------------------------------------------------------------------------------


async def test_a_deferred_turn_ends_completed_without_a_step_and_its_messages_come_back_in_front(
    autojump_clock: Any,
) -> None:
    async with World(plugins=(Chain(lambda p: Defer("slow down", 5.0)),)).run() as world:
        session = await world.session()
        fact = await inject(session, "fact")
        sent = await followup(session, "work")
        await trio.sleep(1)
        assert boundaries(world, session) == ["turn/start", "turn/end completed"]
        for receipt in (fact, sent):
            message = session.message(receipt["message"])
            assert (message["state"], message["queue"]) == ("held", "held")
            assert message["due_at"] is not None
        assert (await settled(session, sent["message"]))["turn"] == 2
        assert entered(world, session) == ["fact", "work"]
        await quiet(world, session)


async def test_others_run_while_one_batch_is_deferred_and_it_is_first_when_it_is_back(
    autojump_clock: Any,
) -> None:
    defer_work = Chain(*[lambda p: Defer("later", 30.0) if "work" in text_of(p.messages[-1]) else p] * 1)
    async with World(plugins=(defer_work,)).run() as world:
        session = await world.session()
        work = await followup(session, "work")
        other = await followup(session, "other")
        assert (await settled(session, other["message"]))["turn"] == 2
        world.script = [call("gate"), say("x")]
        await followup(session, "busy")
        await world.gate.began.wait()
        last = await followup(session, "last")
        await trio.sleep(60)
        assert session.message(work["message"])["position"] == 1
        world.gate.opened.set()
        await settled(session, last["message"])
        assert entered(world, session) == ["other", "busy", "work", "last"]


@pytest.mark.parametrize("seconds", [0, -5, 0.2])
async def test_a_defer_holds_for_a_second_at_least(seconds: float, autojump_clock: Any) -> None:
    async with World(plugins=(Chain(lambda p: Defer("now", seconds)),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        began = trio.current_time()
        await settled(session, sent["message"])
        assert trio.current_time() - began >= 1


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        (0.0, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        (None, [30, 30, 60, 120, 240, 300, 300]),
        (10.0, [10] * 11 + [11, 12]),
        (400.0, [400] * 6),
    ],
)
async def test_what_is_deferred_again_and_again_is_asked_for_less_and_less(
    seconds: float | None, waits: list[int], autojump_clock: Any
) -> None:
    again = [lambda p: Defer("later", seconds)] * len(waits)
    async with World(plugins=(Chain(*again),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        with trio.fail_after(sum(waits) + 100):
            await session.wait_message(sent["message"], stay=True)
        starts = [e.time for e in world.events(session) if e.type == "turn/start"]
        between = [(later - start) / 1000 for start, later in itertools.pairwise(starts)]
        assert between == pytest.approx(waits, abs=0.05 * len(waits))
        assert Counter(boundaries(world, session))["turn/end completed"] == len(waits) + 1


async def test_it_is_asked_at_once_when_a_person_says_so(autojump_clock: Any) -> None:
    first = Chain(*[lambda p: Defer("later", 0.0)] * 6)
    async with World(plugins=(first,)).run() as world:
        session = await world.session()
        id = (await followup(session, "work"))["message"]
        await trio.sleep(20)  # 1, 1, 2, 4, 8; then 16
        found = session.message(id)
        assert found["state"] == "held"
        await session.wake(wire.WakeParams(message=id), ME)
        assert (await settled(session, id))["outcome"] == "completed"
        assert found["due_at"] - found["way"][-1]["at"] == pytest.approx(16_000, abs=500)


async def test_a_deferred_steer_does_not_hold_up_results_that_wait(autojump_clock: Any) -> None:
    async with World(plugins=(Chain(passes, lambda p: Defer("later", 5.0)),)).run() as world:
        world.script = [call("gate"), say("done"), say("and this")]
        session = await world.session()
        first = await followup(session, "work")
        await world.gate.began.wait()
        late = await steer(session, "late")
        world.gate.opened.set()
        assert (await settled(session, first["message"]))["text"] == "done"
        assert (await settled(session, late["message"]))["turn"] == 2


async def test_a_deferral_survives_a_restart_and_comes_due_then(autojump_clock: Any) -> None:
    async with World(plugins=(Chain(lambda p: Defer("later", 50.0)),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        await trio.sleep(1)
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        assert again.message(sent["message"])["state"] == "held"
        with trio.fail_after(100):
            result = await again.wait_message(sent["message"])
        assert result["outcome"] == "completed"


# --- failures -----------------------------------------------------------------------------------------


def raises(proposal: PreStep) -> PreStep:
    raise LookupError("no such thing")


NO_MESSAGES: Any = ("x",)
BROKEN: dict[str, Callable[[PreStep], Any]] = {
    "raises": raises,
    "answers nothing": lambda p: None,
    "passes something that is no message": lambda p: attrs.evolve(p, messages=NO_MESSAGES),
    "passes a message without content": lambda p: attrs.evolve(p, messages=({"id": p.messages[0]["id"]},)),
    "passes a message with nothing in it": lambda p: attrs.evolve(p, messages=({"content": []},)),
    "passes what is no JSON": lambda p: attrs.evolve(
        p, messages=({"content": [{"type": "text", "text": "x", "n": math.nan}]},)
    ),
    "passes one message twice": lambda p: attrs.evolve(p, messages=p.messages * 2),
    "defers for ever": lambda p: Defer("x", math.inf),
    "defers for a word": lambda p: Defer("x", "soon"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_plugin_that_fails_ends_the_turn_with_an_error_never_as_a_pass(how: str) -> None:
    async with World(plugins=(Chain(BROKEN[how]),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        after = await followup(session, "later")
        await quiet(world, session)
        end = next(e.data for e in world.events(session) if e.type == "turn/end")
        assert (end["reason"], end["error"]["code"]) == ("error", "PLUGIN")
        assert "chain" in end["error"]["message"]
        assert not world.requests
        waiting = [m.id for m in session.state.queues["next-turn"]]
        assert waiting == [sent["message"], after["message"]], "claimed and not entered goes back in front"
        assert session.state.parked is not None
        assert session.state.parked.by == "error"


async def test_a_message_whose_turn_failed_three_times_before_it_entered_is_held() -> None:
    async with World(plugins=(Chain(raises, raises, raises),)).run() as world:
        session = await world.session()
        sent = await followup(session, "poison")
        for n in range(3):
            await quiet(world, session)
            assert session.message(sent["message"])["state"] == ("held" if n == 2 else "pending")
            await session.wake(wire.WakeParams(), ME)
        await quiet(world, session)
        assert session.state.last_turn == 3
        result = await session.wait_message(sent["message"])
        assert (result["exit"], session.why(sent["message"])["hint"]) == (
            18,
            f"dshctl wake {sent['message']}",
        )
        await session.wake(wire.WakeParams(message=sent["message"]), ME)
        assert (await settled(session, sent["message"]))["outcome"] == "completed"


# --- abort in a gate ----------------------------------------------------------------------------------


async def stuck(proposal: PreStep) -> PreStep:
    await trio.sleep_forever()
    return proposal


@pytest.mark.parametrize("disposition", ["keep", "clear", "continue"])
async def test_an_abort_cancels_a_gate_and_ends_the_message_that_opened_the_turn(disposition: Any) -> None:
    chain = Chain(lambda p: stuck(p))
    async with World(plugins=(chain,)).run() as world:
        session = await world.session()
        fact = await inject(session, "fact")
        sent = await followup(session, "work")
        later = await followup(session, "later")
        with trio.fail_after(5):
            while not chain.seen:
                await trio.lowlevel.checkpoint()
        answer = await session.abort(wire.AbortParams(disposition=disposition), ME)
        assert answer["outcome"] == "aborted"
        with trio.fail_after(5):
            await session.wait_idle()
        states = [session.message(r["message"])["state"] for r in (fact, sent, later)]
        assert (
            states
            == {
                "keep": ["pending", "aborted", "pending"],
                "clear": ["cleared", "cleared", "cleared"],
                "continue": ["settled", "aborted", "settled"],
            }[disposition]
        )
        assert (await session.wait_message(sent["message"]))["exit"] == (17 if disposition == "clear" else 12)
        check_log(world.events(session), quiet=True)


async def test_an_abort_in_a_gate_of_a_turn_that_a_steer_opened_ends_the_steer() -> None:
    chain = Chain(lambda p: stuck(p))
    async with World(plugins=(chain,)).run() as world:
        session = await world.session()
        fact = await inject(session, "fact")
        sent = await steer(session, "work")
        with trio.fail_after(5):
            while not chain.seen:
                await trio.lowlevel.checkpoint()
        await session.abort(wire.AbortParams(), ME)
        assert [session.message(r["message"])["state"] for r in (fact, sent)] == ["pending", "aborted"]


async def test_an_abort_in_a_later_gate_gives_all_back_for_the_opener_has_entered() -> None:
    chain = Chain(passes, lambda p: stuck(p))
    async with World(plugins=(chain,)).run() as world:
        world.script = [call("gate")]
        session = await world.session()
        sent = await steer(session, "work")
        await world.gate.began.wait()
        late = await steer(session, "late")
        world.gate.opened.set()
        with trio.fail_after(5):
            while len(chain.seen) < 2:
                await trio.lowlevel.checkpoint()
        await session.abort(wire.AbortParams(), ME)
        assert [session.message(r["message"])["state"] for r in (sent, late)] == ["settled", "pending"]


async def test_a_message_removed_before_the_claim_opens_no_turn() -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("x")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        gone = await followup(session, "gone")
        await session.queue_change("rm", [gone["message"]], ME)
        world.gate.opened.set()
        await quiet(world, session)
        assert session.state.last_turn == 1
        assert (await session.wait_message(gone["message"]))["exit"] == 17


# --- before a turn ends ---------------------------------------------------------------------------------


class Stopper(Chain):
    """Answers `turn_stopping` with one thing after the other, then with nothing."""

    def __init__(self, *words: Any) -> None:
        super().__init__()
        self.words = list(words)
        self.asked: list[TurnStopping] = []

    async def turn_stopping(self, stopping: TurnStopping) -> Any:
        self.asked.append(stopping)
        word = self.words.pop(0) if self.words else ()
        if isinstance(word, Exception):
            raise word
        return await stuck_in(word) if word == "stuck" else word


async def stuck_in(_: Any) -> None:
    await trio.sleep_forever()


async def test_what_a_plugin_says_before_a_turn_ends_is_one_more_step_of_it() -> None:
    stopper = Stopper(["look again"], ["and again"], None)
    async with World(plugins=(stopper,)).run() as world:
        world.script = [say("one"), say("two"), say("three")]
        session = await world.session()
        sent = await followup(session, "work")
        result = await settled(session, sent["message"])
        assert (result["text"], result["steps"], result["turn"]) == ("three", 3, 1)
        assert entered(world, session) == ["work", "look again", "and again"]
        added = [e.data for e in world.events(session) if e.type == "user/message" and e.data["step"] == 2]
        assert added[0]["source"] == {"kind": "plugin", "via": "chain"}
        assert [(s.steps, s.answer) for s in stopper.asked] == [(1, "one"), (2, "two"), (3, "three")]
        await quiet(world, session)


async def test_a_plugin_is_asked_only_when_nothing_is_owed() -> None:
    stopper = Stopper()
    async with World(plugins=(stopper,)).run() as world:
        world.script = [call("gate"), say("done")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        await steer(session, "s")
        world.gate.opened.set()
        await quiet(world, session)
        assert [s.steps for s in stopper.asked] == [2]


async def test_what_comes_while_a_plugin_is_asked_joins_the_turn() -> None:
    asked, answer = trio.Event(), trio.Event()

    class Slow(Chain):
        async def turn_stopping(self, stopping: TurnStopping) -> Any:
            asked.set()
            await answer.wait()

    async with World(plugins=(Slow(),)).run() as world:
        world.script = [say("one"), say("two")]
        session = await world.session()
        sent = await followup(session, "work")
        await asked.wait()
        late = await inject(session, "late")
        answer.set()
        assert (await settled(session, sent["message"]))["text"] == "two"
        assert session.message(late["message"])["step"] == 2


@pytest.mark.parametrize("word", [LookupError("x"), [5], [""], "text"], ids=str)
async def test_a_plugin_that_fails_before_a_turn_ends_ends_it_with_an_error(word: Any) -> None:
    word = word if word != "text" else [b"bytes"]
    async with World(plugins=(Stopper(word),)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        result = await settled(session, sent["message"])
        assert (result["outcome"], result["error"]["code"]) == ("error", "PLUGIN")
        await quiet(world, session)


async def test_an_abort_cancels_a_plugin_that_is_asked_before_the_end() -> None:
    stopper = Stopper("stuck")
    async with World(plugins=(stopper,)).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        with trio.fail_after(5):
            while not stopper.asked:
                await trio.lowlevel.checkpoint()
        assert (await session.abort(wire.AbortParams(), ME))["outcome"] == "aborted"
        assert (await settled(session, sent["message"]))["steps"] == 1
        await quiet(world, session)


async def test_max_tokens_still_sticks_and_a_blocked_turn_asks_nobody() -> None:
    stopper = Stopper(["more"])
    async with World(plugins=(stopper,)).run() as world:
        world.script = [say("cut", "max-tokens"), say("whole")]
        session = await world.session()
        sent = await followup(session, "work")
        assert (await settled(session, sent["message"]))["outcome"] == "max-tokens"
        stopper.asked.clear()
        stopper.answers = [lambda p: Reject("no")]
        await followup(session, "no")
        await quiet(world, session)
        assert not stopper.asked
