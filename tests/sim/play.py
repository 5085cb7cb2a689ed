"""Playing a plan: life after life, until the actions are used up and all is at rest; then its branches."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

import attrs
import trio

from dshd import wire
from dshd.errors import Conflict, DshError, Full, Internal, Invalid, NoSpace, NotFound
from dshd.log.memory import MemoryDisk
from dshd.session.session import Session
from tests.sim import check, clockwork
from tests.sim.actors import Simulated
from tests.sim.plan import Action, Pause, Plan
from tests.sim.world import BOOT_MS, ME, START_MS, Life, Past

NEVER_WRITTEN = (Conflict, Full, Invalid, NoSpace, NotFound)
PATIENCE_S = 20_000.0
FLAGS = ("in_", "expires", "hold", "tag", "supersede", "on_crash", "when_full", "dry_run")
AT_ONCE = ("cut", "kill")  # without a pause: done before the daemon gets up


def play(plan: Plan, trace: Any = None, *, branch: int | None = None) -> Past:
    """The histories of a plan: its own and those of its branches, or of just one of them (by its number).

    What was found wrong is in ``finds``; then nothing else is played. ``trace(line)`` is told on the way,
    of the branch alone if one is named. ``histories`` counts, and all counts are over all of them.
    """
    past = Past(branches=deque(plan.branches if branch is None else plan.branches[branch : branch + 1]))
    with _bugs_heard(past) as heard, clockwork.deterministic(START_MS) as clock:
        try:
            trio.run(_all, plan, past, heard, clock, trace, branch, clock=clock)
        except Exception as error:
            past.finds.append(f"{heard.where}the daemon broke: {_cause(error)!r}")
            past.error = error
    return past


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Bugs(logging.Handler):
    """An exception that the daemon logged as its own bug is a find. ``where``: "branch 3: "."""

    def __init__(self, past: Past) -> None:
        super().__init__(logging.WARNING)
        self.past = past
        self.where = ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, Simulated):
            self.past.finds.append(f"logged: {record.getMessage()}: {error!r}")


@contextlib.contextmanager
def _bugs_heard(past: Past) -> Iterator[_Bugs]:
    log, handler = logging.getLogger("dshd"), _Bugs(past)
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


async def _all(
    plan: Plan, past: Past, heard: _Bugs, clock: Any, trace: Any, branch: int | None
) -> None:
    clockwork.start_again(clock, plan.seed)
    past.count("histories")
    await _lives(plan, past, trace if branch is None else None, Start(MemoryDisk(), deque(plan.actions)))
    for bud in past.buds if not past.finds else ():
        heard.where, heard.past = f"branch {plan.branches.index(bud.branch)}: ", bud.past
        clockwork.start_again(clock, f"{plan.seed}/{bud.branch.call}")
        bud.past.count("histories")
        start = Start(bud.disk, deque(bud.branch.actions), bud.clock_ms, bud.number)
        await _lives(attrs.evolve(plan, rot=None), bud.past, trace, start)
        past.counts.update(bud.past.counts)
        past.finds += [heard.where + find for find in bud.past.finds]
        if past.finds:
            return


@attrs.define
class Start:
    """Where a history, or what is left of it, begins."""

    disk: MemoryDisk
    actions: deque[Action]
    clock_ms: int = 0
    number: int = 1


async def _lives(plan: Plan, past: Past, trace: Any, at: Start) -> None:
    while True:
        life = Life(plan, past, at.disk, at.clock_ms, at.number)
        player = Player(life, at.actions, trace)
        past.count("lives")
        async with trio.open_nursery() as nursery:
            over = await player.live(nursery)
            life.dead = True
            nursery.cancel_scope.cancel()
        if not life.died.is_set() and over:
            if plan.rot is not None and not past.finds:
                await _rot(plan, past, life)
            return
        if past.finds:
            return
        assert life.after is not None
        at = Start(life.after, at.actions, life.clock_ms + BOOT_MS, at.number + 1)


async def _rot(plan: Plan, past: Past, old: Life) -> None:
    """After it all: one byte that was on disk is another now."""
    disk = old.disk.crash()
    life = Life(plan, past, disk, old.clock_ms, old.number + 1)
    id = next((id for id in past.sessions if len(check.log_of(life, id)) > 2), None)
    if id is None or plan.rot is None:
        return
    path, lines = life.store.log_path(id), check.log_of(life, id)
    at = 1 + int(plan.rot * (len(lines) - 1))
    past.told.clear()
    past.firm.clear()
    past.branches.clear()
    spoilt = [*lines]
    spoilt[at] = lines[at][:20] + bytes([lines[at][20] ^ 1]) + lines[at][21:]
    disk.poke(path, b"".join(spoilt))
    past.count("rot")
    async with trio.open_nursery() as nursery:
        await life.begin(nursery)
        session = await life.registry.get(id)
        later = check.decoded(lines[at + 1 :])
        proven = any(e.synced is not None and e.synced >= at for e in later)
        if (session.word == "damaged") != proven:
            life.find(f"{id}: line {at} is spoilt, durable: {proven}, and it is {session.word or 'fine'}")
        elif proven and check.log_of(life, id) != spoilt:
            life.find(f"{id} is damaged, and its log was changed")
        elif proven:
            answer = await life.registry.repair(id, ME)
            if not answer["ok"]:
                life.find(f"{id} was repaired, and: {answer['problem']}")
        life.dead = True
        nursery.cancel_scope.cancel()


class Player:
    def __init__(self, life: Life, actions: deque[Action], trace: Any) -> None:
        self.life, self.past, self.actions, self._trace = life, life.past, actions, trace
        self.busy = 0
        self.quiet = trio.Event()
        self.weather = False
        self.nursery: trio.Nursery

    def say(self, what: str) -> None:
        if self._trace is not None and not self.life.dead:
            self._trace(f"{trio.current_time():10.3f} life {self.life.number}: {what}")

    # --- one life

    async def live(self, nursery: trio.Nursery) -> bool:
        """Whether the history is over (else the daemon has died)."""
        self.nursery = nursery
        self.say("starts")
        if self.actions and self.actions[0].kind in AT_ONCE and self.actions[0].pause == 0:
            self.die_in(self.actions.popleft())  # it does not even get up
        await self.life.begin(nursery)
        await trio.lowlevel.checkpoint()  # it may have died without noticing
        check.opening(self.life)
        while self.actions and not self.past.finds:
            action = self.actions.popleft()
            await self._pause(action.pause)
            self.say(str(action))
            self.past.count(action.kind)
            await self._act(action)
        await self._finale()
        return True

    async def _pause(self, pause: Pause) -> None:
        if isinstance(pause, float):
            await trio.sleep(pause)
        elif isinstance(pause, tuple):
            with trio.move_on_after(3):
                await self.life.told_of(pause[0])
            await self._pause(pause[1])
        elif pause < 0:
            with trio.move_on_after(60):
                await self._answered()
            await self._nobody_sits()
        else:
            for _ in range(pause):
                await trio.lowlevel.checkpoint()

    async def _nobody_sits(self) -> None:
        """No wake is lost: what is runnable runs, without anybody asking again."""
        idle = {s: s.state.seq for s in self.life.registry.loaded.values() if _sits(s)}
        if idle:
            await trio.sleep(0.01)
        for session, seq in idle.items():
            if _sits(session) and session.state.seq == seq:
                self.life.find(f"{session.id} sits idle at seq {seq}, and is runnable")

    async def _answered(self) -> None:
        while self.busy:
            self.quiet = trio.Event()
            await self.quiet.wait()

    async def _act(self, action: Action) -> None:
        own = getattr(self, f"do_{action.kind}", None)
        if own is not None:
            result = own(action.args)
            if result is not None:
                await result
        elif action.kind in ("cut", "kill"):
            self.die_in(action)
        else:
            for _ in range(action.args.get("times", 1)):
                self.busy += 1
                self.nursery.start_soon(self._client, action)

    # --- the world's own actions

    def die_in(self, action: Action) -> None:
        self.say(f"will die: {action}")
        self.life.die_in(action.args)

    async def do_stop(self, args: dict[str, Any]) -> None:
        self.life.die_in(None)
        with trio.move_on_after(PATIENCE_S):
            await self.life.registry.drain(args["grace"])
            if not self.weather:
                self._stopped_well()
        self.past.count("death: stop")
        self.life.die()
        await trio.sleep_forever()

    def _stopped_well(self) -> None:
        for id, session in self.life.registry.loaded.items():
            if session.broken is None and session.state.turn is not None:
                self.life.find(f"{id}: turn {session.state.turn.number} is open after a planned stop")

    def do_full(self, args: dict[str, Any]) -> None:
        self.weather = True
        self.life.disk.limit(free=args["free"])
        self.nursery.start_soon(self._room_again, args["lasts"])

    async def _room_again(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.life.disk.limit()

    def do_room(self, args: dict[str, Any]) -> None:
        self.life.disk.limit()

    def do_fault(self, args: dict[str, Any]) -> None:
        self.weather = True
        number = getattr(errno, args["errno"])
        self.life.disk.fail(args["call"], number, skip=args["skip"], times=args["times"])

    def do_short(self, args: dict[str, Any]) -> None:
        self.life.disk.short_write(args["take"], skip=args["skip"], times=args["times"])

    def do_slow(self, args: dict[str, Any]) -> None:
        self.weather = True
        self.life.pauses = [args["seconds"]] * args["hops"]

    def do_clock(self, args: dict[str, Any]) -> None:
        self.life.clock_ms += round(args["seconds"] * 1000)

    def do_mend(self, args: dict[str, Any]) -> None:
        self.life.calm()

    async def do_rest(self, args: dict[str, Any]) -> None:
        with trio.move_on_after(300):
            await self._answered()

    # --- clients

    async def _client(self, action: Action) -> None:
        try:
            session = await self.life.session(action.args.get("s", 0))
            if action.kind == "create":
                await self._create(action.args)
            elif session is not None:
                with trio.move_on_after(_or_inf(action.args.get("gives_up"))):
                    await CLIENTS[action.kind](self, session, action.args)
        except Internal as error:
            self.life.find(f"{action}: answered {error}")
        except DshError as error:
            self.past.count(f"refused: {type(error).__name__}")
            self.say(f"   {action.kind}: refused: {error}")
        finally:
            self.busy -= 1
            if not self.busy:
                self.quiet.set()

    def promise(self, *what: Any) -> None:
        if not self.life.dead:
            self.past.promises.append(what)

    def text(self) -> str:
        self.past.texts += 1
        return f"text {self.past.texts}"

    def pick(self, session: Session, at: int) -> str | None:
        """A message that somebody knows of: one that waits, mostly."""
        waiting = [m.id for items in session.state.queues.values() for m in items]
        known = waiting if at % 5 and waiting else [m for s, m in self.past.receipts if s == session.id]
        return known[at % len(known)] if known else None

    async def _create(self, args: dict[str, Any]) -> None:
        text = self.text() if args["text"] else None
        if args["key"] and text:
            text = self.past.keys.setdefault(("", args["key"]), text)
        params = wire.CreateParams(dir="/", mode="full", run=args["run"], text=text, key=args["key"])
        session, receipt = await self.life.registry.create(params, ME)
        if self.life.dead:
            return
        self.say(f"   created {session.id}")
        if session.id not in self.past.sessions:
            self.past.sessions.append(session.id)
        if receipt is not None and text is not None:
            self.received(session, text, args["key"], receipt)

    def received(self, session: Session, text: str, key: str | None, receipt: Any) -> None:
        if self.life.dead:
            return
        id = receipt["message"]
        self.say(f"   {text!r} is {id}, {receipt['state']} in {receipt['queue']}"
                 f"{', a duplicate' if receipt['duplicate'] else ''}")  # fmt: skip
        self.past.receipts.append((session.id, id))
        self.promise("sent", session.id, id, text)
        if key is not None:
            self.promise("key", session.id, key, id)

    def keyed(self, session: Session, args: dict[str, Any]) -> str:
        """The text to send: one of its own, or (mostly) the one that the key was used for first."""
        text = self.text()
        if args["key"] and not args.get("other"):
            text = self.past.keys.setdefault((session.id, args["key"]), text)
        self.past.said[text] = self.past.said.get(text, 0) + 1
        return text

    def denied(self, session: Session, text: str, error: DshError) -> None:
        never = isinstance(error, NEVER_WRITTEN) or error.outcome == "not-written"
        if never and not self.life.dead:
            self.past.denied[text] = session.id

    async def send(self, session: Session, args: dict[str, Any]) -> None:
        text, turn = self.keyed(session, args), session.state.turn
        number = turn.number if turn else session.state.last_turn
        only = args["only"]
        params = wire.SendParams(
            verb=args["verb"], text=text, key=args["key"], first=args["first"], as_=args["as_"],
            no_wake=args["no_wake"], if_idle=only == "idle", if_empty=only == "empty",
            if_turn={"turn": number, "late": number - 1}.get(only or ""),
            **{name: args[name] for name in FLAGS if name in args},
        )  # fmt: skip
        try:
            receipt = await session.send(params, ME)
        except DshError as error:
            self.denied(session, text, error)
            raise
        if args.get("dry_run"):
            self.past.denied[text] = session.id
            return
        self.received(session, text, args["key"], receipt)

    async def interrupt(self, session: Session, args: dict[str, Any]) -> None:
        text = self.keyed(session, args)
        try:
            receipt = await session.interrupt(
                wire.InterruptParams(text=text, keep=args["keep"], key=args["key"]), ME
            )
        except DshError as error:
            self.denied(session, text, error)
            raise
        self.received(session, text, args["key"], receipt)

    async def abort(self, session: Session, args: dict[str, Any]) -> None:
        turn, last = session.state.turn, session.state.last_turn
        number = {"now": turn.number if turn else None, "next": last + 1}.get(args["turn"] or "")
        params = wire.AbortParams(turn=number, disposition=args["disposition"])
        answer = await session.abort(params, ME)
        if self.life.dead or answer["turn"] is None:
            return
        number, id = answer["turn"], session.id
        self.promise("aborted", id, number)
        if session.broken is None:
            self.promise("over", id, number, answer["outcome"])
        still = [c for s, c in self.life.running if s == id and c.startswith(f"t{number}_")]
        if still:
            self.life.find(f"{id}: abort of turn {number} was answered, and {still} still run")
        for message in answer["cleared"]:
            self.promise("gone", id, message, "cleared")

    async def wake(self, session: Session, args: dict[str, Any]) -> None:
        await session.wake(wire.WakeParams(), ME)

    async def release(self, session: Session, args: dict[str, Any]) -> None:
        id = self.pick(session, args["at"])
        if id is not None:
            await session.wake(wire.WakeParams(message=id), ME)

    async def move(self, session: Session, args: dict[str, Any]) -> None:
        ids = [id for at in args["at"] if (id := self.pick(session, at)) is not None]
        if ids:
            await session.queue_change(args["how"], ids, ME)
            self.past.count("moved")
            self.promise("moved", session.id, tuple(sorted(set(ids))))

    async def remove(self, session: Session, args: dict[str, Any]) -> None:
        ids = [id for at in args["at"] if (id := self.pick(session, at)) is not None]
        self.past.removals.update(ids)
        if ids:
            await session.queue_change("rm", ids, ME)
            for id in ids:
                self.promise("gone", session.id, id, "removed")

    async def edit(self, session: Session, args: dict[str, Any]) -> None:
        id, text = self.pick(session, args["at"]), self.text()
        if id is None:
            return
        version = session.state.receipts[id].message.version if args["version"] == "now" else args["version"]
        await session.queue_edit(wire.QueueEditParams(message=id, text=text, version=version), ME)
        self.promise("edited", session.id, text)

    async def clear(self, session: Session, args: dict[str, Any]) -> None:
        waiting = [
            m.id for q, items in session.state.queues.items() for m in items if args["queue"] in (None, q)
        ]
        await session.queue_clear(args["queue"], ME)
        for id in waiting:
            if session.state.receipts[id].state == "cleared":
                self.promise("gone", session.id, id, "cleared")

    async def wait(self, session: Session, args: dict[str, Any]) -> None:
        id = self.pick(session, args["at"])
        if id is None:
            return
        with trio.move_on_after(_or_inf(args["for"])):
            result = await session.wait_message(id, stay=args["stay"])
            if result["outcome"] is not None and result["exit"] not in (7, 18):
                self.promise("ended", session.id, id, result["outcome"], result["turn"])

    async def wait_idle(self, session: Session, args: dict[str, Any]) -> None:
        with trio.move_on_after(200):
            await session.wait_idle(stay=args["stay"])

    async def undo(self, session: Session, args: dict[str, Any]) -> None:
        await session.queue_undo(ME)

    async def close(self, session: Session, args: dict[str, Any]) -> None:
        await session.close(args["clear"], ME)

    async def reopen(self, session: Session, args: dict[str, Any]) -> None:
        await self.life.registry.reopen(session, ME)

    async def change(self, session: Session, args: dict[str, Any]) -> None:
        await session.change({"patience": args["value"]}, ME)
        self.promise("changed", session.id, args["value"])

    async def look(self, session: Session, args: dict[str, Any]) -> None:
        """Nobody is shown what is not told, nor told what is not shown."""
        session.show()
        session.queue_ls()
        for id in list(dict(session.state.receipts.items())):
            session.message(id)
            session.why(id)
        told = self.past.told.get(session.id, [])
        if session.id in self.life.followed and session.broken is None and len(told) != session.state.seq + 1:
            self.life.find(f"{session.id}: shown up to seq {session.state.seq}, told {len(told)} lines")

    # --- the end

    async def _finale(self) -> None:
        life = self.life
        if self.past.finds:
            return
        life.die_in(None)
        life.calm()
        life.pauses = []
        self.say("the disk is good, and nobody asks for anything any more")
        await trio.sleep(15)  # longer than what a full disk or a slow one lasts
        life.calm()
        for id in list(self.past.sessions):
            with trio.move_on_after(PATIENCE_S) as limit:
                await self._to_rest(id)
            if limit.cancelled_caught:
                life.find(f"{id} does not come to rest: {life.registry.loaded[id].activity}")
        if not self.past.finds:
            ids = list(self.past.sessions)
            check.asked(life, [check.at_rest(life, await life.registry.get(id)) for id in ids])
            await self._waits_end()

    async def _to_rest(self, id: str) -> None:
        session = await self.life.registry.get(id)
        if session.word == "faulted":
            session, _ = await self.life.registry.reopen(session, ME)
        if session.broken is not None:
            self.life.find(f"{id} is {session.word} at the end: {session.broken.error}")
            return
        await session.wait_idle()
        while any(m.due for m in session.state.queues["held"]):
            await trio.sleep(60)
            await session.wait_idle()
        await trio.sleep(5)
        await session.wait_idle()

    async def _waits_end(self) -> None:
        """Who waits for a message is answered at once: it has ended, or only a person moves it on."""
        for id, message in dict.fromkeys(self.past.receipts):
            session = await self.life.registry.get(id)
            with trio.move_on_after(1) as limit:
                await session.wait_message(message)
            if limit.cancelled_caught:
                self.life.find(f"{message} is {session.state.receipts[message].state}, and a wait hangs")


def _sits(session: Session) -> bool:
    quiet = session.ledger is not None and session.ledger.idle and session.broken is None
    return quiet and session.activity.phase == "idle" and session.state.runnable


def _or_inf(seconds: float | None) -> float:
    return float("inf") if seconds is None else seconds


CLIENTS: dict[str, Any] = {
    name: getattr(Player, name)
    for name in ("send", "interrupt", "abort", "wake", "release", "move", "remove", "edit", "clear", "wait",
                 "wait_idle", "undo", "close", "reopen", "change", "look")
}  # fmt: skip
