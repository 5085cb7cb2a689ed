"""Plugins around a model call: what they change, and that the log alone makes it again."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from dshd.driver.requests.calling import MOST_REPAIRS
from dshd.model.chunks import Finish, TextDelta
from dshd.model.errors import ModelError
from dshd.plugins import Request, RequestFailed, Streaming
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, check_memory
from tests.session.rig import World, call, followup, say


class Calls:
    """A plugin with one chain's method, made of a function."""

    def __init__(self, chain: str, answer: Any, name: str = "calls") -> None:
        self.name = name
        self.seen: list[Any] = []

        async def ask(about: Any) -> Any:
            self.seen.append(about)
            return answer(about)

        setattr(self, chain, answer if chain == "stream" else ask)


async def quiet(world: World, session: Session) -> str:
    """Wait for idle; how the turn ended. Every request must come out of the log again."""
    with trio.fail_after(20):
        await session.wait_idle()
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)
    report = await world.registry.fsck(session.id, requests=True)
    assert report["requests"] == {
        "compared": len([e for e in events if e.type == "request/sent"]),
        "different": 0, "first": None, "not_comparable": 0,
    }  # fmt: skip
    end = [e.data for e in events if e.type == "turn/end"][-1]
    return str((end.get("error") or {}).get("code", end["reason"]))


def last(world: World, session: Session, type: str) -> Any:
    return [e.data for e in world.events(session) if e.type == type][-1]


async def test_a_request_that_was_changed_is_written_down_as_it_was_sent() -> None:
    def change(request: Request) -> Request:
        return attrs.evolve(
            request, system=f"{request.system} Be brief.", tools=("look",), max_tokens=100 * request.step
        )

    plugin = Calls("request", change)
    async with World(plugins=(plugin,)).run() as world:
        world.script = [call("look:a"), say("one")]
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "completed"
        header = last(world, session, "request/header")
        assert header["system"].endswith("Be brief.")
        assert [tool["name"] for tool in header["tools"]] == ["look"]
        assert header["settings"] == {"max_tokens": 200}
        assert b"Be brief." in world.requests[0]
    assert [(r.step, r.max_tokens, r.route) for r in plugin.seen] == [
        (1, None, "scripted"),
        (2, None, "scripted"),
    ]


async def test_a_route_that_a_plugin_chooses_is_the_one_that_is_called() -> None:
    plugin = Calls("request", lambda request: attrs.evolve(request, route="other"))
    async with World(plugins=(plugin,)).run() as world:
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "completed"
        assert last(world, session, "request/context")["route"] == "other"


@pytest.mark.parametrize(
    "bad",
    [
        lambda request: None,
        lambda request: attrs.evolve(request, tools=("no_such_tool",)),
        lambda request: attrs.evolve(request, tools=["look"]),
        lambda request: attrs.evolve(request, max_tokens=0),
        lambda request: attrs.evolve(request, system=b"x"),
        lambda request: 1 / 0,
    ],
)
async def test_what_is_no_request_ends_the_turn_and_no_model_is_called(bad: Any) -> None:
    repairs = Calls("request_error", lambda failed: None)
    async with World(plugins=(Calls("request", bad), repairs)).run() as world:
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "PLUGIN"
        assert world.requests == []
    assert repairs.seen == []


async def test_what_streams_is_what_the_plugins_pass_on_the_first_of_them_first() -> None:
    def adding(word: str) -> Any:
        def stream(about: Streaming, emit: Any) -> Any:
            async def chunk(given: Any) -> None:
                await emit(
                    attrs.evolve(given, text=given.text + word) if isinstance(given, TextDelta) else given
                )

            return chunk

        return stream

    plugins = (Calls("stream", adding(" first")), Calls("stream", adding(" second")))
    async with World(plugins=plugins).run() as world:
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "completed"
        answer = last(world, session, "assistant/message")["content"]
        assert answer == [{"type": "text", "text": "done first second"}]


async def test_a_plugin_that_fails_in_the_stream_ends_the_turn() -> None:
    def stream(about: Streaming, emit: Any) -> Any:
        async def chunk(given: Any) -> None:
            if isinstance(given, Finish):
                raise KeyError("oops")
            await emit(given)

        return chunk

    async with World(plugins=(Calls("stream", stream),)).run() as world:
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "PLUGIN"


async def test_a_request_that_is_repaired_is_tried_at_once_in_the_same_step() -> None:
    def repair(failed: RequestFailed) -> Request | None:
        return attrs.evolve(failed.request, max_tokens=10) if failed.code == "INVALID_REQUEST" else None

    plugin = Calls("request_error", repair)
    async with World(plugins=(plugin,)).run() as world:
        world.script = [ModelError("INVALID_REQUEST", "too many tokens"), say("one")]
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "completed"
        retried = last(world, session, "llm/retry")
        assert (retried["by"], retried["code"], retried["attempt"]) == ("calls", "INVALID_REQUEST", 2)
        assert last(world, session, "request/header")["settings"] == {"max_tokens": 10}
        assert world.types(session).count("step/start") == 1
    (failed,) = plugin.seen
    assert (failed.attempt, failed.message) == (1, "too many tokens")


async def test_repairs_come_to_an_end() -> None:
    plugin = Calls("request_error", lambda failed: failed.request)
    async with World(plugins=(plugin,)).run() as world:
        world.script = [ModelError("INVALID_REQUEST", "no")] * 20
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "INVALID_REQUEST"
        assert len(world.requests) == 1 + MOST_REPAIRS


async def test_nobody_is_asked_without_a_word_to_say_and_a_retry_goes_its_way() -> None:
    plugin = Calls("request_error", lambda failed: None)
    async with World(plugins=(plugin,)).run() as world:
        world.script = [ModelError("SERVER", "500"), say("one")]
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "completed"
        assert "by" not in last(world, session, "llm/retry")


@pytest.mark.parametrize(("chain", "ran"), [("pre_tool", []), ("post_tool", ["a", "b"])])
async def test_a_plugin_that_raises_around_a_tool_ends_the_turn_and_every_call_has_its_result(
    chain: str, ran: list[str]
) -> None:
    plugin = Calls(chain, lambda about: 1 / 0)
    async with World(plugins=(plugin,)).run() as world:
        world.script = [call("look:a", "look:b", "quick:c")]
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "PLUGIN"
        assert sorted(world.look.runs) == ran
        assert world.quick.runs == []
        results = [e.data for e in world.events(session) if e.type == "tool/result"]
        assert [r["call"] for r in results] == ["t1_1_1", "t1_1_2", "t1_1_3"]
        assert [r["is_error"] for r in results] == [not ran, not ran, True]


@pytest.mark.parametrize("bad", [lambda about, emit: 1 / 0, lambda about, emit: None])
async def test_a_stream_that_no_plugin_gives_ends_the_turn(bad: Any) -> None:
    async with World(plugins=(Calls("stream", bad),)).run() as world:
        session = await world.session()
        await followup(session, "work")
        assert await quiet(world, session) == "PLUGIN"
