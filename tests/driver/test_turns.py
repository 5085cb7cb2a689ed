"""Turns and steps: what opens one, what keeps it going, what it leaves when it is stopped."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.log.codec import Event
from dshd.log.memory import Everything, MemoryDisk
from dshd.model.chunks import BlockEnd, BlockStart, ReasoningDelta, TextDelta, ToolCallDelta
from dshd.model.errors import ModelError
from dshd.session.owner.session import Session
from dshd.tools.tool import ToolContext, ToolOutput, text_output
from tests.session.invariants import check_log, check_memory, quiet
from tests.session.rig import (
    ME,
    Gate,
    InlineTools,
    Look,
    World,
    call,
    followup,
    inject,
    of_type,
    say,
    settled,
    steer,
    until,
)


async def hang() -> Any:
    await trio.sleep_forever()


async def until_asked(world: World, n: int = 1) -> None:
    with trio.fail_after(5):
        while len(world.requests) < n:
            await trio.lowlevel.checkpoint()


def batches(events: list[Event]) -> list[list[str]]:
    """The types of the events that were written together; the first of a batch says what was synced."""
    found: list[list[str]] = []
    for event in events:
        if event.synced is not None or not found:
            found.append([])
        found[-1].append(event.type)
    return found


# --- what a step costs ----------------------------------------------------------------------------------


async def test_an_answer_that_comes_at_once_and_its_first_calls_are_one_batch() -> None:
    async with World().run() as world:
        world.script = [call("quick", "look", "look"), say("done")]
        session = await world.session()
        await followup(session, "a")
        written = batches(await quiet(world, session))
        first = next(n for n, types in enumerate(written) if "request/sent" in types)
        assert written[first][-1] == "request/sent"
        assert written[first + 1] == ["assistant/chunk", "assistant/message", "tool/call"]


BOTH = ["tool/result", "step/end", "step/start", "request/sent"]


async def test_the_last_result_the_steps_end_and_the_next_steps_beginning_are_one_batch() -> None:
    async with World().run() as world:
        world.script = [call("quick", "look", "look"), call("quick"), say("done")]
        session = await world.session()
        await followup(session, "a")
        written = batches(await quiet(world, session))
        results = [types for types in written if "tool/result" in types]
        first, *second, third = results
        assert first == ["tool/result", "tool/call", "tool/call"]
        assert second in ([["tool/result"], BOTH], [["tool/result", *BOTH]])  # as they end, so or so
        assert third == BOTH
        assert [request.count(b"'role': 'tool'") for request in world.requests] == [0, 3, 4]


async def test_a_message_claimed_by_the_next_step_enters_in_the_batch_that_opens_it() -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("done")]
        session = await world.session()
        await followup(session, "a")
        await world.gate.began.wait()
        await steer(session, "hurry")
        world.gate.opened.set()
        written = batches(await quiet(world, session))
        together = ["tool/result", "step/end", "inbox/spliced", "step/start", "user/message", "request/sent"]
        assert together in written
        assert b"hurry" in world.requests[1]


async def test_with_a_plugin_the_next_step_passes_the_gates_by_itself() -> None:
    class Passes:
        name = "passes"

        async def pre_step(self, proposal: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return proposal

    async with World(plugins=(Passes(),)).run() as world:
        world.script = [call("quick"), say("done")]
        session = await world.session()
        await followup(session, "a")
        written = batches(await quiet(world, session))
        assert next(types for types in written if "step/end" in types) == BOTH[:2]
        assert BOTH[2:] in written


async def test_a_full_disk_between_two_steps_is_waited_for_at_the_gate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("done")]
        session = await world.session()
        await followup(session, "a")
        await world.gate.began.wait()
        assert isinstance(world.disk, MemoryDisk)
        world.disk.fail("write", errno.ENOSPC, path="log.jsonl", times=1)
        world.disk.fail("write", errno.ENOSPC, path="log.jsonl", skip=2, times=3)
        world.gate.opened.set()
        written = batches(await quiet(world, session))
        assert BOTH[:2] in written
        assert BOTH[2:] in written
        assert of_type(world, session, "turn/end")[0]["reason"] == "completed"


async def test_a_stop_between_two_steps_opens_no_next_one() -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("done")]
        session = await world.session()
        await followup(session, "a")
        await world.gate.began.wait()
        session.driver.stop_at_boundary()
        world.gate.opened.set()
        await until(session, lambda: of_type(world, session, "turn/end"))
        assert len(of_type(world, session, "step/start")) == 1
        assert of_type(world, session, "turn/end")[0]["reason"] == "interrupted"


# --- what opens a turn ----------------------------------------------------------------------------------


async def test_three_followups_are_three_turns_with_a_beginning_and_an_end_each() -> None:
    async with World().run() as world:
        session = await world.session()
        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(followup, session, f"t{n}")
        events = await quiet(world, session)
        starts = [e.data["turn"] for e in events if e.type == "turn/start"]
        ends = [(e.data["turn"], e.data["reason"]) for e in events if e.type == "turn/end"]
        assert starts == [1, 2, 3]
        assert ends == [(1, "completed"), (2, "completed"), (3, "completed")]
        assert [e.data["step"] for e in events if e.type == "step/start"] == [1, 1, 1]
        assert [t.members[0] for t in (session.state.turns[n] for n in (1, 2, 3))] == sorted(
            m["id"] for m in of_type(world, session, "user/message") if m["source"]["via"] == "rpc"
        )


async def test_each_turn_counts_its_own_use() -> None:
    async with World().run() as world:
        world.script = [call("quick"), say("one"), say("two")]
        session = await world.session()
        await followup(session, "a")
        await followup(session, "b")
        await quiet(world, session)
        assert [e["usage"] for e in of_type(world, session, "turn/end")] == [
            {"input": 20, "output": 4}, {"input": 10, "output": 2},
        ]  # fmt: skip


async def test_a_pending_followup_does_not_keep_a_turn_going() -> None:
    async with World().run() as world:
        world.script = [call("gate"), say("one"), say("two")]
        session = await world.session()
        first = await followup(session, "a")
        await world.gate.began.wait()
        second = await followup(session, "b")
        world.gate.opened.set()
        await quiet(world, session)
        answers = [(await settled(session, r["message"]))["text"] for r in (first, second)]
        assert answers == ["one", "two"]


async def test_an_inject_opens_no_turn_and_rides_along_with_the_next() -> None:
    async with World().run() as world:
        session = await world.session()
        fact = await inject(session, "odd fact")
        await quiet(world, session)
        assert world.types(session)[-1] == "inbox/spliced"
        assert session.message(fact["message"])["state"] == "pending"
        await followup(session, "odd question")
        await quiet(world, session)
        assert world.requests[0].index(b"odd fact") < world.requests[0].index(b"odd question")
        assert (session.message(fact["message"])["turn"], session.state.last_turn) == (1, 1)


async def test_a_steer_to_an_idle_session_opens_a_turn() -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await steer(session, "work")
        assert sent["turn"] == 1
        assert (await settled(session, sent["message"]))["turn"] == 1


async def test_many_wakes_at_once_start_one_driver() -> None:
    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(followup, session, f"t{n}")
        await world.gate.began.wait()
        assert world.types(session).count("turn/start") == 1
        world.gate.opened.set()
        await quiet(world, session)
        assert session.state.last_turn == 20


async def test_a_send_in_the_instant_a_turn_ends_is_answered_a_hundred_times() -> None:
    async with World().run() as world:
        session = await world.session()
        for n in range(100):
            first = await followup(session, f"a{n}")
            sent: list[Any] = []

            async def later(n: int = n, sent: list[Any] = sent) -> None:
                for _ in range(n % 50):
                    await trio.lowlevel.checkpoint()
                sent.append(await (followup, steer)[n % 2](session, f"b{n}"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(later)
            assert (await settled(session, first["message"]))["outcome"] == "completed"
            assert (await settled(session, sent[0]["message"]))["outcome"] == "completed"
        await quiet(world, session)


# --- what keeps a turn going ----------------------------------------------------------------------------


@pytest.mark.parametrize("send", [inject, steer])
async def test_what_comes_too_late_for_the_last_step_keeps_the_turn_alive_for_one_more(send: Any) -> None:
    async with World().run() as world:
        answer = trio.Event()

        async def slowly() -> Any:
            await answer.wait()
            return say("the last word")

        world.script = [slowly, say("heard that too")]
        session = await world.session()
        sent = await followup(session, "work")
        await until_asked(world)
        late = await send(session, "late")
        answer.set()
        result = await settled(session, sent["message"])
        assert (result["turn"], result["steps"], result["text"]) == (1, 2, "heard that too")
        assert session.message(late["message"])["step"] == 2
        await quiet(world, session)
        assert session.state.last_turn == 1


async def test_steers_and_injects_during_a_tool_enter_together_behind_its_result() -> None:
    async with World().run() as world:
        world.script = [call("look:a", "look:b", "gate"), say("done")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        sent = [await steer(session, "s1"), await inject(session, "i1"), await steer(session, "s2")]
        world.gate.opened.set()
        await quiet(world, session)
        assert [session.message(r["message"])["step"] for r in sent] == [2, 2, 2]
        request = world.requests[1]
        where = [
            request.index(word) for word in (b"quick a", b"quick b", b"gate is open", b"s1", b"i1", b"s2")
        ]
        assert where == sorted(where)


async def test_what_a_tool_adds_enters_after_the_whole_batch() -> None:
    @attrs.define(eq=False)
    class Adds(Gate):
        name: str = "adds"

        async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            await trio.lowlevel.checkpoint()
            return attrs.evolve(text_output("result"), inject=("and a note",))

    async with World().run() as world:
        world.script = [call("adds", "quick:last"), say("done")]
        session = await world.session()
        tools = InlineTools([Adds(), world.quick])
        session.driver._services = attrs.evolve(session.driver._services, tools=tools)
        await followup(session, "work")
        await quiet(world, session)
        request = world.requests[1]
        assert request.index(b"quick last") < request.index(b"and a note")
        note = next(m for m in of_type(world, session, "user/message") if m["step"] == 2)
        assert (note["source"]["kind"], note["verb"]) == ("hook", "inject")


async def test_two_calls_with_one_id_of_the_providers_are_two_calls_run_once_each() -> None:
    same = [
        BlockStart(0, "tool-call", id="dup", name="quick"), ToolCallDelta(0, '{"name": "a"}'),
        BlockStart(1, "tool-call", id="dup", name="quick"), ToolCallDelta(1, '{"name": "b"}'),
        *call()[-2:],
    ]  # fmt: skip
    async with World().run() as world:
        world.script = [same, same, say("done")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert world.quick.runs == ["a", "b", "a", "b"]
        ids = [r["call"] for r in of_type(world, session, "tool/result")]
        assert len(set(ids)) == 4


async def test_results_are_logged_in_the_order_in_which_the_model_asked() -> None:
    first, second = trio.Event(), trio.Event()

    @attrs.define(eq=False)
    class Ordered(Look):
        async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            if args["name"] == "slow":
                await second.wait()
                first.set()
            else:
                second.set()
                await first.wait()
            return text_output(args["name"])

    async with World().run() as world:
        world.script = [call("look:slow", "look:fast"), say("done")]
        session = await world.session()
        session.driver._services = attrs.evolve(session.driver._services, tools=InlineTools([Ordered()]))
        await followup(session, "work")
        await quiet(world, session)
        results = [r["content"][0]["text"] for r in of_type(world, session, "tool/result")]
        assert results == ["slow", "fast"]


async def test_a_tool_that_fails_is_a_result_and_the_turn_goes_on() -> None:
    @attrs.define(eq=False)
    class Fails(Gate):
        name: str = "fails"

        async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            raise OSError("no such device")

    async with World().run() as world:
        world.script = [call("fails"), say("done")]
        session = await world.session()
        session.driver._services = attrs.evolve(session.driver._services, tools=InlineTools([Fails()]))
        sent = await followup(session, "work")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        (result,) = of_type(world, session, "tool/result")
        assert result["is_error"]
        await quiet(world, session)


# --- max-tokens -----------------------------------------------------------------------------------------


async def test_a_cut_answer_ends_the_turn_max_tokens_and_runs_no_call() -> None:
    cut = [*call("quick")[:-1], say("", "max-tokens")[-1]]
    async with World().run() as world:
        world.script = [cut]
        session = await world.session()
        sent = await followup(session, "work")
        result = await settled(session, sent["message"])
        assert (result["outcome"], result["exit"], len(world.requests)) == ("max-tokens", 13, 1)
        assert not world.quick.runs
        await quiet(world, session)


async def test_max_tokens_sticks_to_its_turn_and_to_no_other() -> None:
    async with World().run() as world:
        answer = trio.Event()

        async def slowly() -> Any:
            await answer.wait()
            return say("cut off", "max-tokens")

        world.script = [slowly, say("a later step"), say("a later turn")]
        session = await world.session()
        first = await followup(session, "work")
        await until_asked(world)
        await steer(session, "go on")
        second = await followup(session, "next")
        answer.set()
        assert (await settled(session, first["message"]))["outcome"] == "max-tokens"
        assert session.state.turns[1].steps == 2
        assert (await settled(session, second["message"]))["outcome"] == "completed"


OVERRIDES: dict[str, Callable[[], Any]] = {"error": lambda: ModelError("AUTH", "no"), "aborted": lambda: hang}


@pytest.mark.parametrize("reason", OVERRIDES)
async def test_a_later_failure_or_abort_overrides_max_tokens(reason: str) -> None:
    async with World().run() as world:
        answer = trio.Event()

        async def slowly() -> Any:
            await answer.wait()
            return say("cut off", "max-tokens")

        world.script = [slowly, OVERRIDES[reason]()]
        session = await world.session()
        first = await followup(session, "work")
        await until_asked(world)
        await steer(session, "go on")
        answer.set()
        await until_asked(world, 2)
        if reason == "aborted":
            await session.abort(wire.AbortParams(), ME)
        assert (await settled(session, first["message"]))["outcome"] == reason


# --- what a stopped turn leaves -------------------------------------------------------------------------


async def aborted_while(answer: list[Any], world: World, session: Session) -> list[dict[str, Any]]:
    """Abort while the model hangs after these chunks; the assistant messages in the log."""
    world.script = [[*answer, hang]]
    sent = await followup(session, "work")
    await until(session, lambda: "assistant/chunk" in world.types(session) or not answer)
    await until_asked(world)
    await trio.testing.wait_all_tasks_blocked()
    await session.abort(wire.AbortParams(), ME)
    assert (await settled(session, sent["message"]))["outcome"] == "aborted"
    await quiet_parked(world, session)
    return of_type(world, session, "assistant/message")


async def quiet_parked(world: World, session: Session) -> None:
    await until(session, lambda: session.activity.phase == "idle")
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)


HALF_CALL = [BlockStart(1, "tool-call", id="p", name="quick"), ToolCallDelta(1, '{"na')]
TEXT = [BlockStart(0, "text"), TextDelta(0, "I will")]
REASONING = [BlockStart(0, "reasoning"), ReasoningDelta(0, "hm"), BlockEnd(0)]

KEPT: dict[str, tuple[list[Any], list[str]]] = {
    "nothing": ([], []),
    "text": (TEXT, ["text"]),
    "text and half a call": ([*TEXT, *HALF_CALL], ["text"]),
    "half a call": (HALF_CALL, []),
    "white space": ([BlockStart(0, "text"), TextDelta(0, " \n")], []),
    "reasoning": (REASONING, ["reasoning"]),
}


@pytest.mark.parametrize("what", KEPT)
async def test_an_abort_keeps_text_and_reasoning_that_streamed_and_no_half_call(what: str) -> None:
    chunks, kept = KEPT[what]
    async with World().run() as world:
        session = await world.session()
        messages = await aborted_while(chunks, world, session)
        assert [[b["type"] for b in m["content"]] for m in messages] == ([kept] if kept else [])
        assert all(m["interrupted"] and m["model"] == "scripted" for m in messages)
        assert not world.quick.runs
        assert "tool/call" not in world.types(session)


@pytest.mark.parametrize("what", KEPT)
async def test_a_crash_keeps_the_same(what: str) -> None:
    chunks, kept = KEPT[what]
    async with World().run() as world:
        world.script = [[*chunks, hang]]
        session = await world.session()
        sent = await followup(session, "work")
        await until_asked(world)
        await trio.testing.wait_all_tasks_blocked()
        assert session.ledger is not None
        await session.ledger.writer.sync()
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, sent["message"]))["outcome"] == "interrupted"
        messages = of_type(after, again, "assistant/message")
        assert [[b["type"] for b in m["content"]] for m in messages] == ([kept] if kept else [])
        await quiet(after, again)


async def test_what_was_kept_goes_with_the_next_request() -> None:
    async with World().run() as world:
        session = await world.session()
        await aborted_while(TEXT, world, session)
        world.script = []
        await followup(session, "and now")
        await session.wait_idle()
        assert b"I will" in world.requests[-1]


async def test_three_aborts_before_a_word_leave_three_user_messages_and_no_empty_answers() -> None:
    async with World().run() as world:
        session = await world.session()
        for _ in range(3):
            await aborted_while([], world, session)
        assert not of_type(world, session, "assistant/message")
        world.script = [say("at last")]
        sent = await followup(session, "now")
        assert (await settled(session, sent["message"]))["text"] == "at last"


async def test_an_abort_during_tools_keeps_what_finished_and_gives_every_call_a_result() -> None:
    async with World().run() as world:
        world.script = [call("look:done", "gate", "quick:never"), say("x")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        answer = await session.abort(wire.AbortParams(), ME)
        assert answer["outcome"] == "aborted"
        results = of_type(world, session, "tool/result")
        assert [(r.get("error") or {}).get("code") for r in results] == [None, "STOPPED", "SKIPPED"]
        assert results[0]["content"][0]["text"] == "quick done"
        assert [r["is_error"] for r in results] == [False, True, True]
        assert [c["name"] for c in of_type(world, session, "tool/call")] == ["look", "gate"]
        assert world.quick.runs == []
        await quiet_parked(world, session)


async def test_a_call_that_an_abort_could_not_wholly_end_says_so_in_its_result() -> None:
    began = trio.Event()

    @attrs.define(eq=False)
    class Stuck(Look):
        async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            try:
                began.set()
                await trio.sleep_forever()
            finally:
                assert ctx.keep is not None
                ctx.keep(text_output("process 4711 is still there"))

    async with World().run() as world:
        world.script = [call("look:x")]
        session = await world.session()
        session.driver._services = attrs.evolve(session.driver._services, tools=InlineTools([Stuck()]))
        await followup(session, "work")
        await began.wait()
        await session.abort(wire.AbortParams(), ME)
        (result,) = of_type(world, session, "tool/result")
        assert result["content"][0]["text"] == "process 4711 is still there"
        await quiet_parked(world, session)


async def test_of_parallel_calls_an_abort_keeps_those_that_had_finished() -> None:
    stuck = trio.Event()

    @attrs.define(eq=False)
    class Slow(Look):
        async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            if args["name"] == "slow":
                stuck.set()
                await trio.sleep_forever()
            return text_output("quick")

    async with World().run() as world:
        world.script = [call("look:slow", "look:fast")]
        session = await world.session()
        session.driver._services = attrs.evolve(session.driver._services, tools=InlineTools([Slow()]))
        await followup(session, "work")
        await stuck.wait()
        await trio.testing.wait_all_tasks_blocked()
        await session.abort(wire.AbortParams(), ME)
        results = of_type(world, session, "tool/result")
        assert [(r.get("error") or {}).get("code") for r in results] == ["STOPPED", None]


async def test_what_a_crash_cut_off_is_kept_with_the_model_that_said_it() -> None:
    async with World().run() as world:
        world.script = [[*TEXT, hang]]
        session = await world.session()
        await followup(session, "work")
        await until(session, lambda: "assistant/chunk" in world.types(session))
        after = world.crash(Everything())
    async with after.run():
        again = await after.again(session)
        await quiet(after, again)
        (kept,) = of_type(after, again, "assistant/message")
        said = kept["content"][0]["text"], kept["interrupted"], kept["model"]
        assert said == ("I will", True, "scripted")


async def test_after_a_crash_not_started_and_started_are_told_apart() -> None:
    async with World().run() as world:
        world.script = [call("look:done", "gate", "quick:never")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        after = world.crash()
    async with after.run():
        again = await after.again(session)
        await quiet(after, again)
        results = of_type(after, again, "tool/result")
        codes = [(r.get("error") or {}).get("code") for r in results]
        assert codes[1:] == ["OUTCOME_UNKNOWN", "NOT_STARTED"]
        assert "check before repeating" in results[1]["content"][0]["text"]
        assert "safe to repeat" in results[2]["content"][0]["text"]
        assert after.quick.runs == [], "an executed or asked call was repeated"


async def test_a_result_that_comes_too_late_is_dropped() -> None:
    @attrs.define(eq=False)
    class Late(Gate):
        async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            self.began.set()
            with trio.CancelScope(shield=True):
                await self.opened.wait()
            return text_output("too late?")

    async with World().run() as world:
        world.script = [call("gate")]
        session = await world.session()
        late = Late()
        session.driver._services = attrs.evolve(session.driver._services, tools=InlineTools([late]))
        await followup(session, "work")
        await late.began.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.abort, wire.AbortParams(), ME)
            await trio.testing.wait_all_tasks_blocked()
            late.opened.set()
        results = of_type(world, session, "tool/result")
        assert len(results) == 1
        await quiet_parked(world, session)


# --- failures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [RuntimeError("bug"), KeyError("x"), ExceptionGroup("g", [ValueError("y")])]
)
async def test_whatever_the_work_raises_the_turn_ends_and_the_next_one_works(error: Exception) -> None:
    async with World().run() as world:
        world.script = [error]
        session = await world.session()
        sent = await followup(session, "work")
        result = await settled(session, sent["message"])
        assert (result["outcome"], result["error"]["code"]) == ("error", "UNKNOWN")
        again = await followup(session, "again")
        assert (await settled(session, again["message"]))["outcome"] == "completed"
        await quiet(world, session)


async def test_a_model_that_cannot_be_called_leaves_the_message_in_the_queue_until_it_can() -> None:
    async with World().run() as world:
        session = await world.session()

        class Missing:
            def prepare_call(self, route: str, **more: Any) -> Any:
                raise ModelError("MISSING_CREDENTIAL", "no key", hint="dshctl key scripted")

        good = session.driver._services
        session.driver._services = attrs.evolve(good, models=Missing())
        sent = await followup(session, "work")
        await until(session, lambda: session.state.parked)
        await quiet_parked(world, session)
        assert session.message(sent["message"])["state"] == "pending"
        assert (await session.wait_message(sent["message"]))["exit"] == 9
        end = of_type(world, session, "turn/end")[0]
        assert (end["reason"], end["error"]["code"]) == ("error", "MISSING_CREDENTIAL")
        session.driver._services = good
        await session.wake(wire.WakeParams(), ME)
        assert (await settled(session, sent["message"]))["outcome"] == "completed"


@attrs.define(eq=False)
class Unwritable(Gate):
    """A tool whose result is no JSON."""

    name: str = "unwritable"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        return ToolOutput([{"type": "text", "text": "x", "n": math.inf}])


async def test_a_turn_ends_though_what_its_tool_gave_cannot_be_written() -> None:
    async with World().run() as world:
        world.script = [call("unwritable")]
        session = await world.session()
        good = session.driver._services
        session.driver._services = attrs.evolve(good, tools=InlineTools([Unwritable()]))
        sent = await followup(session, "work")
        result = await settled(session, sent["message"])
        assert (result["outcome"], result["error"]["code"]) == ("error", "UNKNOWN")
        again = await followup(session, "again")
        assert (await settled(session, again["message"]))["outcome"] == "completed"
        await quiet(world, session)


async def test_a_turn_ends_though_what_its_model_said_cannot_be_written() -> None:
    reasoning = [BlockStart(0, "reasoning"), ReasoningDelta(0, "hm"), BlockEnd(0, {"signature": math.nan})]
    async with World().run() as world:
        world.script = [[*reasoning, *say("x")[2:]]]
        session = await world.session()
        sent = await followup(session, "work")
        assert (await settled(session, sent["message"]))["outcome"] == "error"
        again = await followup(session, "again")
        assert (await settled(session, again["message"]))["outcome"] == "completed"
        await quiet(world, session)


# --- what is shown --------------------------------------------------------------------------------------


async def test_status_says_what_a_turn_does_just_now() -> None:
    async with World().run() as world:
        world.script = [call("gate:door"), hang]
        session = await world.session()
        assert session.show()["state"] == "idle"
        await followup(session, "work")
        await world.gate.began.wait()
        view = session.show()
        assert (view["state"], view["phase"], view["turn"], view["step"]) == ("running", "running", 1, 1)
        assert view["doing"] == "gate: door"
        world.gate.opened.set()
        await until_asked(world, 2)
        assert session.show()["doing"] == "model: scripted"
        await session.abort(wire.AbortParams(), ME)
        await until(session, lambda: session.activity.phase == "idle")
        assert session.show()["doing"] is None


async def test_followups_sent_during_a_call_each_get_a_turn_and_a_steer_after_them_takes_none_along() -> None:
    async with World().run() as world:
        world.script = [call("gate"), *(say(word) for word in ("one", "two", "three"))]
        session = await world.session()
        first = await followup(session, "first")
        await world.gate.began.wait()
        sent = [await send(session, text) for send, text in (
            (followup, "second"), (followup, "third"), (steer, "aside"),
        )]  # fmt: skip
        world.gate.opened.set()
        results = [await settled(session, receipt["message"]) for receipt in (first, *sent)]
        assert [(result["turn"], result["text"]) for result in results] == [
            (1, "one"), (2, "two"), (3, "three"), (1, "one"),
        ]  # fmt: skip
