"""Compaction in a running session: when it happens, what it leaves, and what may happen meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.log.memory import MemoryDisk
from dshd.model.chunks import BlockStart, Finish, TextDelta, Usage
from dshd.model.errors import ModelError
from tests.driver.narrow import (
    FULL,
    LONG,
    SUMMARY,
    WINDOW,
    Held,
    ends,
    narrow,
    of,
    reasons,
    rests,
    talk,
)
from tests.session.rig import ME, World, call, followup, inject, say, settled, steer


@pytest.fixture
def world() -> World:
    return narrow()


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


async def test_a_provider_whose_window_is_smaller_than_the_config_says_is_believed(world: World) -> None:
    world.route.window = 100 * WINDOW
    async with world.run():
        session = await world.session()
        await talk(world, session, 3)
        world.script = [FULL, SUMMARY, say("fine")]
        sent = await followup(session, "more")
        assert (await settled(session, sent["message"]))["text"] == "fine"
        assert reasons(world, session) == ["done"]
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


# --- what is told of it ----------------------------------------------------------------------------


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
