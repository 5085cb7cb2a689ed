"""Budgets in a driver: where a turn stops, what it leaves, and how a person lets it go on."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.config import Budget, Config, Policy, Price, Route
from dshd.driver.requests import counting
from dshd.errors import Conflict, Denied, DshError, Invalid, NotConfigured
from dshd.log.memory import Everything, MemoryDisk, Nothing
from dshd.model.adapter import PreparedCall
from dshd.model.chunks import BlockStart, Chunk, Finish, TextDelta, Usage
from dshd.model.errors import ModelError
from dshd.session.deciding.budget import Stopwatch
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.tools.tool import ToolContext, ToolOutput, text_output
from tests.session.invariants import check_log, check_memory, quiet
from tests.session.rig import (
    ME,
    InlineTools,
    Quick,
    ScriptedModels,
    World,
    call,
    followup,
    inject,
    say,
    settled,
    steer,
    until,
)

DOLLAR = Price(input=1.0, output=1.0, cached=0.0)  # 1e6 tokens are a dollar
AGENT = Peer(uid=1000, kind="agent", session="s0000000")


class Priced(ScriptedModels):
    """At a price that a test may change."""

    price: Price | None = DOLLAR

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        price = attrs.asdict(self.price) if self.price is not None else None
        return attrs.evolve(super().prepare_call(route, patience=patience), price=price, window=100_000_000)


def world(disk: MemoryDisk | None = None, *, policy: Policy | None = None, **budget: Any) -> World:
    routes = {"scripted": Route(adapter="openai", price=DOLLAR)}
    config = Config(routes=routes, budget=Budget(**budget), policy=policy or Policy())
    made = World(disk, config=config)
    made.route = Priced(made)
    return made


def crash(old: World, survivor: Any = None) -> World:
    assert isinstance(old.disk, MemoryDisk)
    new = World(old.disk.crash(survivor or Nothing()), config=old.config)
    new.route = Priced(new)
    new.clock_offset = old.clock_offset + 1000
    return new


def spend(answer: list[Chunk], dollars: float = 1.0) -> list[Chunk]:
    """The answer, at that cost."""
    usage = Usage({"input": 0, "output": round(dollars * 1e6)})
    return [usage if isinstance(chunk, Usage) else chunk for chunk in answer]


def works(dollars: float = 1.0) -> list[Chunk]:
    return spend(call("quick:x"), dollars)


async def wake(session: Session, **add: float) -> dict[str, Any]:
    return await session.wake(wire.WakeParams(add=add), ME)


def ends(made: World, session: Session) -> list[tuple[int, str, str | None]]:
    events = made.events(session)
    return [(e.data["turn"], e.data["reason"], e.data.get("cause")) for e in events if e.type == "turn/end"]


def stop(session: Session) -> dict[str, Any]:
    parked = session.show()["parked"]
    assert parked["by"] == "budget"
    assert parked["what"] == parked["budget"]["what"]
    return dict(parked["budget"])


# --- where it stops -------------------------------------------------------------------------------------


async def test_a_turn_that_would_spend_beyond_its_cost_ends_budget_and_parks_the_rest() -> None:
    async with world(turn_cost=2.0).run() as w:
        session = await w.session()
        w.script = [works(), works(), works(), say("never")]
        first = await followup(session, "work")
        second = await followup(session, "more")
        result = await settled(session, first["message"])
        assert (result["exit"], result["outcome"], result["steps"]) == (15, "budget", 2)
        assert result["usage"]["cost"] == 2.0
        assert result["usage"]["currency"] == "USD"
        assert result["budget"]["what"] == "turn_cost"
        assert (await settled(session, second["message"]))["exit"] == 18
        await quiet(w, session)
        assert stop(session) == {
            "what": "turn_cost", "limit": 2.0, "spent": 2.0, "currency": "USD", "add": "cost=0.8",
        }  # fmt: skip
        assert session.show()["parked"]["count"] == 1
        assert session.show()["needs"] == [{"kind": "parked", "id": None}]
        assert len(w.requests) == 2


@pytest.mark.parametrize("then", ["raised", "woken", "retried", "closed", "another"])
async def test_a_run_that_a_budget_stopped_stays_in_sight_until_somebody_deals_with_it(then: str) -> None:
    async with world(turn_cost=2.0).run() as w:
        w.script = [works(), works(), *[works()] * (then == "retried"), say("done")]
        session = await w.session(run=True, text="work")
        with trio.fail_after(20):
            await session.wait_idle()
        view = session.show()
        assert (view["state"], view["needs"]) == ("parked", [{"kind": "parked", "id": None}])
        (listed,) = await w.registry.views(False)
        assert listed == view
        if then == "raised":
            await wake(session, cost=2)
        elif then == "woken":
            await session.wake(wire.WakeParams(), ME)
        elif then == "retried":
            await session.retry(wire.RetryParams(), ME)
        elif then == "another":
            await followup(session, "only say it")
        else:
            await session.close(False, ME)
        await until(session, lambda: session.state.closed)
        assert session.show()["needs"] == []


async def test_a_turn_that_owes_nothing_more_has_completed_whatever_it_cost() -> None:
    async with world(turn_cost=2.0).run() as w:
        session = await w.session()
        w.script = [spend(say("dear"), 9.0)]
        assert (await settled(session, (await followup(session, "work"))["message"]))["exit"] == 0
        assert session.state.parked is None


async def test_an_exact_number_of_steps_is_allowed() -> None:
    async with world(turn_steps=2).run() as w:
        session = await w.session()
        w.script = [call("quick"), say("two")]
        assert (await settled(session, (await followup(session, "a"))["message"]))["exit"] == 0
        w.script = [call("quick"), call("quick"), say("three")]
        assert (await settled(session, (await followup(session, "b"))["message"]))["exit"] == 15
        await quiet(w, session)
        assert (stop(session)["limit"], stop(session)["spent"]) == (2, 2)


async def test_tokens_count_as_the_provider_reports_them_cached_ones_too() -> None:
    async with world(turn_tokens=100).run() as w:
        session = await w.session()
        usage = Usage({"input": 10, "cached": 80, "output": 10, "reasoning": 5})
        w.script = [[usage if isinstance(c, Usage) else c for c in call("quick")]]
        assert (await settled(session, (await followup(session, "a"))["message"]))["exit"] == 15
        await quiet(w, session)
        assert stop(session)["spent"] == 100


async def test_errors_of_tools_count_while_they_come_in_a_row() -> None:
    class Fails(Quick):
        name = "quick"

        async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
            await trio.lowlevel.checkpoint()
            good = args.get("name") == "good"
            return text_output("well") if good else attrs.evolve(text_output("no"), is_error=True)

    made = world(turn_errors=3)
    made.tools = InlineTools([Fails()])
    async with made.run() as w:
        session = await w.session()
        w.script = [call("quick:bad", "quick:bad"), call("quick:good"), call("quick:bad"), say("fine")]
        assert (await settled(session, (await followup(session, "a"))["message"]))["exit"] == 0
        w.script = [call("quick:bad"), call("quick:bad"), call("quick:bad"), say("never")]
        assert (await settled(session, (await followup(session, "b"))["message"]))["exit"] == 15
        await quiet(w, session)
        assert (stop(session)["what"], stop(session)["spent"]) == ("turn_errors", 3)


async def test_what_joined_too_late_waits_and_is_not_lost() -> None:
    async with world(turn_steps=1).run() as w:
        session = await w.session()
        w.gate.opened = trio.Event()
        w.script = [call("gate"), say("never")]
        first = await followup(session, "work")
        await w.gate.began.wait()
        late = await steer(session, "late")
        w.gate.opened.set()
        assert (await settled(session, first["message"]))["exit"] == 15
        await quiet(w, session)
        assert session.state.receipts[late["message"]].state == "pending"
        w.script = [say("both")]
        await session.wake(wire.WakeParams(), ME)
        assert (await settled(session, late["message"]))["exit"] == 0


async def test_a_limit_of_the_session_goes_before_the_config_and_zero_is_none() -> None:
    async with world(turn_steps=1).run() as w:
        session = await w.session(max_steps=0)
        w.script = [call("quick"), call("quick"), say("done")]
        assert (await settled(session, (await followup(session, "a"))["message"]))["exit"] == 0
        await session.change({"max_steps": 2}, ME)
        w.script = [call("quick"), call("quick"), say("done")]
        assert (await settled(session, (await followup(session, "b"))["message"]))["exit"] == 15
        await session.change({"max_steps": None}, ME)
        w.script = [call("quick"), say("done")]
        assert (await settled(session, (await followup(session, "c"))["message"]))["steps"] == 1


async def test_a_limit_in_money_needs_a_price_when_it_is_set_and_when_it_counts() -> None:
    made = World(config=Config(routes={"scripted": Route(adapter="openai")}))
    async with made.run() as w:
        with pytest.raises(NotConfigured, match='needs prices, and route "scripted" has none'):
            await w.session(max_cost=1.0)
        session = await w.session()
        for name in ("max_cost", "session_cost"):
            with pytest.raises(NotConfigured):
                await session.change({name: 1.0}, ME)
    made = world(turn_cost=1.0)
    assert isinstance(made.route, Priced)
    async with made.run() as w:
        session = await w.session()
        made.route.price, made.config = None, attrs.evolve(made.config, routes={})
        result = await settled(session, (await followup(session, "a"))["message"])
        assert (result["outcome"], result["error"]["code"]) == ("error", "NO_ADAPTER")
        assert not w.requests


# --- what counts ----------------------------------------------------------------------------------------


async def test_a_price_that_changes_changes_no_past() -> None:
    async with world().run() as w:
        session = await w.session()
        w.script = [spend(say("one"), 1.0), spend(say("two"), 1.0)]
        await settled(session, (await followup(session, "a"))["message"])
        w.route.price = attrs.evolve(DOLLAR, output=3.0)
        await settled(session, (await followup(session, "b"))["message"])
        assert session.show()["cost"] == 4.0
        w.route.price = attrs.evolve(DOLLAR, currency="CNY")
        w.script = [spend(say("three"), 2.0)]
        await settled(session, (await followup(session, "c"))["message"])
        assert (session.show()["cost"], session.show()["currency"]) == (2.0, "CNY")
        await quiet(w, session)


async def test_attempts_that_failed_cost_what_they_cost() -> None:
    empty = [Usage({"input": 0, "output": 1_000_000}), Finish("stop")]
    cut: list[Any] = [BlockStart(0, "text"), TextDelta(0, "x"), empty[0], ModelError("STREAM_CLOSED", "cut")]
    async with world(turn_cost=100.0).run() as w:
        session = await w.session()
        w.script = [empty, cut, spend(say("at last"), 1.0)]
        result = await settled(session, (await followup(session, "a"))["message"])
        assert result["exit"] == 0
        assert result["usage"]["cost"] == 3.0
        await session.change({"patience": 5.0}, ME)
        w.script = [empty] * 9
        result = await settled(session, (await followup(session, "b"))["message"])
        assert result["outcome"] == "error"
        assert result["usage"]["cost"] == float(len(w.requests) - 3)
        await quiet(w, session)
        assert session.show()["cost"] == float(len(w.requests))


async def test_a_model_that_only_ever_runs_out_of_room_is_asked_once_and_counted() -> None:
    """An empty answer cut for length."""
    async with world().run() as w:
        session = await w.session()
        w.script = [[Usage({"input": 0, "output": 1_000_000}), Finish("max-tokens")]] * 9
        result = await settled(session, (await followup(session, "a"))["message"])
        assert (result["exit"], len(w.requests)) == (13, 1)
        assert result["usage"]["cost"] == 1.0
        await quiet(w, session)


# --- time -----------------------------------------------------------------------------------------------


async def test_time_ends_a_tool_in_the_middle_of_a_step(autojump_clock: Any) -> None:
    async with world(turn_time=60.0).run() as w:
        session = await w.session()
        w.script = [call("gate", "quick"), say("never")]
        began = trio.current_time()
        result = await settled_late(session, (await followup(session, "work"))["message"])
        assert (result["exit"], result["budget"]["what"]) == (15, "turn_time")
        assert trio.current_time() - began == pytest.approx(60.0, abs=0.1)
        await quiet(w, session)
        results = [e.data for e in w.events(session) if e.type == "tool/result"]
        assert [r["error"]["code"] for r in results] == ["STOPPED", "SKIPPED"]
        assert "the turn's time was used up" in results[0]["content"][0]["text"]
        assert stop(session)["spent"] == pytest.approx(60.0, abs=0.1)


async def settled_late(session: Session, id: str) -> dict[str, Any]:
    with trio.fail_after(100_000):
        return await session.wait_message(id)


async def test_waiting_for_a_provider_takes_no_time_of_the_turns(autojump_clock: Any) -> None:
    made = world(turn_time=10.0)

    class Slow(Priced):
        def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
            found = super().prepare_call(route, patience=patience)
            return attrs.evolve(found, retry=attrs.evolve(found.retry, quick=3, first=25.0, longest=100.0))

    made.route = Slow(made)

    async def three() -> list[Chunk]:
        await trio.sleep(3)
        return say("done")

    async with made.run() as w:
        session = await w.session()
        w.script = [ModelError("SERVER", "down"), ModelError("SERVER", "down"), three]
        result = await settled_late(session, (await followup(session, "a"))["message"])
        assert result["exit"] == 0
        end = next(e.data for e in w.events(session) if e.type == "turn/end")
        assert end["worked_ms"] == pytest.approx(3000, abs=200)


async def test_more_time_that_is_set_counts_for_the_turn_that_runs(autojump_clock: Any) -> None:
    async with world(turn_time=60.0).run() as w:
        session = await w.session()
        w.script = [call("gate"), say("done")]
        sent = await followup(session, "work")
        await w.gate.began.wait()
        await session.change({"max_time": 1000.0}, ME)
        await trio.sleep(500)
        w.gate.opened.set()
        assert (await settled_late(session, sent["message"]))["exit"] == 0


async def test_an_abort_that_comes_with_the_end_of_the_time_is_an_abort(autojump_clock: Any) -> None:
    async with world(turn_time=60.0).run() as w:
        session = await w.session()
        w.script = [call("gate")]
        sent = await followup(session, "work")
        await trio.sleep(60.0)
        await session.abort(wire.AbortParams(), ME)
        result = await settled_late(session, sent["message"])
        assert result["outcome"] in ("aborted", "budget")
        await quiet(w, session)


def test_a_stopwatch_counts_no_pauses() -> None:
    watch = Stopwatch()
    assert (watch.worked(5), watch.ends(10, 5)) == (0, math.inf)
    watch.go(5)
    watch.go(6)
    assert (watch.worked(8), watch.ends(10, 8)) == (3, 15)
    watch.pause(9)
    watch.pause(20)
    assert (watch.worked(30), watch.ends(10, 30)) == (4, math.inf)
    watch.go(30)
    assert (watch.worked(31), watch.ends(10, 31)) == (5, 36)


# --- going on -------------------------------------------------------------------------------------------


async def test_what_is_added_lets_the_turn_go_on_and_then_the_queue() -> None:
    async with world(turn_cost=2.0).run() as w:
        session = await w.session()
        w.script = [works(), works(), works(), spend(say("got there"), 0.5), say("next")]
        first = await followup(session, "work")
        second = await followup(session, "more")
        await settled(session, second["message"])
        woken = await wake(session, cost=2)
        assert woken["unparked"]["by"] == "budget"
        assert (woken["runs"], woken["turn"]) == (True, 2)
        result = await settled(session, first["message"])
        assert (result["exit"], result["text"], result["turn"]) == (0, "got there", 2)
        assert (await settled(session, second["message"]))["turn"] == 3
        await quiet(w, session)
        assert [e.data.get("retry_of") for e in w.events(session) if e.type == "turn/start"] == [
            None,
            1,
            None,
        ]


async def test_a_raised_turn_counts_on_and_the_next_one_anew() -> None:
    async with world(turn_steps=2).run() as w:
        session = await w.session()
        w.script = [call("quick")] * 5
        sent = await followup(session, "work")
        assert (await settled(session, sent["message"]))["steps"] == 2
        await wake(session, steps=1)
        result = await settled(session, sent["message"])
        assert (result["exit"], result["steps"], result["budget"]["limit"]) == (15, 1, 3)
        await wake(session, steps=1)
        result = await settled(session, sent["message"])
        assert (result["steps"], result["budget"]["limit"], result["budget"]["spent"]) == (1, 4, 4)
        w.script = [call("quick")] * 5
        other = await followup(session, "other")
        result = await settled(session, other["message"])
        assert (result["steps"], result["budget"]["limit"]) == (2, 2)
        await quiet(w, session)


async def test_a_turn_that_a_stop_interrupted_counts_on() -> None:
    async with world(turn_steps=3).run() as w:
        session = await w.session()
        w.script = [call("quick"), call("gate")]
        sent = await followup(session, "work")
        await w.gate.began.wait()
        session.driver.stop_at_boundary()
        w.gate.opened.set()
        await until(session, lambda: session.state.turn is None)
    async with crash(w, Everything()).run() as w:
        session = await w.again(session)
        w.script = [call("quick"), say("never")]
        result = await settled(session, sent["message"])
        assert (result["turn"], result["exit"], result["steps"]) == (2, 15, 1)
        assert stop(session)["spent"] == 3
        assert stop(session)["what"] == "turn_steps"


async def test_a_retry_counts_anew() -> None:
    async with world(turn_steps=2).run() as w:
        session = await w.session()
        w.script = [call("quick")] * 9
        sent = await followup(session, "work")
        await settled(session, sent["message"])
        await session.retry(wire.RetryParams(), ME)
        result = await settled(session, sent["message"])
        assert (result["turn"], result["steps"], result["exit"]) == (2, 2, 15)


async def test_several_budgets_are_raised_at_once() -> None:
    async with world(turn_steps=2, turn_cost=3.0).run() as w:
        session = await w.session()
        w.script = [works(), works(), works(), works(), spend(say("done"), 0.0)]
        sent = await followup(session, "work")
        await settled(session, sent["message"])
        await wake(session, steps=8, cost=5)
        assert (await settled(session, sent["message"]))["exit"] == 0


async def test_a_raise_is_refused_where_it_would_change_nothing() -> None:
    async with world(turn_cost=2.0, turn_tokens=0).run() as w:
        session = await w.session(name="api")
        w.script = [say("fine")]
        await settled(session, (await followup(session, "a"))["message"])
        wrong: tuple[tuple[dict[str, float], type[DshError], str], ...] = (
            ({"cost": 1}, Conflict, "no budget stopped api"),
            ({"money": 1}, Invalid, 'no budget of "money"'),
            ({"cost": 0}, Invalid, "can't be added"),
            ({"steps": 1.5}, Invalid, "can't be added"),
        )
        for add, error, sentence in wrong:
            await refused(session, add, error, sentence)
        w.script = [works(3.0), call("gate")]
        await settled(session, (await followup(session, "b"))["message"])
        await refused(session, {"steps": 5.0}, Conflict, r"stopped at turn cost \$2.00, not at its steps")
        await refused(
            session, {"cost": 1}, Conflict, r"turn cost \$3.00 of \$2.00 is used up, and \$1.00 more"
        )
        await refused(session, {"cost": 2, "tokens": 5}, Conflict, "has no limit on its tokens")
        with pytest.raises(Denied):
            await session.wake(wire.WakeParams(add={"cost": 2}), AGENT)
        await wake(session, cost=2)
        await w.gate.began.wait()
        await refused(session, {"cost": 1}, Conflict, "turn 3 of api runs")
        w.gate.opened.set()
        await quiet(w, session)


async def refused(session: Session, add: dict[str, float], error: type[DshError], sentence: str) -> None:
    before = session.state.seq
    with pytest.raises(error, match=sentence) as raised:
        await wake(session, **add)
    assert raised.value.outcome == "not-written"
    assert session.state.seq == before


async def test_the_hint_of_a_refusal_would_do() -> None:
    async with world(turn_cost=2.0).run() as w:
        session = await w.session(name="api")
        w.script = [works(30.0), say("done")]
        sent = await followup(session, "b")
        await settled(session, sent["message"])
        with pytest.raises(Conflict) as raised:
            await wake(session, cost=1)
        assert raised.value.hint == "dshctl wake -s api --add cost=30"
        kind, _, amount = stop(session)["add"].partition("=")
        await wake(session, **{kind: float(amount)})
        assert (await settled(session, sent["message"]))["exit"] == 0


async def test_a_wake_without_more_goes_on_with_the_queue_and_leaves_the_turn() -> None:
    async with world(turn_steps=1).run() as w:
        session = await w.session()
        w.script = [call("quick"), say("next")]
        first, second = await followup(session, "a"), await followup(session, "b")
        await settled(session, second["message"])
        await session.wake(wire.WakeParams(), ME)
        assert (await settled(session, second["message"]))["exit"] == 0
        assert (await settled(session, first["message"]))["exit"] == 15


# --- a session, and a day -------------------------------------------------------------------------------


async def test_what_a_session_may_spend_is_counted_over_its_turns_and_raised_for_good() -> None:
    async with world(session_cost=2.0).run() as w:
        session = await w.session(name="api")
        w.script = [spend(say("one"), 1.5), spend(say("two"), 1.5), spend(say("three"), 1.0)]
        for text in ("a", "b"):
            assert (await settled(session, (await followup(session, text))["message"]))["exit"] == 0
        third = await followup(session, "c")
        assert (await settled(session, third["message"]))["exit"] == 18
        await quiet(w, session)
        assert session.state.receipts[third["message"]].state == "pending"
        assert ends(w, session)[-1] == (3, "budget", "session_cost")
        assert len(w.requests) == 2
        with pytest.raises(Conflict, match=r"session cost \$3.00 of \$2.00 is used up"):
            await session.wake(wire.WakeParams(), ME)
        await wake(session, cost=2)
        assert (await settled(session, third["message"]))["exit"] == 0
        await quiet(w, session)
        (row,) = [use for use in session.show_all()["budgets"] if use["what"] == "session_cost"]
        assert (row["limit"], row["spent"]) == (4.0, 4.0)
        await session.change({"session_cost": 10.0}, ME)
        (row,) = [use for use in session.show_all()["budgets"] if use["what"] == "session_cost"]
        assert row["limit"] == 10.0


async def test_a_day_is_all_sessions_and_survives_their_deletion_and_a_crash() -> None:
    async with world(day_cost=3.0).run() as w:
        one, two = await w.session(name="one"), await w.session(name="two")
        w.script = [spend(say("1"), 1.0), spend(say("2"), 1.0)]
        await settled(one, (await followup(one, "a"))["message"])
        await settled(two, (await followup(two, "b"))["message"])
        await w.registry.delete(one.id, False, ME)
        assert w.registry.services.days.today(w.now())["cost"] == 2.0
    async with crash(w).run() as w:
        assert w.registry.services.days.today(w.now())["cost"] == 2.0
        two = await w.again(two)
        w.script = [spend(call("quick"), 1.0)]
        sent = await followup(two, "c")
        assert (await settled(two, sent["message"]))["exit"] == 15
        three = await w.session(name="three")
        waits = await followup(three, "d")
        assert (await settled(three, waits["message"]))["exit"] == 18
        assert stop(three)["what"] == "day_cost"
        await wake(two, cost=2)
        assert (await settled(two, sent["message"]))["exit"] == 0
        await three.wake(wire.WakeParams(), ME)
        assert (await settled(three, waits["message"]))["exit"] == 0
        await quiet(w, two)
        await quiet(w, three)
    async with crash(w).run() as w:
        today = w.registry.services.days.today(w.now())
        assert (today["raised"], round(today["cost"], 3)) == (2.0, 3.0)


@pytest.mark.parametrize("stops", ["planned", "crash"])
async def test_what_a_session_spent_that_nobody_loads_counts(stops: str) -> None:
    async with world(day_cost=3.0).run() as w:
        session = await w.session()
        w.script = [spend(say("1"), 1.0)]
        await settled(session, (await followup(session, "a"))["message"])
        with trio.fail_after(10):
            while w.store.marked():
                await trio.lowlevel.checkpoint()
        if stops == "planned":
            await w.registry.drain(1.0)
    async with crash(w, Everything()).run() as w:
        assert not w.registry.loaded
        assert w.registry.services.days.today(w.now())["cost"] == 1.0


async def test_what_was_spent_here_counts_once_whatever_is_removed_and_imported() -> None:
    async with world(day_cost=100.0).run() as w:

        def today() -> float:
            return float(w.registry.services.days.today(w.now())["cost"])

        async def work(session: Session, cost: float) -> None:
            w.script = [spend(say("done"), cost)]
            await settled(session, (await followup(session, "go on"))["message"])

        session = await w.session()
        await work(session, 2.0)
        id, data = session.id, await exported(w, session)
        copy = await imported(w, data, as_new=True)
        assert today() == 2.0  # a copy has spent nothing
        for times in (1, 2):
            await w.registry.delete(id, True, ME)
            assert today() == 2.0 + 0.25 * (times - 1)
            session = await imported(w, data)
            assert session.id == id
            assert today() == 2.0 + 0.25 * (times - 1)
            await work(session, 0.25)
            assert today() == 2.0 + 0.25 * times
        await work(copy, 1.0)
        await quiet(w, session)
        await quiet(w, copy)
    for survivor in (Nothing, Everything):
        async with crash(w, survivor()).run() as again:
            await again.registry.views(True)
            assert again.registry.services.days.today(again.now())["cost"] == 3.5


async def exported(w: World, session: Session) -> bytes:
    made, data = await w.registry.export(session.id), b""
    while piece := await made.next():
        data += piece
    return data


async def imported(w: World, data: bytes, **more: Any) -> Session:
    params = wire.ImportParams(upload="u1", **more)
    return await w.registry.get((await w.registry.take(io.BytesIO(data).read, params, ME))["session"])


async def test_the_next_day_begins_at_nothing() -> None:
    async with world(day_cost=1.0).run() as w:
        session = await w.session()
        w.script = [spend(say("1"), 1.0), spend(say("2"), 1.0)]
        await settled(session, (await followup(session, "a"))["message"])
        sent = await followup(session, "b")
        assert (await settled(session, sent["message"]))["exit"] == 18
        w.clock_offset += 25 * 3600 * 1000
        await session.wake(wire.WakeParams(), ME)
        assert (await settled(session, sent["message"]))["exit"] == 0


async def test_nobody_raises_a_day_beyond_the_policy() -> None:
    async with world(day_cost=1.0, policy=Policy(day_cost=2.0)).run() as w:
        session = await w.session()
        w.script = [works(1.0), works(1.0), say("never")]
        sent = await followup(session, "a")
        await settled(session, sent["message"])
        await refused(session, {"cost": 5}, Denied, r"allows no more than \$2.00 a day")
        await wake(session, cost=1)
        assert (await settled(session, sent["message"]))["exit"] == 15
        await refused(session, {"cost": 1}, Denied, "the policy")


async def test_waking_all_leaves_those_that_may_not_spend_more() -> None:
    async with world(session_cost=1.0).run() as w:
        session = await w.session()
        w.script = [spend(say("1"), 1.0)]
        await settled(session, (await followup(session, "a"))["message"])
        await settled(session, (await followup(session, "b"))["message"])
        with pytest.raises(Conflict):
            await session.wake(wire.WakeParams(), ME)
        assert session.state.parked is not None


# --- crashes --------------------------------------------------------------------------------------------


async def _play(w: World, session: Session) -> None:
    """A turn that reaches its cost with another one behind it, raised; then the session's."""
    w.script = [works(), works(), works(), spend(say("done"), 0.0), say("next")]
    await followup(session, "work")
    second = await followup(session, "more")
    await inject(session, "a fact")
    await settled(session, second["message"])
    await wake(session, cost=2)
    await until(session, lambda: session.state.receipts[second["message"]].ended)


