"""One step's attempts: quick retries, other routes, and what an attempt that failed leaves behind."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.log.memory import MemoryDisk
from dshd.model.adapter import PreparedCall
from dshd.model.chunks import BlockStart, TextDelta
from dshd.model.errors import RETRIED, ModelError
from dshd.model.retry import RetryPolicy
from dshd.session.owner.session import Session
from tests.session.rig import ME, World, followup, of_type, say, settled


def half(text: str, error: ModelError) -> list[Any]:
    """An answer that breaks off."""
    return [BlockStart(0, "text"), TextDelta(0, text), error]


async def ended(world: World, session: Session, text: str = "go") -> dict[str, Any]:
    return await settled(session, (await followup(session, text))["message"])


async def impatient(world: World) -> Session:
    """A session that has patience for quick retries, and for no wait."""
    session = await world.session()
    await session.change({"patience": 5.0}, ME)
    return session


@pytest.mark.parametrize("code", sorted(RETRIED))
async def test_an_error_that_may_pass_is_tried_again_in_the_same_step(code: str, autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [ModelError(code, "later"), ModelError(code, "later"), say("fine")]
        assert (await ended(world, session))["text"] == "fine"
        sent = of_type(world, session, "request/sent")
        assert [(s["step"], s["attempt"]) for s in sent] == [(1, 1), (1, 2), (1, 3)]
        assert len(of_type(world, session, "llm/retry")) == 2
        assert world.types(session).count("turn/start") == world.types(session).count("step/end") == 1


@pytest.mark.parametrize("code", ["AUTH", "INVALID_REQUEST", "UNKNOWN", "CONTENT_FILTERED", "QUOTA"])
async def test_an_error_that_stays_ends_the_turn_after_one_request(code: str) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [ModelError(code, "no")]
        result = await ended(world, session)
        assert (result["outcome"], result["error"]["code"]) == ("error", code)
        assert len(world.requests) == 1
        assert world.types(session)[-2:] == ["step/end", "turn/end"]
        assert not of_type(world, session, "assistant/message")


async def test_quick_retries_used_up_end_the_turn_with_a_code_that_says_try_later(
    autojump_clock: Any,
) -> None:
    async with World().run() as world:
        session = await impatient(world)
        world.script = [ModelError("SERVER", "down")] * 9
        result = await ended(world, session)
        assert (result["outcome"], result["exit"], len(world.requests)) == ("error", 75, 3)


async def test_an_answer_of_nothing_is_an_error_and_leaves_no_empty_message(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await impatient(world)
        world.script = [say(""), say(""), say("")]
        result = await ended(world, session)
        assert result["error"]["code"] == "EMPTY_RESPONSE"
        assert not of_type(world, session, "assistant/message")


# --- nothing of a failed attempt reaches the answer ------------------------------------------------------


async def test_the_answer_is_the_last_attempts_alone(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [half("first ", ModelError("STREAM_CLOSED", "cut")), say("second")]
        assert (await ended(world, session))["text"] == "second"
        answers = of_type(world, session, "assistant/message")
        assert [a["content"] for a in answers] == [[{"type": "text", "text": "second"}]]


@pytest.mark.parametrize("code", ["AUTH", "STREAM_CLOSED"])
async def test_a_turn_that_fails_for_good_keeps_nothing_of_the_failed_attempt(
    code: str, autojump_clock: Any
) -> None:
    async with World().run() as world:
        session = await impatient(world)
        world.script = [half("partial", ModelError(code, "cut"))] * 3
        result = await ended(world, session)
        assert (result["outcome"], result["text"]) == ("error", "")
        assert not of_type(world, session, "assistant/message")


async def test_an_abort_between_two_attempts_keeps_nothing_of_the_first() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [half("partial", ModelError("SERVER", "cut", retry_after=9.0))]
        sent = await followup(session, "go")
        with trio.fail_after(5):
            while session.activity.waits != "provider":
                await trio.lowlevel.checkpoint()
        await session.abort(wire.AbortParams(), ME)
        assert (await settled(session, sent["message"]))["outcome"] == "aborted"
        assert not of_type(world, session, "assistant/message")


async def test_a_crash_between_two_attempts_keeps_nothing_of_the_first() -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [half("partial", ModelError("SERVER", "cut", retry_after=9.0))]
        sent = await followup(session, "go")
        with trio.fail_after(5):
            while "llm/retry" not in world.types(session):
                await trio.lowlevel.checkpoint()
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        after = World(disk.copy())
    async with after.run():
        again = await after.again(session)
        assert (await settled(again, sent["message"]))["outcome"] == "interrupted"
        assert not of_type(after, again, "assistant/message")


# --- other routes --------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Routes:
    """Models with fallbacks; ``bad`` ones can't be prepared, ``small`` ones have no room."""

    world: World
    fallback: dict[str, tuple[str, ...]]
    bad: tuple[str, ...] = ()
    small: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world.models, name)

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        if route in self.bad:
            raise ModelError("MISSING_CREDENTIAL", f"no key for {route}")
        call = self.world.models.prepare_call(route, patience=patience)
        window = 10 if route in self.small else 100_000
        policy = RetryPolicy(quick=1, first=0.001)
        return attrs.evolve(call, fallback=self.fallback.get(route, ()), window=window, retry=policy)


