"""Compaction in a running session: when it happens, what it leaves, and what may happen meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.errors import Conflict, DshError
from dshd.log.codec import Event
from dshd.log.memory import MemoryDisk
from dshd.model.adapter import PreparedCall
from dshd.model.chunks import BlockStart, Finish, TextDelta, Usage
from dshd.model.errors import ModelError
from dshd.session.owner.session import Session
from dshd.session.registry import requests
from dshd.tools.tool import ToolContext, ToolOutput, text_output
from tests.session.invariants import check_log, check_memory
from tests.session.rig import (
    ME,
    Look,
    ScriptedModels,
    World,
    call,
    followup,
    inject,
    say,
    settled,
    steer,
)

WINDOW = 4_000  # tokens
LONG = "all work and no play " * 120  # about 600 tokens
SUMMARY = say("## Task: what was asked")
FULL = ModelError("CONTEXT_WINDOW_EXCEEDED", "too long")


class Narrow(ScriptedModels):
    """A model with a small window, or with one that nobody knows."""

    window: int | None = WINDOW

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        return attrs.evolve(super().prepare_call(route, patience=patience), window=self.window)


@attrs.define(eq=False)
class Prints(Look):
    """A tool that prints so many bytes."""

    name: str = "prints"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        return text_output("y" * int(args["name"]))


@pytest.fixture
def world() -> World:
    made = World()
    made.route = Narrow(made)
    made.tools.add(Prints())
    return made


def of(world: World, session: Session, *types: str) -> list[Event]:
    return [e for e in world.events(session) if e.type in types]


def ends(world: World, session: Session) -> list[dict[str, Any]]:
    return [e.data for e in of(world, session, "compaction/end")]


def reasons(world: World, session: Session) -> list[str]:
    return [end["reason"] for end in ends(world, session)]


def check_requests(world: World, session: Session) -> None:
    found = requests.check(world.disk, world.store.log_path(session.id), world.route.rebuild)
    assert found.problem is None
    assert found.compared == world.types(session).count("request/sent")


async def rests(world: World, session: Session) -> None:
    """Until it rests; then all that must hold of its log does, and its requests can be made again."""
    with trio.fail_after(20):
        await session.wait_idle()
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)
    check_requests(world, session)


async def talk(world: World, session: Session, n: int = 4) -> None:
    """A conversation of ``n`` long turns."""
    for i in range(n):
        world.script = [say(f"answer {i}")]
        await settled(session, (await followup(session, f"part {i}: {LONG}"))["message"])


class Held:
    """An answer that waits until the test lets it go: ``began`` is set when it was asked for."""

    def __init__(self, item: Any) -> None:
        self.item, self.began, self.go = item, trio.Event(), trio.Event()

    async def __call__(self) -> Any:
        self.began.set()
        await self.go.wait()
        return self.item


# --- before a step ---------------------------------------------------------------------------------


async def test_a_step_that_would_fill_the_window_is_preceded_by_a_compaction(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        world.requests.clear()
        world.script = [SUMMARY, say("fine")]
        sent = await followup(session, "part 4: " + LONG)
        assert (await settled(session, sent["message"]))["text"] == "fine"
        asked, went_on = world.requests
        assert b"the place of everything above" in asked
        assert b"## Task: what was asked" in went_on
        assert b"part 0" not in went_on
        assert b"part 4" in went_on
        assert b"part 4" not in asked, "what is claimed has not entered yet"
        (end,) = ends(world, session)
        assert end["reason"] == "done"
        assert end["after"] < end["before"]
        await rests(world, session)


async def test_below_the_threshold_nothing_is_compacted_not_even_a_long_result(world: World) -> None:
    async with world.run():
        session = await world.session()
        world.script = [call("prints:9000"), say("done")]
        await settled(session, (await followup(session, "go"))["message"])
        await rests(world, session)
        assert not of(world, session, "compaction/start")


async def test_the_replacement_names_every_event_that_it_hides_and_keeps_the_newest_part(
    world: World,
) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        before = [entry.seq for entry in session.state.surface]
        world.script = [SUMMARY]
        await settled(session, (await followup(session, "part 4: " + LONG))["message"])
        (event,) = [e for e in of(world, session, "user/message") if e.surface != "append"]
        assert list(event.sources or ()) == before[: len(event.sources or ())]
        assert event.surface == {"replace": [before[0], (event.sources or ())[-1]]}
        kept = [e for e in session.state.surface if e.seq in before]
        assert sum(len(str(e.data["content"])) for e in kept) / 4 >= 0.16 * WINDOW
        assert session.state.receipts.get(event.data["id"]) is None, "nobody said it"
        await rests(world, session)


async def test_old_long_results_are_cut_short_first_and_often_that_is_enough(world: World) -> None:
    async with world.run():
        session = await world.session()
        world.script = [call("prints:9000"), say("done")]
        await settled(session, (await followup(session, "go"))["message"])
        await talk(world, session, 1)
        world.requests.clear()
        world.script = [say("fine")]
        await settled(session, (await followup(session, "more: " + LONG))["message"])
        assert len(world.requests) == 1, "no model was asked for a summary"
        assert b"bytes were left out here when the conversation was compacted" in world.requests[0]
        (end,) = ends(world, session)
        assert (end["pruned"], end["hidden"]) == (1, 0)
        await rests(world, session)


async def test_a_new_result_that_alone_exceeds_the_window_is_cut_short_too(world: World) -> None:
    async with world.run():
        session = await world.session()
        world.script = [call("prints:16000"), say("fine")]
        sent = await followup(session, "go")
        assert (await settled(session, sent["message"]))["text"] == "fine"
        assert [(end["pruned"], end["reason"]) for end in ends(world, session)] == [(1, "done")]
        await rests(world, session)


async def test_in_a_long_turn_it_is_done_between_two_steps(world: World) -> None:
    async with world.run():
        session = await world.session()
        world.script = [*[call("prints:3000")] * 4, SUMMARY, call("prints:10"), say("done")]
        sent = await followup(session, "go")
        assert (await settled(session, sent["message"]))["outcome"] == "completed"
        assert reasons(world, session) == ["done"]
        types = [t for t in world.types(session) if t.startswith(("step/", "compaction/"))]
        at = types.index("compaction/start")
        assert types[at - 1 : at + 4] == [
            "step/end", "compaction/start", "compaction/summary", "compaction/end", "step/start",
        ]  # fmt: skip
        await rests(world, session)


async def test_a_runtime_context_that_was_hidden_is_told_again(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        world.script = [SUMMARY, say("fine")]
        await settled(session, (await followup(session, "part 4: " + LONG))["message"])
        assert world.requests[-1].count(b"Runtime context") == 1
        await rests(world, session)


# --- what it must not do ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (say("   "), "empty"),
        (call("quick"), "called tools"),
        (say("cut", "max-tokens"), "longer than the model may answer"),
        (say("filtered", "content-filter"), "content filter"),
        (say("no shorter " * 800), "not smaller"),
        (ModelError("AUTH", "no key"), "no key"),
    ],
    ids=["empty", "tools", "cut", "filtered", "larger", "refused"],
)
async def test_a_summary_that_is_no_good_leaves_the_conversation_as_it_was_and_the_turn_goes_on(
    world: World, answer: Any, says: str
) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        before = [entry.seq for entry in session.state.surface]
        world.script = [answer, say("fine")]
        sent = await followup(session, "part 4: " + LONG)
        assert (await settled(session, sent["message"]))["text"] == "fine"
        (end,) = ends(world, session)
        assert end["reason"] == "failed"
        assert says in end["error"]["message"]
        assert [entry.seq for entry in session.state.surface][: len(before)] == before
        assert not session.state.parked
        await rests(world, session)


async def test_what_failed_is_not_tried_again_at_every_step(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        world.script = [say(" "), *[call("quick")] * 5, say("fine")]
        await settled(session, (await followup(session, "part 4: " + LONG))["message"])
        assert reasons(world, session) == ["failed"]
        await rests(world, session)


async def test_a_passing_failure_is_tried_again_a_few_times(world: World, autojump_clock: Any) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        world.script = [ModelError("SERVER", "down"), ModelError("SERVER", "down"), SUMMARY, say("fine")]
        sent = await followup(session, "part 4: " + LONG)
        assert (await settled(session, sent["message"]))["text"] == "fine"
        assert reasons(world, session) == ["done"]
        await rests(world, session)


async def test_a_provider_that_is_always_full_ends_the_turn_after_a_few_requests_and_idles(
    world: World, autojump_clock: Any
) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        world.requests.clear()
        world.script = [FULL] * 100
        result = await settled(session, (await followup(session, "more"))["message"])
        assert result["outcome"] == "error"
        assert result["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"
        assert len(world.requests) <= 5
        asked = len(world.requests)
        await trio.sleep(3600)
        assert len(world.requests) == asked, "an idle session asks nothing"
        assert session.state.parked
        await rests(world, session)


async def test_an_answer_cut_at_its_length_without_usage_compacts_nothing(world: World) -> None:
    async with world.run():
        session = await world.session()
        world.script = [[Usage({"input": 0, "output": 0}), Finish("max-tokens")]] * 3
        result = await settled(session, (await followup(session, "go"))["message"])
        assert result["outcome"] == "max-tokens"
        assert len(world.requests) == 1
        assert not of(world, session, "compaction/start", "assistant/message")
        await rests(world, session)


# --- the window is exceeded ------------------------------------------------------------------------


async def test_a_full_window_is_compacted_and_the_request_made_once_more_in_the_same_step(
    world: World,
) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        world.script = [FULL, SUMMARY, say("fine")]
        sent = await followup(session, "more")
        result = await settled(session, sent["message"])
        assert (result["text"], result["steps"]) == ("fine", 1)
        attempts = [e.data for e in of(world, session, "request/sent")][-3:]
        assert [a["attempt"] for a in attempts] == [1, 1, 2]
        assert [a.get("compaction") for a in attempts] == [None, 1, None]
        await rests(world, session)


async def test_of_a_window_that_nobody_knows_the_provider_says_when_it_is_full(world: World) -> None:
    world.route.window = None
    async with world.run():
        session = await world.session()
        await talk(world, session, 8)
        world.script = [FULL, FULL, SUMMARY, say("fine")]
        sent = await followup(session, "more")
        assert (await settled(session, sent["message"]))["text"] == "fine"
        first, second = [
            e.data["messages"] for e in of(world, session, "request/sent") if "messages" in e.data
        ]
        assert second < first, "a request for a summary that was too long itself is made of less"
        await rests(world, session)


async def test_a_message_that_fits_no_window_is_an_error_that_says_so(world: World) -> None:
    async with world.run():
        session = await world.session()
        result = await settled(session, (await followup(session, "x" * 5 * WINDOW))["message"])
        assert result["outcome"] == "error"
        assert "the conversation is full" in result["error"]["message"]
        assert world.requests == []
        await rests(world, session)


# --- what arrives meanwhile ------------------------------------------------------------------------


async def test_what_is_said_during_a_compaction_goes_out_with_the_first_request_after_it_once_and_in_order(
    world: World,
) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        held = Held(SUMMARY)
        world.script = [held, say("fine"), say("next")]
        first = await followup(session, "part 4: " + LONG)
        await held.began.wait()
        said = [f"said {n}" for n in range(12)]
        for n, text in enumerate(said):
            await (steer if n % 2 else inject)(session, text)
        later = await followup(session, "later")
        held.go.set()
        assert (await settled(session, first["message"]))["text"] == "fine"
        assert (await settled(session, later["message"]))["text"] == "next"
        summing, after, last = world.requests[-3:]
        assert b"said" not in summing
        places = [after.index(f"'said {n}'".encode()) for n in range(12)]
        assert places == sorted(places)
        assert all(last.count(f"'said {n}'".encode()) == 1 for n in range(12))
        assert reasons(world, session) == ["done"]
        await rests(world, session)


async def test_a_full_disk_in_the_middle_of_a_compaction_is_waited_for(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    async with world.run():
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        session = await world.session()
        await talk(world, session)

        async def fills_up() -> Any:
            disk.fail("write", errno.ENOSPC, path="log.jsonl", times=3)
            return SUMMARY

        world.script = [fills_up, say("fine")]
        sent = await followup(session, "part 4: " + LONG)
        assert (await settled(session, sent["message"]))["text"] == "fine"
        assert reasons(world, session) == ["done"]
        await rests(world, session)


async def test_an_abort_during_a_compaction_ends_the_turn_and_leaves_the_conversation(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        before = [entry.seq for entry in session.state.surface]
        held = Held(SUMMARY)
        world.script = [held]
        sent = await followup(session, "part 4: " + LONG)
        await held.began.wait()
        await session.abort(wire.AbortParams(), ME)
        assert (await settled(session, sent["message"]))["outcome"] == "aborted"
        assert reasons(world, session) == ["aborted"]
        assert [entry.seq for entry in session.state.surface] == before
        assert not of(world, session, "compaction/summary")
        await rests(world, session)


# --- because somebody asked ------------------------------------------------------------------------


async def test_between_turns_it_is_maintenance_and_a_wake_meanwhile_is_latched(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held, say("fine")]
        async with trio.open_nursery() as nursery:
            answers: list[Any] = []

            async def compact() -> None:
                answers.append(await session.compact(ME))

            nursery.start_soon(compact)
            nursery.start_soon(compact)
            await held.began.wait()
            shown = session.show()
            assert (shown["phase"], shown["state"], shown["turn"]) == ("maintenance", "running", 3)
            assert shown["doing"].startswith("compacting (")
            receipt = await steer(session, "go on")
            assert receipt["phase"] == "maintenance"
            why = session.why(receipt["message"])
            assert why["reason"] == "maintenance"
            assert why["sentence"] == "The conversation is compacted first; then it is next."
            with pytest.raises(Conflict, match="is compacting its conversation"):
                await followup(session, "not sent", if_idle=True)
            await trio.testing.wait_all_tasks_blocked()
            assert session.state.turn is None
            held.go.set()
        assert (await settled(session, receipt["message"]))["text"] == "fine"
        assert [a["outcome"] for a in answers] == ["done", "done"]
        assert answers[0]["after"] < answers[0]["before"]
        assert reasons(world, session) == ["done"], "two who ask at once share it"
        await rests(world, session)
        assert session.show()["phase"] == "idle"


async def test_there_may_be_nothing_to_compact(world: World) -> None:
    async with world.run():
        session = await world.session()
        events = len(world.events(session))
        answer = await session.compact(ME)
        assert (answer["outcome"], answer["exit"]) == ("nothing", 0)
        assert len(world.events(session)) == events
        assert world.requests == []


async def test_while_a_turn_runs_it_is_done_at_the_next_step(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        world.script = [call("gate"), SUMMARY, say("fine")]
        sent = await followup(session, "go")
        await world.gate.began.wait()
        async with trio.open_nursery() as nursery:
            answers: list[Any] = []

            async def compact() -> None:
                answers.append(await session.compact(ME))

            nursery.start_soon(compact)
            await trio.testing.wait_all_tasks_blocked()
            assert not of(world, session, "compaction/start")
            world.gate.opened.set()
        (answer,) = answers
        assert (answer["outcome"], answer["turn"]) == ("done", 4)
        result = await settled(session, sent["message"])
        assert (result["text"], result["steps"]) == ("fine", 2)
        await rests(world, session)


async def test_asked_in_a_turns_last_step_it_is_done_when_the_turn_has_ended(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(say("fine"))
        world.script = [held, SUMMARY, say("next")]
        await followup(session, "go")
        next_one = await followup(session, "next")
        await held.began.wait()
        async with trio.open_nursery() as nursery:
            answers: list[Any] = []

            async def compact() -> None:
                answers.append(await session.compact(ME))

            nursery.start_soon(compact)
            await trio.testing.wait_all_tasks_blocked()
            held.go.set()
        assert (answers[0]["outcome"], answers[0]["turn"]) == ("done", None)
        assert (await settled(session, next_one["message"]))["text"] == "next"
        await rests(world, session)


async def test_an_abort_of_maintenance_touches_no_turn_and_parks_nothing(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        before = [entry.seq for entry in session.state.surface]
        held = Held(SUMMARY)
        world.script = [held, say("fine")]
        async with trio.open_nursery() as nursery:
            answers: list[Any] = []

            async def compact() -> None:
                answers.append(await session.compact(ME))

            nursery.start_soon(compact)
            await held.began.wait()
            waits = await followup(session, "go on")
            stopped = await session.abort(wire.AbortParams(), ME)
        assert (stopped["turn"], stopped["parked"]) == (None, None)
        assert stopped["doing"].startswith("compacting")
        assert (answers[0]["outcome"], answers[0]["exit"]) == ("aborted", 12)
        assert [entry.seq for entry in session.state.surface][: len(before)] == before
        assert not of(world, session, "abort/requested")
        assert (await settled(session, waits["message"]))["text"] == "fine"
        assert reasons(world, session) == ["aborted"]
        await rests(world, session)


async def test_a_session_is_not_closed_under_its_maintenance_but_with_it(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.compact, ME)
            await held.began.wait()
            with pytest.raises(Conflict, match="is compacting its conversation"):
                await session.close(False, ME)
            with pytest.raises(Conflict, match="is compacting its conversation"):
                await world.registry.delete(session.id, False, ME)
            with trio.fail_after(5):
                await session.close(True, ME)
        assert reasons(world, session) == ["aborted"]
        assert session.state.closed
        with pytest.raises(Conflict, match="is closed"):
            await session.compact(ME)
        await rests(world, session)


async def test_maintenance_is_ended_by_a_removal(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            failed: list[DshError] = []

            async def compact() -> None:
                try:
                    await session.compact(ME)
                except DshError as error:
                    failed.append(error)

            nursery.start_soon(compact)
            await held.began.wait()
            with trio.fail_after(5):
                await world.registry.delete(session.id, True, ME)
        assert [error.code for error in failed] in ([], ["NOT_FOUND"])


async def test_what_it_costs_counts(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        tokens = session.show()["tokens"]
        world.script = [SUMMARY]
        await session.compact(ME)
        assert session.show()["tokens"] == tokens + 12
        await talk(world, session, 2)
        tokens = session.show()["tokens"] - 12
        world.script = [[BlockStart(0, "text"), TextDelta(0, " "), Usage({"input": 5}), Finish("stop")]]
        await session.compact(ME)
        failed = ends(world, session)[-1]
        assert (failed["reason"], failed["usage"]) == ("failed", {"input": 5})
        assert session.show()["tokens"] == tokens + 17
        await rests(world, session)


async def test_how_full_the_window_is_is_shown_and_falls(world: World) -> None:
    async with world.run():
        session = await world.session()
        assert session.show()["context"] is None
        await talk(world, session, 3)
        full = session.show()["context"]
        assert full["window"] == WINDOW
        assert 1_800 < full["used"] < 2_600
        world.script = [SUMMARY]
        answer = await session.compact(ME)
        assert session.show()["context"]["used"] == answer["after"] < full["used"]


async def test_estimates_are_corrected_by_what_the_provider_reports(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 2)
        asked = [e.data["tokens"] for e in of(world, session, "request/sent")][-1]
        answer = [
            BlockStart(0, "text"),
            TextDelta(0, "a"),
            Usage({"input": 2 * asked + 1400}),
            Finish("stop"),
        ]
        world.script = [answer]
        await settled(session, (await followup(session, "part 2: " + LONG))["message"])
        world.script = [SUMMARY]
        await settled(session, (await followup(session, "part 3: " + LONG))["message"])
        assert ends(world, session)[0]["before"] >= 0.8 * WINDOW, "twice as many as would be estimated"
        await rests(world, session)


# --- crashes ---------------------------------------------------------------------------------------


async def test_after_a_crash_in_maintenance_the_surface_is_the_one_before_and_the_bracket_is_closed(
    world: World,
) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        before = [entry.seq for entry in session.state.surface]
        held = Held(SUMMARY)
        world.script = [held]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.compact, ME)
            await held.began.wait()
            nursery.cancel_scope.cancel()
        after = world.crash()
    after.route = Narrow(after)
    async with after.run():
        again = await after.again(session)
        assert [entry.seq for entry in again.state.surface] == before
        (end,) = ends(after, again)
        assert (end["reason"], end["recovery"]) == ("interrupted", True)
        assert again.state.compaction is None
        await rests(after, again)


async def test_after_a_crash_in_a_turns_compaction_what_was_claimed_is_back(world: World) -> None:
    async with world.run():
        session = await world.session()
        await talk(world, session)
        held = Held(SUMMARY)
        world.script = [held]
        sent = await followup(session, "part 4: " + LONG)
        await held.began.wait()
        after = world.crash()
    after.route = Narrow(after)
    after.script = [SUMMARY, say("fine")]
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, sent["message"]))["text"] == "fine"
        assert reasons(after, again) == ["interrupted", "done"]
        await rests(after, again)