@pytest.mark.parametrize("survivor", [Nothing, Everything])
async def test_a_crash_at_any_moment_around_a_budget_spends_nothing_twice_and_forgets_nothing(
    survivor: Any, autojump_clock: Any
) -> None:
    cuts: list[MemoryDisk] = []
    made = world(turn_cost=2.0)
    assert isinstance(made.disk, MemoryDisk)
    disk = made.disk
    async with made.run() as w:
        session = await w.session()
        disk.before(lambda name, path: cuts.append(disk.crash(survivor())))
        await _play(w, session)
        disk.before(None)
        id = session.id
    assert len(cuts) > 30
    for cut in cuts:
        await _check_cut(cut, id)


async def _check_cut(cut: MemoryDisk, id: str) -> None:
    again = world(cut, turn_cost=2.0)
    again.clock_offset = 60_000
    async with again.run() as w:
        session = await w.registry.get(id)
        w.script = [works()] * 20
        with trio.fail_after(60):
            await session.wait_idle()
        events = w.events(session)
        check_log(events, quiet=True)
        check_memory(session, events)
        spent = [e.data["usage"]["cost"] for e in events if e.data.get("usage") and e.type != "turn/end"]
        assert session.show()["cost"] == (pytest.approx(sum(spent)) if spent else None)
        assert w.registry.services.days.today(w.now()).get("cost", 0.0) == pytest.approx(sum(spent))
        raised = any(e.type == "driver/woken" for e in events)
        assert raised == any(e.data.get("retry_of") for e in events if e.type == "turn/start")
        for start, end in turns_of(events):
            _check_turn(events[start:end])


