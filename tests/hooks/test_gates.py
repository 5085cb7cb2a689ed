"""Hooks in a turn: what each may do, and what the log says of it."""

from __future__ import annotations

import itertools
from typing import Any

import trio

from dshd import wire
from dshd.driver.turn import MOST_STOPPINGS
from dshd.hooks.answers import Ended
from dshd.plugins import text_of
from dshd.session.owner.session import Session
from tests.hooks.scripted import PASSES, Scripted, blocks, hook, says
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, inject, say, steer


async def quiet(world: World, session: Session) -> None:
    with trio.fail_after(20):
        await session.wait_idle()
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)


def entered(world: World, session: Session) -> list[tuple[str, str]]:
    """(kind, text) of what entered, but for the runtime context."""
    found = [e.data for e in world.events(session) if e.type == "user/message"]
    return [(m["source"]["kind"], text_of(m)) for m in found if m["source"].get("via") != "context"]


def data(world: World, session: Session, type: str) -> list[dict[str, Any]]:
    return [dict(e.data) for e in world.events(session) if e.type == type]


def end(world: World, session: Session) -> tuple[str, str | None]:
    last = data(world, session, "turn/end")[-1]
    return last["reason"], last.get("cause")


# --- before a step ------------------------------------------------------------------------------------


async def test_a_prompt_that_is_blocked_is_rejected_and_no_model_is_called() -> None:
    hooks = Scripted(hook("pre_step"), check=lambda found: blocks("not today"))
    async with World(hooks=hooks).run() as world:
        session = await world.session(name="api")
        sent = await followup(session, "work")
        await quiet(world, session)
        assert end(world, session)[0] == "blocked"
        assert world.requests == []
        (rejected,) = data(world, session, "step/rejected")
        assert rejected == {"by": "hook check", "reason": "not today", "messages": [sent["message"]]}
        (ran,) = data(world, session, "hook/ran")
        assert ran == {"event": "pre_step", "hook": "check", "outcome": "blocked", "reason": "not today",
                       "turn": 1, "step": 1, "exit": 2, "ms": 3}  # fmt: skip
    (read,) = hooks.seen
    assert (read["prompt"], read["hook_event_name"], read["session_id"]) == (
        "work",
        "UserPromptSubmit",
        session.id,
    )
    assert (read["name"], read["cwd"], read["turn"], read["step"]) == ("api", "/", 1, 1)
    assert read["transcript_path"].endswith(f"{session.id}/log.jsonl")
    assert read["messages"][0]["source"]["kind"] == "user"


async def test_what_a_hook_adds_is_a_hooks_and_what_it_rewrites_keeps_its_id() -> None:
    def program(found: Any) -> Ended:
        first = {"id": found["messages"][0]["id"], "text": "rewritten"}
        specific = {"hookEventName": "UserPromptSubmit", "additionalContext": "it is Monday"}
        return says(messages=[first, "and this"], hookSpecificOutput=specific)

    hooks = Scripted(hook("pre_step"), check=program)
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        sent = await followup(session, "work")
        await quiet(world, session)
        assert entered(world, session) == [
            ("user", "rewritten"), ("hook", "it is Monday"), ("hook", "and this"),
        ]  # fmt: skip
        first, added = data(world, session, "user/message")[:2]
        assert (first["id"], added["source"]) == (sent["message"], {"kind": "hook", "via": "check"})


async def test_a_deferred_batch_waits_its_time(autojump_clock: trio.testing.MockClock) -> None:
    answers = iter([says(decision="defer", reason="lunch", **{"for": "30s"}), PASSES])
    hooks = Scripted(hook("pre_step"), check=lambda found: next(answers))
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        before = trio.current_time()
        sent = await followup(session, "work")
        with trio.fail_after(100):
            await session.wait_message(sent["message"], stay=True)
        assert 30 <= trio.current_time() - before < 35
        (held,) = [s for s in data(world, session, "inbox/spliced") if s["cause"] == "hold"]
        assert held["by"] == {"kind": "plugin", "via": "hook check", "reason": "lunch"}


