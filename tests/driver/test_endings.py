"""A turn always ends, whatever breaks: each stage of the driver raises, and the session is used on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from dshd import wire
from dshd.errors import (
    Denied,
    DshError,
    Faulted,
    Internal,
    Invalid,
    NoSpace,
    NotConfigured,
    NotFound,
    Stalled,
    Unavailable,
    log_refused,
)
from dshd.model.chunks import BlockStart, TextDelta
from dshd.model.errors import ModelError
from dshd.session.owner.session import Session
from dshd.tools.tool import ToolContext, ToolOutput
from tests.session.invariants import check_log
from tests.session.rig import ME, Gate, Look, World, call, followup, of_type, say

# every stage that a turn's way leads through: asking, waiting, tools, approvals, gates, bookkeeping
STAGES = [
    "driver.opening:claim",
    "driver.driver:Driver._begun",
    "driver.driver:Driver._heed_abort",
    "driver.driver:Driver._limit_time",
    "driver.driver:Driver._guarded",
    "driver.turn:_begin",
    "driver.prestep:look_around",
    "driver.prestep:enter",
    "driver.prestep:straight_on",
    "driver.run:Run.prepare_call",
    "driver.asking.asking:_attempt",
    "driver.asking.asking:_plan",
    "driver.asking.asking:_emit_wait",
    "driver.asking.asking:_again",
    "driver.asking.asking:_send_again",
    "driver.waiting.waits:rest",
    "driver.requests.calling:through",
    "driver.asking.chunks:ChunkLog.add",
    "driver.step:keep",
    "driver.step:run_tools",
    "driver.step:result_of",
    "driver.step:after",
    "driver.waiting.approvals:questions",
    "driver.turn:_follows",
    "driver.turn:close_turn",
    "session.deciding.closing:keep_partial",
    "session.deciding.closing:_withdraw",
    "session.deciding.closing:_expire_too_late",
]
# and those that only work that has failed comes to
LAST_STAGES = [
    "driver.ending:ways",
    "driver.ending:_by_cause",
    "driver.ending:_with_work",
    "driver.ending:_end",
    "driver.run:Run.partial",
    "session.deciding.closing:keep_partial",
    "session.deciding.closing:_step_end",
]
MISTAKES = [RuntimeError("a mistake"), Invalid("can't be written @ $.data"), RecursionError("too deep")]


class Broken:
    """Something in dshd that raises when it is called, until it is mended."""

    def __init__(self, patch: pytest.MonkeyPatch, where: str, error: Exception) -> None:
        module, _, path = where.partition(":")
        owner: Any = importlib.import_module(f"dshd.{module}")
        *classes, name = path.split(".")
        for part in classes:
            owner = getattr(owner, part)
        self.whole: Callable[..., Any] = getattr(owner, name)
        self.reached, self.met = 0, trio.Event()
        self.error: Exception | None = error

        def broken(*args: Any, **more: Any) -> Any:
            if self.error is None:
                return self.whole(*args, **more)
            self.reached += 1
            self.met.set()
            raise self.error

        patch.setattr(owner, name, broken)


async def ended(session: Session) -> None:
    with trio.fail_after(3600):
        while session.state.turns.get(1) is None or session.driver.phase.name != "idle":
            await session.next_change()


def busy(after: float | None = None) -> ModelError:
    return ModelError("RATE_LIMIT", "slow down", retry_after=after)


def refused() -> ModelError:
    return ModelError("AUTH", "no such key")


@pytest.mark.parametrize("error", MISTAKES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", [*STAGES, *LAST_STAGES])
async def test_a_turn_ends_in_an_error_whichever_stage_breaks(
    where: str, error: Exception, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World().run() as world:
        session = await world.session()
        half = [BlockStart(0, "text"), TextDelta(0, "half"), ModelError("SERVER", "broke off")]
        last = [*half[:2], refused()] if where in LAST_STAGES else say("done")
        world.script = [half, busy(600.0), call("quick"), last]
        broken = Broken(monkeypatch, where, error)
        await followup(session, "go")
        if where == "driver.opening:claim":  # no turn opens at all: what was said is kept, for later
            with trio.fail_after(5):
                await broken.met.wait()
        else:
            await ended(session)
            assert session.state.turns[1].reason == "error"
            assert session.state.parked is not None
        assert broken.reached
        broken.error = None
        world.script = [say("done")]
        with trio.fail_after(3600):
            again = await session.wait_message((await followup(session, "and on"))["message"])
        assert again["exit"] == 0
        check_log(world.events(session), quiet=True)
        assert (await world.registry.fsck(session.id))["ok"]


@pytest.mark.parametrize("value", [10**30, float("nan"), float("inf"), object(), {1: 2}])
async def test_what_a_line_cannot_hold_is_left_out_of_an_end(value: Any, autojump_clock: Any) -> None:
    """Whoever made such an error: a provider, a plugin, or we."""
    async with World().run() as world:
        session = await world.session()
        error = refused()
        error.http_status = value
        world.script = [error]
        await followup(session, "go")
        await ended(session)
        end = of_type(world, session, "turn/end")[0]
        assert (end["reason"], end["error"]) == ("error", {"code": "AUTH", "message": "no such key"})


async def test_a_wait_that_cannot_be_written_is_the_turns_error(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [error := busy(600.0)]
        error.retry_after = 1e300
        await session.change({"patience": 1e301}, ME)
        await followup(session, "go")
        await ended(session)
        assert session.state.turns[1].reason == "error"
        assert session.driver.phase.name == "idle"


async def test_an_end_that_cannot_be_written_at_all_faults_the_session_and_reopening_ends_the_turn(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World().run() as world:
        session = await world.session()
        broken = Broken(monkeypatch, "session.deciding.closing:_turn_end", RuntimeError("a mistake"))
        world.script = [refused()]
        id = (await followup(session, "go"))["message"]
        with trio.fail_after(60):
            assert (await session.wait_message(id))["exit"] == 7
        assert session.broken is not None
        assert "a mistake in dshd" in session.broken.error.message
        assert session.broken.error.hint.startswith("dshctl reopen")
        broken.error = None
        session, _ = await world.registry.reopen(session, ME)
        assert session.usable
        assert session.state.turn is None
        world.script = [say("done")]
        assert (await session.wait_message((await followup(session, "and on"))["message"]))["exit"] == 0
        check_log(world.events(session), quiet=True)


async def test_maintenance_that_fails_leaves_a_driver_that_goes_on(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World().run() as world:
        session = await world.session()
        broken = Broken(monkeypatch, "driver.driver:maintain", RuntimeError("a mistake"))
        session.driver.ask_compaction({"kind": "user"})
        done = await followup(session, "go")
        with trio.fail_after(60):
            assert (await session.wait_message(done["message"]))["exit"] == 0
        assert broken.reached


@pytest.mark.parametrize("what", ["hooks.causes:notices", "session.owner.jobs:Jobs.heed",
                                  "session.owner.board:Board.note"])  # fmt: skip
async def test_an_onlooker_that_fails_keeps_no_driver_from_being_woken(
    what: str, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with World().run() as world:
        session = await world.session()
        Broken(monkeypatch, what, RuntimeError("a mistake"))
        world.script = [say("done")]
        id = (await followup(session, "go"))["message"]
        with trio.fail_after(60):
            assert (await session.wait_message(id))["exit"] == 0


class Notes(Look):
    """Has ended at once, and brings an event besides its result."""

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        items = [{"text": "look", "status": "pending"}]
        return ToolOutput([{"type": "text", "text": "noted"}], events=(("todo/write", {"items": items}),))


async def test_what_a_call_that_has_ended_brings_is_written_with_its_result_at_an_abort_too() -> None:
    world = World()
    slow = Gate(name="slow", read_only=True)
    world.tools.add(slow)
    world.tools.add(Notes(name="notes"))
    async with world.run():
        session = await world.session()
        world.script = [call("slow", "notes")]
        await followup(session, "go")
        with trio.fail_after(5):
            await slow.began.wait()
            await trio.testing.wait_all_tasks_blocked()
            await session.abort(wire.AbortParams(), ME)
        results = [data["content"][0]["text"] for data in of_type(world, session, "tool/result")]
        assert results[1] == "noted"
        assert len(of_type(world, session, "todo/write")) == 1
        assert [item["text"] for item in session.state.todo] == ["look"]
        check_log(world.events(session), quiet=True)


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (NoSpace("full"), True), (Faulted("failed"), True), (Stalled("slow"), True),
        (Unavailable("closed"), True), (NotFound("removed"), True), (DshError("can't write"), True),
        (Internal("a bug"), False), (Invalid("bad"), False), (Denied("no"), False),
        (NotConfigured("no model"), False), (OSError("loose"), False),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_a_log_refuses_is_told_from_every_other_failure(error: Exception, is_it: bool) -> None:
    assert log_refused(error) == is_it