def turns_of(events: list[Any]) -> list[tuple[int, int]]:
    starts = [n for n, e in enumerate(events) if e.type == "turn/start"]
    return list(pairwise([*starts, len(events)]))


def _check_turn(events: list[Any]) -> None:
    """No turn asked the model after its own budget was spent; raised ones had 2 dollars more in all."""
    most = 2.0 if "retry_of" not in events[0].data else 4.0
    spent = 0.0
    for event in events:
        if event.type == "request/sent":
            assert spent < most
        if event.type == "assistant/message":
            spent += event.data.get("usage", {}).get("cost", 0.0)


async def test_a_provider_that_counts_nonsense_uses_up_no_budget_and_is_told_of_once(caplog: Any) -> None:
    mad = Usage({"input": 2**53 - 1, "output": 2**53 - 1})
    async with world(day_cost=1.0).run() as w:
        session = await w.session()
        counting._tell.cache_clear()
        for _ in range(2):
            w.script = [[mad if isinstance(chunk, Usage) else chunk for chunk in say("done")]]
            id = (await followup(session, "x"))["message"]
            result = await settled(session, id)
            assert result["outcome"] == "completed"
            assert 0 < result["usage"]["cost"] < 0.1
        assert session.state.context is not None
        assert session.state.context < 10_000
        (told,) = [r for r in caplog.records if "more tokens than can be" in r.getMessage()]
        assert told.levelname == "WARNING"
