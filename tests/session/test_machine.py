"""Inbox, driver and log against a small model: anything a person may do, in any order.

After each step the core has done all that it can do by itself; then the session and the model must
agree on everything, the log must obey its rules, memory must be the fold of the log, and what was
acknowledged must be on the disk. ``DSHD_LONG=1`` looks longer.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import attrs
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dshd import wire
from dshd.config import Budget, Config, Inbox
from dshd.errors import Conflict, DshError, Faulted, Full, NoSpace
from dshd.log.codec import decode
from dshd.log.memory import MemoryDisk, Seeded
from dshd.model.errors import ModelError
from dshd.plugins import Defer, PreStep, Reject
from dshd.session.owner.session import Session
from dshd.tools.tool import ToolContext, ToolOutput, text_output
from tests.amount import LONG, examples
from tests.session.host import Host
from tests.session.invariants import check_acknowledged, check_log, check_memory
from tests.session.rig import ME, Gate, World, call, say
from tests.session.small import PLACES, Small

MOST = 12
DEFERRED_S = 1000.0
TEXTS = ("a", "b")


@attrs.define(eq=False)
class Slot:
    """Something outside that is waited for until a rule gives the answer."""

    waits: bool = False
    _given: trio.Event = attrs.field(factory=trio.Event)
    _answer: Any = None

    async def ask(self) -> Any:
        self.waits, self._given = True, trio.Event()
        try:
            await self._given.wait()
        finally:
            self.waits = False
        return self._answer

    def give(self, answer: Any) -> None:
        self._answer = answer
        self._given.set()


class Always(list[Any]):
    """A model's script that never ends: each call asks the slot."""

    def __init__(self, slot: Slot) -> None:
        super().__init__([slot.ask])

    def pop(self, _index: Any = -1) -> Any:
        return self[0]


@attrs.define(eq=False)
class Told(Gate):
    """A tool that ends when the slot is given something."""

    slot: Slot = attrs.field(factory=Slot)

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await self.slot.ask()
        return text_output("done")


class Plugin:
    """Answers what the rules planned, and passes when nothing is."""

    name = "judge"

    def __init__(self) -> None:
        self.slot = Slot()
        self.planned: list[str] = []

    async def pre_step(self, proposal: PreStep) -> PreStep | Reject | Defer:
        verdict = self.planned.pop(0) if self.planned else "pass"
        if verdict == "hang":
            verdict = await self.slot.ask()
        if verdict == "raise":
            raise ValueError("the plugin broke")
        if verdict == "reject":
            return Reject("no")
        if verdict == "reject one" and proposal.messages:
            return Reject("not this", (proposal.messages[0]["id"],))
        return Defer("later", DEFERRED_S) if verdict == "defer" else proposal


