"""Each request that was sent is a function of the log (G9), whatever the run that sent it went through."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.log.codec import Event, encode
from dshd.log.memory import MemoryDisk
from dshd.model import anthropic_request, openai_request
from dshd.model.adapter import PreparedCall
from dshd.model.anthropic import Anthropic
from dshd.model.chunks import BlockStart, ReasoningDelta, TextDelta
from dshd.model.errors import ModelError
from dshd.model.openai import OpenAI
from dshd.model.rehearsal import Rehearsal
from dshd.model.request import ModelRequest
from dshd.plugins import PreStep
from dshd.session.owner.session import Session
from dshd.session.registry import requests
from tests.session.disk import test_crashes
from tests.session.rig import (
    ME,
    STATE,
    ScriptedAdapter,
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
from tests.session.scripted import Account, play


class OpenAIBytes(ScriptedAdapter):
    encoder = OpenAI.encoder

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        return openai_request.encode(call, request)


class AnthropicBytes(ScriptedAdapter):
    encoder = Anthropic.encoder

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        return anthropic_request.encode(call, request)


class RehearsalBytes(ScriptedAdapter):
    encoder = Rehearsal.encoder

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        return Rehearsal().encode(call, request)


class Routes(ScriptedModels):
    """Two routes, with an encoder of choice; the second one is there to fall back on."""

    def __init__(self, world: World, adapter: type[ScriptedAdapter] = OpenAIBytes) -> None:
        super().__init__(world)
        self.adapter = adapter(world)

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        call = super().prepare_call(route)
        if route == "spare":
            return attrs.evolve(call, model="other", max_tokens=512)
        return attrs.evolve(call, fallback=("spare",))

    def rebuild(self, context: Mapping[str, Any], encoder: str, request: ModelRequest) -> bytes | None:
        if encoder != self.adapter.encoder:
            return None
        call = attrs.evolve(self.prepare_call("x"), model=context["model"], max_tokens=context["max_tokens"])
        return self.adapter.encode(call, request)


ADAPTERS = [ScriptedAdapter, OpenAIBytes, AnthropicBytes, RehearsalBytes]


@pytest.fixture(params=ADAPTERS, ids=lambda a: a.__name__)
def world(request: Any) -> World:
    made = World()
    made.route = Routes(made, request.param)
    return made


def compared(world: World, id: str) -> requests.Requests:
    """As `fsck --requests`, from the file alone."""
    return requests.check(world.disk, world.store.log_path(id), world.route.rebuild)


def check_all(world: World, id: str) -> requests.Requests:
    found = compared(world, id)
    assert found.problem is None
    assert found.not_comparable == 0
    assert found.compared == world.types(id).count("request/sent") > 0
    return found


async def rests(session: Session) -> None:
    with trio.fail_after(20):
        await session.wait_idle()


# --- all is made again -----------------------------------------------------------------------------


async def test_every_request_of_the_scripted_run_is_made_again(world: World, autojump_clock: Any) -> None:
    async with world.run():
        session = await world.session()
        await play(world, session, Account())
        assert check_all(world, session.id).compared == len(world.requests)


async def test_steers_between_parallel_results_are_where_they_were(world: World) -> None:
    async with world.run():
        session = await world.session()
        world.script = [call("quick:a", "gate", "quick:b"), call("look:a", "look:b"), say("done")]
        sent = await followup(session, "go")
        await world.gate.began.wait()
        for n in range(3):
            await steer(session, f"rather {n}")
            await inject(session, f"by the way {n}")
        world.gate.opened.set()
        await settled(session, sent["message"])
        assert check_all(world, session.id).compared == 3


async def test_every_attempt_and_every_fallback_route_is_made_again(
    world: World, autojump_clock: Any
) -> None:
    async with world.run():
        session = await world.session()
        half = [BlockStart(0, "text"), TextDelta(0, "half an "), ModelError("STREAM_CLOSED", "cut")]
        world.script = [call("quick:a"), *[ModelError("SERVER", "down")] * 3, half, say("at last"), say("b")]
        await settled(session, (await followup(session, "go"))["message"])
        await settled(session, (await followup(session, "again"))["message"])
        contexts = [e.data["route"] for e in world.events(session) if e.type == "request/context"]
        assert contexts == ["scripted", "spare", "scripted"]
        assert check_all(world, session.id).compared == 7


async def test_what_an_abort_an_interrupt_and_a_failure_leave_behind_is_sent_as_logged(world: World) -> None:
    async with world.run():
        session = await world.session()
        streams = trio.Event()

        async def stalls() -> None:
            streams.set()
            await trio.sleep_forever()

        think = [BlockStart(0, "reasoning"), ReasoningDelta(0, "hm"), BlockStart(1, "text")]
        world.script = [[*think, TextDelta(1, "I was go"), stalls]]
        await followup(session, "first")
        await streams.wait()
        await until(session, lambda: session.state.turn and session.state.turn.chunks_from)
        await session.interrupt(wire.InterruptParams(text="second"), ME)
        world.script = [call("quick:a", "gate:b"), say("unused")]
        await world.gate.began.wait()
        await steer(session, "never seen there")
        await session.abort(wire.AbortParams(), ME)
        world.script = [ModelError("AUTH", "no")]
        await settled(session, (await followup(session, "third"))["message"])
        world.script = [say("fine")]
        await settled(session, (await followup(session, "fourth"))["message"])
        assert check_all(world, session.id).compared == 4


async def test_long_texts_and_changed_settings_are_sent_as_logged(world: World) -> None:
    async with world.run():
        session = await world.session()
        await settled(session, (await followup(session, "short"))["message"])
        await settled(session, (await followup(session, "long line\n" * 20_000))["message"])
        await session.change({"mode": "read-only"}, ME)
        await settled(session, (await followup(session, "after"))["message"])
        assert check_all(world, session.id).compared == 3


class Adds:
    name = "adds"

    async def pre_step(self, proposal: PreStep) -> PreStep:
        await trio.lowlevel.checkpoint()
        said = {"content": [{"type": "text", "text": f"step {proposal.step}"}], "source": {"n": 1.5}}
        rewritten = [{**m, "content": [{"type": "text", "text": "rewritten"}]} for m in proposal.messages]
        return attrs.evolve(proposal, messages=(said, *rewritten))


async def test_what_plugins_make_of_messages_is_what_the_log_has(world: World) -> None:
    world.plugins = (Adds(),)
    async with world.run():
        session = await world.session()
        world.script = [call("quick:a"), say("done")]
        await settled(session, (await followup(session, "as typed"))["message"])
        assert check_all(world, session.id).compared == 2


async def test_requests_before_and_after_a_power_cut_are_made_again(
    world: World, autojump_clock: Any
) -> None:
    async with world.run():
        session = await world.session()
        world.script = [call("quick:a"), call("gate")]
        await followup(session, "go")
        await world.gate.began.wait()
        await steer(session, "and look")
    after = world.crash()
    after.route = Routes(after, type(world.route.adapter))
    async with after.run():
        session = await after.registry.get(session.id)
        await rests(session)
        after.script = [say("done")]
        await settled(session, (await followup(session, "go on"))["message"])
        assert check_all(after, session.id).compared >= 3


async def test_requests_before_and_after_a_power_cut_at_any_instant_are_made_again(
    autojump_clock: Any,
) -> None:
    film = await test_crashes.play(test_crashes.SURVIVORS["some blocks"])
    for cut in film.cuts[::3]:
        world = World(cut.disk)
        world.route = Routes(world, ScriptedAdapter)
        world.gate.opened.set()
        async with world.run():
            await rests(await world.registry.get(film.session))
            found = compared(world, film.session)
            assert (found.problem, found.not_comparable) == (None, 0)


# --- what can't be compared, and what is wrong -----------------------------------------------------------


async def test_requests_of_another_encoder_are_not_comparable_and_no_failure() -> None:
    async with World().run() as world:
        session = await world.session()
        await settled(session, (await followup(session, "go"))["message"])
        world.models.adapter.encoder = "scripted/2"
        await settled(session, (await followup(session, "go"))["message"])
        report = await world.registry.fsck(session.id, requests=True)
        assert (report["ok"], report["exit"]) == (True, 0)
        assert report["requests"] == {"compared": 1, "different": 0, "first": None, "not_comparable": 1}
        assert (await world.registry.fsck(session.id))["requests"] is None


def rewrite(world: World, id: str, change: Any) -> None:
    """Tamper with a log so that every line is good in itself."""
    events = [change(event) for event in world.events(id)]
    path = world.store.log_path(id)
    world.disk.write_atomic(path, b"".join(map(encode, events)))


def reworded(old: str, new: str) -> Any:
    def change(event: Event) -> Event:
        if event.type != "user/message" or event.data["content"][0]["text"] != old:
            return event
        return attrs.evolve(event, data={**event.data, "content": [{"type": "text", "text": new}]})

    return change


async def test_a_line_that_was_tampered_with_is_found_at_the_first_request_that_had_it() -> None:
    async with World().run() as world:
        session = await world.session()
        for text in ("one", "two", "three"):
            await settled(session, (await followup(session, text))["message"])
        sent = [e.seq for e in world.events(session) if e.type == "request/sent"]
    rewrite(world, session.id, reworded("two", "too"))
    async with World(world.disk).run() as again:
        report = await again.registry.fsck(session.id, requests=True)
    assert report["exit"] == 7
    assert report["requests"] == {"compared": 3, "different": 2, "first": sent[1], "not_comparable": 0}
    assert f"seq {sent[1]}" in report["problem"]
    assert report["hint"]


@pytest.mark.parametrize(
    ("type", "change"),
    [
        ("request/header", {"system": "be evil"}),
        ("request/header", {"tools": [{"name": "rm"}]}),
        ("request/context", {"model": "other"}),
        ("request/sent", {"bytes": 1}),
        ("request/sent", {"sha256": "0" * 64}),
    ],
)
async def test_a_request_whose_own_lines_were_tampered_with_differs(type: str, change: Any) -> None:
    world = World()
    world.route = Routes(world)
    async with world.run():
        session = await world.session()
        await settled(session, (await followup(session, "one"))["message"])

        def changed(event: Event) -> Event:
            return attrs.evolve(event, data={**event.data, **change}) if event.type == type else event

        rewrite(world, session.id, changed)
        found = compared(world, session.id)
    assert (found.compared, found.different) == (1, 1)


async def test_what_was_sent_between_a_gap_and_its_repair_is_not_comparable_and_later_requests_are() -> None:
    async with World().run() as world:
        session = await world.session()
        for text in ("one", "two", "three"):
            await settled(session, (await followup(session, text))["message"])
    disk = world.disk
    assert isinstance(disk, MemoryDisk)
    path = world.store.log_path(session.id)
    lines = disk.read_bytes(path).splitlines(keepends=True)
    hit = next(i for i, line in enumerate(lines) if b'"two"' in line and b'"user/message"' in line)
    lines[hit] = lines[hit].replace(b"two", b"twx")
    disk.write_atomic(path, b"".join(lines))
    again = World(disk)
    again.route = Routes(again, ScriptedAdapter)
    async with again.run():
        await again.registry.repair(session.id, ME)
        session = await again.registry.get(session.id)
        await settled(session, (await followup(session, "four"))["message"])
        found = compared(again, session.id)
        assert (found.compared, found.different, found.not_comparable) == (2, 0, 2)


def test_a_log_that_is_not_there_is_an_error_of_reading() -> None:
    with pytest.raises(Exception, match="does not exist"):
        requests.check(MemoryDisk(), Path(STATE / "sessions" / "s1" / "log.jsonl"), lambda c, e, r: None)