async def test_single_messages_are_rejected_by_id_and_the_work_goes_on() -> None:
    def program(found: Any) -> Ended:
        bad = [m["id"] for m in found["messages"] if "bad" in m["content"][0]["text"]]
        return says(decision="reject", reason="bad", messages=bad) if bad else PASSES

    hooks = Scripted(hook("pre_step"), check=program)
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        await inject(session, "a bad fact")
        await followup(session, "work")
        await quiet(world, session)
        assert entered(world, session) == [("user", "work")]


async def test_a_blocked_steer_leaves_the_results_their_step() -> None:
    hooks = Scripted(hook("pre_step"), check=lambda f: blocks("no") if "steer" in f["prompt"] else PASSES)
    async with World(hooks=hooks).run() as world:
        world.script = [call("gate"), say("one")]
        session = await world.session()
        await followup(session, "work")
        await world.gate.began.wait()
        await steer(session, "steer")
        world.gate.opened.set()
        await quiet(world, session)
        assert end(world, session)[0] == "completed"
        assert len(world.requests) == 2
        assert entered(world, session) == [("user", "work")]


async def test_a_matcher_keeps_a_hook_from_steps_that_only_bring_results() -> None:
    hooks = Scripted(hook("pre_step", matcher="messages"), check=lambda found: PASSES)
    async with World(hooks=hooks).run() as world:
        world.script = [call("quick"), say("one")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
    assert [found["prompt"] for found in hooks.seen] == ["work"]


async def test_a_failure_is_told_and_passed_over_or_blocks_if_it_is_to() -> None:
    for on_failure, ends in (("ignore", "completed"), ("block", "blocked")):
        hooks = Scripted(hook("pre_step", on_failure=on_failure), check=lambda found: Ended(exit=1))
        async with World(hooks=hooks).run() as world:
            session = await world.session()
            await followup(session, "work")
            await quiet(world, session)
            assert end(world, session)[0] == ends
            (ran,) = data(world, session, "hook/ran")
            assert (ran["outcome"], ran["reason"], ran["exit"]) == ("failed", "exit 1", 1)


# --- around tools -------------------------------------------------------------------------------------


async def test_a_call_that_is_blocked_is_not_made_and_the_model_reads_why() -> None:
    hooks = Scripted(hook("pre_tool", matcher="quick"), check=lambda found: blocks("not on Fridays"))
    async with World(hooks=hooks).run() as world:
        world.script = [call("quick:a", "look:b"), say("one")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert (world.quick.runs, world.look.runs) == ([], ["b"])
        first = data(world, session, "tool/result")[0]
        assert (first["is_error"], first["error"]) == (True, {"code": "BLOCKED"})
        said = "quick was not run: hook check does not allow it: not on Fridays"
        assert first["content"][0]["text"] == said
        assert said.encode() in world.requests[1]
        assert end(world, session)[0] == "completed"
    (read,) = hooks.seen
    assert (read["tool"], read["arguments"], read["tool_use_id"]) == ("quick", {"name": "a"}, "t1_1_1")


async def test_to_be_asked_about_is_refused_where_nobody_can_be_asked() -> None:
    specific = {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": "hm"}
    hooks = Scripted(hook("pre_tool"), check=lambda found: says(hookSpecificOutput=specific))
    async with World(hooks=hooks).run() as world:
        world.script = [call("quick:a"), say("one")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert world.quick.runs == []


async def test_what_hooks_say_of_calls_comes_after_the_batch_in_the_models_order() -> None:
    opened = trio.Event()

    async def slow_first(found: Any) -> Ended:
        if found["arguments"]["name"] == "a":
            await opened.wait()
        else:
            opened.set()
        return says(messages=[f"about {found['arguments']['name']}: {found['result']}"])

    hooks = Scripted(hook("post_tool"), check=slow_first)
    async with World(hooks=hooks).run() as world:
        world.script = [call("look:a", "look:b"), say("one")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert entered(world, session)[1:] == [("hook", "about a: quick a"), ("hook", "about b: quick b")]
        types = world.types(session)
        assert types.index("inbox/spliced", types.index("tool/result")) > max(
            n for n, type in enumerate(types) if type == "tool/result"
        )


async def test_a_hook_that_wants_the_turn_to_end_ends_it_after_its_step() -> None:
    hooks = Scripted(
        hook("post_tool"), check=lambda found: says(**{"continue": False, "stopReason": "enough"})
    )
    async with World(hooks=hooks).run() as world:
        world.script = [call("quick:a"), say("one")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert end(world, session) == ("blocked", "enough")
        assert len(world.requests) == 1


async def test_bad_arguments_are_nobodys_to_judge() -> None:
    hooks = Scripted(hook("pre_tool"), check=lambda found: PASSES)
    async with World(hooks=hooks).run() as world:
        world.script = [call("no_such_tool"), say("one")]
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
    assert hooks.seen == []


# --- the ends -----------------------------------------------------------------------------------------


async def test_a_stop_that_is_blocked_takes_one_step_more_and_comes_to_an_end() -> None:
    hooks = Scripted(hook("turn_stopping"), check=lambda found: blocks("the tests fail"))
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        assert end(world, session)[0] == "completed"
        assert entered(world, session)[1:] == [("hook", "the tests fail")] * MOST_STOPPINGS
    asked = hooks.asked("turn_stopping")
    assert [found["stop_hook_active"] for found in asked] == [False] + [True] * (MOST_STOPPINGS - 1)
    assert asked[0]["last_assistant_message"] == "done"


async def test_a_session_begins_once_and_what_is_said_then_is_in_its_first_step() -> None:
    hooks = Scripted(hook("session_start"), check=lambda found: says(messages=["the rules"]))
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        await followup(session, "work")
        await quiet(world, session)
        await followup(session, "more")
        await quiet(world, session)
        assert entered(world, session) == [("user", "work"), ("hook", "the rules"), ("user", "more")]
    async with world.crash().run() as world:
        session = await world.again(session)
        await followup(session, "again")
        await quiet(world, session)
    assert [found["source"] for found in hooks.asked("session_start")] == ["startup"]


async def test_an_abort_cancels_every_gate_at_once() -> None:
    for event, script in (
        ("session_start", []), ("pre_step", []), ("pre_tool", [call("quick:a")]),
        ("post_tool", [call("quick:a")]), ("turn_stopping", []),
    ):  # fmt: skip
        began = trio.Event()

        async def hangs(found: Any, began: trio.Event = began) -> Ended:
            began.set()
            await trio.sleep_forever()
            raise AssertionError

        async with World(hooks=Scripted(hook(event), check=hangs)).run() as world:
            world.script = list(script)
            session = await world.session()
            await followup(session, "work")
            with trio.fail_after(5):
                await began.wait()
                await session.abort(wire.AbortParams(), ME)
            await quiet(world, session)
            assert end(world, session)[0] == "aborted"


async def test_a_reload_is_heard_at_the_next_event() -> None:
    count = itertools.count()
    hooks = Scripted(check=lambda found: says(messages=[f"hook {next(count)}"]))
    async with World(hooks=hooks).run() as world:
        session = await world.session()
        await followup(session, "one")
        await quiet(world, session)
        hooks.hooks.append(hook("pre_step"))
        await followup(session, "two")
        await quiet(world, session)
        assert entered(world, session) == [("user", "one"), ("user", "two"), ("hook", "hook 0")]


async def test_a_hook_that_has_it_said_by_a_command_comes_to_an_end_too() -> None:
    hooks = Scripted(hook("turn_stopping"))
    async with World(hooks=hooks).run() as world:
        session = await world.session()

        async def program(found: Any) -> Ended:
            await inject(session, "once more")
            return PASSES

        hooks.programs["check"] = program
        await followup(session, "work")
        await quiet(world, session)
        assert len(world.requests) == 1 + MOST_STOPPINGS