VERDICTS = st.sampled_from(["reject", "reject one", "defer", "raise", "hang"])
ANSWERS: dict[str, Callable[[], Any]] = {
    "text": lambda: say("fine"),
    "max-tokens": lambda: say("too lo", "max-tokens"),
    "tool": lambda: call("gate"),
    "fail": lambda: ModelError("AUTH", "no"),
}


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.model = Small(MOST)
        self.plugin = Plugin()
        self.asked, self.tool = Slot(), Slot()
        self.ids: list[str] = []
        self.held_world = AsyncExitStack()
        self.world: World
        self.session: Session

    # --- the daemon's life

    @initialize()
    def begin(self) -> None:
        async def act() -> None:
            await self._enter(self._world(None))
            self.session = await self.world.session()

        self.host.do(act)

    def _world(self, disk: MemoryDisk | None) -> World:
        config = Config(inbox=Inbox(max_pending=MOST), budget=Budget(turn_time=0.0))  # its clock leaps
        world = World(disk, config=config, plugins=(self.plugin,))
        world.script = Always(self.asked)
        world.gate = Told(slot=self.tool)
        world.tools = type(world.tools)([world.gate, world.quick, world.look])
        return world

    async def _enter(self, world: World) -> None:
        self.world = world
        await self.held_world.enter_async_context(world.run())

    async def _again(self, disk: MemoryDisk) -> None:
        offset = self.world.clock_offset
        await self.held_world.aclose()
        world = self._world(disk)
        world.clock_offset = offset + 10
        await self._enter(world)
        self.session = await world.registry.get(self.session.id)

    def teardown(self) -> None:
        async def act() -> None:
            await self.held_world.aclose()

        try:
            if hasattr(self, "session"):
                self.come_to_rest()
        finally:
            self.host.do(act)
            self.host.close()

    # --- doing things

    def do(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """Do it, then let happen what happens by itself; the answer or the refusal."""

        async def whole() -> Any:
            try:
                return await act()
            except DshError as error:
                return error
            finally:
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()

        return self.host.do(whole)

    def pick(self, at: int) -> str:
        return self.ids[at % len(self.ids)]

    # --- rules: saying something

    @rule(
        verb=st.sampled_from([*PLACES, "followup"]),
        wake=st.sampled_from([None, None, False]),
        person=st.booleans(),
        first=st.sampled_from([False, False, True]),
        key=st.sampled_from([None, None, None, "k1", "k2"]),
        text=st.sampled_from(TEXTS),
        only=st.sampled_from([None, None, None, None, "idle", "empty", "turn", "other turn"]),
    )
    def send(
        self, verb: wire.Verb, wake: bool | None, person: bool, first: bool, key: str | None, text: str,
        only: str | None,
    ) -> None:  # fmt: skip
        model = self.model
        number = model.turn.number if model.turn else 0
        params = wire.SendParams(
            verb=verb, text=text, wake=wake, first=first, key=key, as_=None if person else "schedule",
            if_idle=only == "idle", if_empty=only == "empty",
            if_turn={"turn": number, "other turn": number + 1}.get(only or ""),
        )  # fmt: skip
        answer = self.do(lambda: self.session.send(params, ME))
        if key in model.keys:
            id, *said = model.keys[key]
            if said == [verb, text]:
                assert answer["duplicate"]
                assert answer["message"] == id
                assert answer["state"] == model.fate[id].split()[0]
            else:
                assert isinstance(answer, Conflict), answer
            return
        met = {None: True, "idle": not model.turn, "empty": not model.pending, "turn": bool(model.turn)}
        if not met.get(only, False):
            assert isinstance(answer, Conflict), answer
            return
        if model.pending >= MOST:
            assert isinstance(answer, Full), answer
            return
        id = answer["message"]
        self.ids.append(id)
        if key:
            model.keys[key] = (id, verb, text)
        if only == "turn":
            model.tied[id] = number
        wakes = (verb != "inject") if wake is None else wake
        model.send(id, verb, wakes, person, first=first)

    @rule(
        verbs=st.lists(st.sampled_from(list(PLACES)), min_size=2, max_size=4),
        verdict=st.sampled_from([None, "hang", "raise", "defer"]),
    )
    def send_several(self, verbs: list[str], verdict: str | None) -> None:
        """Several wait at once, and a gate that they may not pass."""
        if verdict is not None:
            self.plan_verdict(verdict)
        for verb in verbs:
            self.send(verb, None, True, False, None, "a", None)

    @precondition(lambda self: self.model.keys)
    @rule(at=st.integers(0, 50))
    def send_again(self, at: int) -> None:
        key = sorted(self.model.keys)[at % len(self.model.keys)]
        id, verb, text = self.model.keys[key]
        params = wire.SendParams(verb=verb, text=text, key=key)  # type: ignore[arg-type]
        answer = self.do(lambda: self.session.send(params, ME))
        assert (answer["message"], answer["duplicate"]) == (id, True)
        assert answer["state"] == self.model.fate[id].split()[0]

    @rule(keep=st.booleans())
    def interrupt(self, keep: bool) -> None:
        answer = self.do(lambda: self.session.interrupt(wire.InterruptParams(text="now", keep=keep), ME))
        if self.model.pending >= MOST:
            assert isinstance(answer, Full)
            return
        self.ids.append(answer["message"])
        self.model.interrupt(answer["message"], keep)

    # --- rules: the queue

    @precondition(lambda self: self.ids)
    @rule(at=st.integers(0, 50), how=st.sampled_from(["first", "last", "promote", "demote"]))
    def move(self, at: int, how: str) -> None:
        id = self.pick(at)
        answer = self.do(lambda: self.session.queue_change(how, [id], ME))
        if self.model.where(id) is None:
            assert isinstance(answer, Conflict)
        else:
            self.model.move(how, id)

    @precondition(lambda self: self.ids)
    @rule(at=st.integers(0, 50))
    def remove(self, at: int) -> None:
        id = self.pick(at)
        answer = self.do(lambda: self.session.queue_change("rm", [id], ME))
        if self.model.where(id) is None:
            assert isinstance(answer, Conflict)
        else:
            self.model.take_out([id], "removed")

    @precondition(lambda self: self.ids)
    @rule(at=st.integers(0, 50))
    def edit(self, at: int) -> None:
        id = self.pick(at)
        params = wire.QueueEditParams(message=id, text="edited")
        answer = self.do(lambda: self.session.queue_edit(params, ME))
        assert isinstance(answer, Conflict) == (self.model.where(id) is None)

    @rule(queue=st.sampled_from([None, "next-step", "next-turn", "held"]))
    def clear(self, queue: Any) -> None:
        self.do(lambda: self.session.queue_clear(queue, ME))
        self.model.clear(queue)

    @precondition(lambda self: self.model.queues["held"])
    @rule(at=st.integers(0, 50))
    def release(self, at: int) -> None:
        held = self.model.queues["held"]
        id = held[at % len(held)]
        self.do(lambda: self.session.wake(wire.WakeParams(message=id), ME))
        self.model.release(id)

    @rule()
    def wake(self) -> None:
        self.do(lambda: self.session.wake(wire.WakeParams(), ME))
        self.model.wake()

    @rule()
    def time_passes(self) -> None:
        async def act() -> None:
            self.host.clock.jump(2 * DEFERRED_S)
            await trio.testing.wait_all_tasks_blocked()

        self.do(act)
        self.model.time_passes()

    # --- rules: what is outside

    @rule(verdict=VERDICTS)
    def plan_verdict(self, verdict: str) -> None:
        self.plugin.planned.append(verdict)
        self.model.verdicts.append(verdict)

    def _give(self, slot: Slot, answer: Any) -> None:
        async def act() -> None:
            slot.give(answer)

        assert slot.waits
        self.do(act)

    @precondition(lambda self: self.model.turn and self.model.turn.waits == "model")
    @rule(kind=st.sampled_from(["text", "text", "tool", "tool", "max-tokens", "fail"]))
    def model_answers(self, kind: str) -> None:
        self._give(self.asked, ANSWERS[kind]())
        self.model.answer(kind)

    @precondition(lambda self: self.model.turn and self.model.turn.waits == "tool")
    @rule()
    def tool_ends(self) -> None:
        self._give(self.tool, None)
        self.model.tool_ends()

    @precondition(lambda self: self.model.turn and self.model.turn.waits == "gate")
    @rule(verdict=st.sampled_from(["pass", "reject", "reject one", "defer", "raise"]))
    def plugin_answers(self, verdict: str) -> None:
        self._give(self.plugin.slot, verdict)
        self.model.judge(verdict)

    # --- rules: stopping

    @rule(disposition=st.sampled_from(["keep", "clear", "continue"]))
    def abort(self, disposition: Any) -> None:
        answer = self.do(lambda: self.session.abort(wire.AbortParams(disposition=disposition), ME))
        turn = self.model.turn
        assert answer["turn"] == (turn.number if turn else None)
        assert answer["outcome"] == ("aborted" if turn else None)
        self.model.abort(disposition)

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        async def act() -> None:
            disk = self.world.disk
            assert isinstance(disk, MemoryDisk)
            await self._again(disk.crash(Seeded(Random(seed))))

        self.do(act)
        self.model.crash()

    @rule(call=st.sampled_from(["write", "fdatasync"]))
    def the_disk_fails_and_it_is_reopened(self, call: str) -> None:
        disk = self.world.disk
        assert isinstance(disk, MemoryDisk)
        disk.fail(call, errno.EIO, path="log.jsonl")
        answer = self.do(lambda: self.session.send(wire.SendParams(verb="inject", text="lost"), ME))
        if self.model.pending >= MOST:
            assert isinstance(answer, Full)
            disk.calls.faults.clear()
            return
        assert isinstance(answer, Faulted)
        assert (answer.outcome, self.session.word) == ("unknown", "faulted")

        async def reopen() -> None:
            self.session, _ = await self.world.registry.reopen(self.session, ME)

        self.do(reopen)
        self.model.crash()

    @rule()
    def restart(self) -> None:
        """A planned stop that nothing running heeds in time, and a start."""

        async def stop() -> None:
            await self.world.registry.drain(10)

        async def act() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop)
                await trio.testing.wait_all_tasks_blocked()
                self.host.clock.jump(11)
            disk = self.world.disk
            assert isinstance(disk, MemoryDisk)
            await self._again(disk.crash())

        self.do(act)
        self.model.planned_stop()
        self.model.start()

    @rule(verb=st.sampled_from(list(PLACES)))
    def send_on_a_full_disk(self, verb: Any) -> None:
        disk = self.world.disk
        assert isinstance(disk, MemoryDisk)
        disk.limit(free=7)
        answer = self.do(lambda: self.session.send(wire.SendParams(verb=verb, text="x" * 100), ME))
        disk.limit()
        assert isinstance(answer, Full if self.model.pending >= MOST else NoSpace), answer

    # --- what must be so

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "session"):
            return
        model, state = self.model, self.session.state
        assert {q: [m.id for m in items] for q, items in state.queues.items()} == model.queues
        assert (state.parked and state.parked.by) == model.parked
        assert (state.turn and state.turn.number) == (model.turn and model.turn.number)
        assert state.last_turn == model.last
        assert state.runnable == model.runnable
        fates = {id: _fate(state.receipts[id]) for id in self.ids}
        assert fates == model.fate
        waits = {"model": self.asked.waits, "tool": self.tool.waits, "gate": self.plugin.slot.waits}
        expected = model.turn.waits if model.turn else None
        assert [name for name, on in waits.items() if on] == ([expected] if expected else [])
        assert (self.session.activity.phase == "running") == bool(model.turn)

    @invariant()
    def obey(self) -> None:
        if not hasattr(self, "session"):
            return
        events = self.world.events(self.session)
        check_log(events, quiet=self.model.turn is None)
        check_memory(self.session, events)
        check_acknowledged(self.session, self.ids)
        for id in self.ids:
            self.session.why(id)

    @invariant()
    def acknowledged_is_on_disk(self) -> None:
        if not hasattr(self, "session"):
            return
        disk = self.world.disk
        assert isinstance(disk, MemoryDisk)
        path = self.world.store.log_path(self.session.id)
        durable = disk.crash().peek(path)
        made = b"".join(line for line in durable.splitlines() if b'"cause":"send"' in line)
        assert all(b'"%b"' % id.encode() in made for id in self.ids)
        assert all(decode(line) for line in durable.splitlines(keepends=True))

    # --- and in the end

    def come_to_rest(self) -> None:
        """Everything goes well from now on; then nothing waits but for a person."""
        model = self.model
        self.plugin.planned.clear()
        model.verdicts.clear()
        if model.parked:
            self.wake()
        while model.turn:
            if model.turn.waits == "model":
                self.model_answers("text")
            elif model.turn.waits == "tool":
                self.tool_ends()
            else:
                self.plugin_answers("pass")
            self.agree()
            if model.parked:
                self.wake()
        self.obey()
        check_order(self.world.events(self.session))


def _fate(receipt: Any) -> str:
    return f"settled {receipt.outcome}" if receipt.state == "settled" else str(receipt.state)


def check_order(events: Any) -> None:
    """Per queue, who was appended first and never moved enters first."""
    came: dict[str, list[str]] = {}
    moved: set[str] = set()
    for event in events:
        if event.type != "inbox/spliced":
            continue
        for op in event.data["ops"]:
            ids = [m["id"] for m in op["insert"]]
            if event.data["cause"] == "send" and op["before"] is None:
                came.setdefault(op["queue"], []).extend(ids)
            elif event.data["cause"] not in ("requeue", "recover", "edit") or op["queue"] == "held":
                moved.update(ids)
    entered = [e.data["id"] for e in events if e.type == "user/message"]
    for ids in came.values():
        stayed = [id for id in ids if id not in moved and id in entered]
        assert stayed == [id for id in entered if id in stayed]


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=examples(60),
    report_multiple_bugs=False,
    stateful_step_count=60 if LONG else 30,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