async def answered_by(
    fallback: tuple[str, ...], script: list[Any], **routes: Any
) -> tuple[dict[str, Any], Any]:
    world = World()
    world.route = Routes(world, {"scripted": fallback}, **routes)
    async with world.run():
        session = await impatient(world)
        world.script = script
        result = await ended(world, session)
        return result, [c["route"] for c in of_type(world, session, "request/context")]


DOWN = ModelError("SERVER", "down")


async def test_without_patience_every_route_is_asked_once_and_nothing_is_waited_for() -> None:
    world = World()
    world.route = Routes(world, {"scripted": ("second",)})
    async with world.run():
        session = await world.session()
        await session.change({"patience": 0.0}, ME)
        world.script = [DOWN, ModelError("RATE_LIMIT", "no", retry_after=3.0), say("never asked")]
        with trio.fail_after(5):
            result = await ended(world, session)
        assert (result["outcome"], result["error"]["code"]) == ("error", "RATE_LIMIT")
        assert [c["route"] for c in of_type(world, session, "request/context")] == ["scripted", "second"]
        assert len(world.requests) == 2
        assert not of_type(world, session, "llm/retry")


async def test_after_the_quick_retries_the_fallback_routes_are_asked_in_order(autojump_clock: Any) -> None:
    result, asked = await answered_by(("b", "c"), [DOWN] * 4 + [say("c speaks")])
    assert (result["text"], result["model"], asked) == ("c speaks", "c", ["scripted", "b", "c"])


async def test_an_error_that_stays_asks_no_other_route(autojump_clock: Any) -> None:
    result, asked = await answered_by(("b",), [ModelError("AUTH", "no")])
    assert (result["error"]["code"], asked) == ("AUTH", ["scripted"])


async def test_when_every_route_failed_the_last_error_is_told(autojump_clock: Any) -> None:
    result, asked = await answered_by(("b",), [DOWN, DOWN, DOWN, ModelError("RATE_LIMIT", "slow down")])
    assert (result["error"]["code"], result["exit"], asked) == ("RATE_LIMIT", 75, ["scripted", "b"])


async def test_a_fallback_that_cannot_be_called_is_passed_over(autojump_clock: Any) -> None:
    result, asked = await answered_by(("b", "c"), [DOWN, DOWN, say("c speaks")], bad=("b",))
    assert (result["text"], asked) == ("c speaks", ["scripted", "c"])
    result, asked = await answered_by(("b",), [DOWN, DOWN], bad=("b",))
    assert (result["error"]["code"], result["error"]["message"]) == ("SERVER", "down")


async def test_a_fallback_whose_window_is_too_small_is_passed_over(autojump_clock: Any) -> None:
    result, asked = await answered_by(("b", "c"), [DOWN, DOWN, say("c speaks")], small=("b",))
    assert (result["text"], asked) == ("c speaks", ["scripted", "c"])


async def test_a_full_window_is_a_clear_error_and_nothing_is_asked() -> None:
    world = World()
    world.route = Routes(world, {}, small=("scripted",))
    async with world.run():
        session = await world.session()
        result = await ended(world, session)
        assert result["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"
        assert not world.requests
