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

from dshd.errors import Conflict, DshError
from dshd.log import witness
from dshd.log.memory import MemoryDisk
from dshd.session.owner.loading import holding
from dshd.session.owner.session import Session
from dshd.spool import Spooled
from tests.sim import check, clockwork
from tests.sim.actors import Simulated
from tests.sim.clients import Clients
from tests.sim.oracle import as_logged
from tests.sim.plan import Action, Pause, Plan
from tests.sim.world import BOOT_MS, ME, START_MS, Life, Past

FAR = 1000  # no history makes so many sessions
PATIENCE_S = 20_000.0
SOMEBODY = {"uid": ME.uid, "pid": ME.pid, "tty": ME.tty, "client": ME.client}
FIRST = ("cut", "kill", "full", "fault", "spool")  # without a pause: before the daemon gets up


def play(plan: Plan, trace: Any = None, *, branch: int | None = None) -> Past:
    """The histories of a plan: its own and those of its branches, or of just one of them (by its number).

    What was found wrong is in ``finds``; then nothing else is played. ``trace(line)`` is told on the way,
    of the branch alone if one is named. ``histories`` counts, and all counts are over all of them.
    """
    past = Past(branches=deque(enumerate(plan.branches)))
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
    """An exception that the daemon logged as its own bug is a find. ``where``: "branch 3 at 57: "."""

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


async def _all(plan: Plan, past: Past, heard: _Bugs, clock: Any, trace: Any, branch: int | None) -> None:
    clockwork.start_again(clock, plan.seed, 0)
    past.count("histories")
    await _lives(plan, past, trace if branch is None else None, Start(MemoryDisk(), deque(plan.actions)))
    for bud in past.buds if not past.finds else ():
        if branch not in (None, bud.number):
            continue
        heard.where, heard.past = f"branch {bud.number} at {bud.branch.call}: ", bud.past
        clockwork.start_again(clock, f"{plan.seed}/{bud.branch.call}", FAR)
        bud.past.count("histories")
        start = Start(bud.disk, deque(bud.branch.actions), bud.clock_ms, bud.life)
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
        for call, n in at.disk.calls.struck.items():
            past.counts[f"failed: {call}"] += n
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
    id = next((id for id in life.store.ids() if len(check.log_of(life, id)) > 2), None)
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
    told = witness.told(disk, path)
    past.count("rot")
    async with trio.open_nursery() as nursery:
        await life.begin(nursery)
        session = await life.registry.get(id)
        later = check.decoded(lines[at + 1 :])
        proven = any(e.synced is not None and e.synced >= at for e in later) or told >= at
        if (session.word == "damaged") != proven:
            life.find(f"{id}: line {at} is spoilt, durable: {proven}, and it is {session.word or 'fine'}")
        elif proven and check.log_of(life, id) != spoilt:
            life.find(f"{id} is damaged, and its log was changed")
        elif proven:
            life.watched = False  # a repair passes over seqs
            answer = await life.registry.repair(id, ME)
            if not answer["ok"]:
                life.find(f"{id} was repaired, and: {answer['problem']}")
        life.dead = True
        nursery.cancel_scope.cancel()


class Player(Clients):
    def __init__(self, life: Life, actions: deque[Action], trace: Any) -> None:
        super().__init__(life, trace)
        self.actions = actions
        self.nursery: trio.Nursery

    # --- one life

    async def live(self, nursery: trio.Nursery) -> bool:
        """Whether the history is over (else the daemon has died)."""
        self.nursery = nursery
        self.say("starts")
        while self.actions and self.actions[0].kind in FIRST and self.actions[0].pause == 0:
            await self._act(self.actions.popleft())
        if self.life.dead:  # while something was spooled
            return False
        try:
            await self.life.begin(nursery)
        except DshError as error:
            await self._not_up(error)
        await trio.lowlevel.checkpoint()  # it may have died without noticing
        check.opening(self.life)
        while self.actions and not self.past.finds:
            action = self.actions.popleft()
            await self._pause(action.pause)
            self.say(str(action))
            await self._act(action)
        await self._finale()
        return True

    async def _not_up(self, error: DshError) -> None:
        """A daemon that the disk won't let start says why and ends; the next one finds what it left."""
        self.say(f"does not start: {error}")
        if not self.life.weather:
            self.life.find(f"it does not start: {error}")
        self.past.count("death: it did not start")
        self.life.die_in(None)
        self.life.die()
        await trio.sleep_forever()

    async def _pause(self, pause: Pause) -> None:
        if isinstance(pause, float):
            await trio.sleep(pause)
            await self._nobody_sits_now()
        elif isinstance(pause, tuple):
            with trio.move_on_after(3):
                await self.life.told_of(pause[0])
            await self._pause(pause[1])
        elif pause < 0:
            with trio.move_on_after(60):
                await self._answered()
            await self._nobody_sits_now()
        else:
            for _ in range(pause):
                await trio.lowlevel.checkpoint()

    async def _nobody_sits_now(self) -> None:
        """Where a session may have failed to open, it takes a while until that is tried again."""
        if not self.life.weather:
            await self._nobody_sits()

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
            self.past.count(f"weather: {action.kind}{'' if self.life.began else ' at the start'}")
            result = own(action.args)
            if result is not None:
                await result
        elif action.kind in ("cut", "kill"):
            self.die_in(action)
        else:
            for _ in range(action.args.get("times", 1)):
                self.busy += 1
                self.nursery.start_soon(self.client, action)

    # --- the world's own actions

    def die_in(self, action: Action) -> None:
        self.say(f"will die: {action}")
        self.life.die_in(action.args)

    async def do_stop(self, args: dict[str, Any]) -> None:
        self.life.die_in(None)
        self.past.counts["waits at a stop"] += sum(map(_waits, self.life.registry.loaded.values()))
        with trio.move_on_after(PATIENCE_S):
            await self.life.registry.drain(args["grace"])
            if not self.life.weather:
                self._stopped_well()
        self.past.count("death: stop")
        self.life.die()
        await trio.sleep_forever()

    def _stopped_well(self) -> None:
        for id, session in self.life.registry.loaded.items():
            if session.broken is None and session.state.turn is not None and not _waits(session):
                self.life.find(f"{id}: turn {session.state.turn.number} is open after a planned stop")

    def do_full(self, args: dict[str, Any]) -> None:
        self.life.weather = True
        self.life.disk.limit(free=args["free"])
        self.nursery.start_soon(self._room_again, args["lasts"])

    async def _room_again(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.life.disk.limit()

    def do_room(self, args: dict[str, Any]) -> None:
        self.life.disk.limit()

    def do_fault(self, args: dict[str, Any]) -> None:
        self.life.weather = True
        number = getattr(errno, args["errno"])
        self.life.disk.fail(args["call"], number, skip=args["skip"], times=args["times"])

    def do_short(self, args: dict[str, Any]) -> None:
        self.life.disk.short_write(args["take"], skip=args["skip"], times=args["times"])

    def do_slow(self, args: dict[str, Any]) -> None:
        self.life.weather = True
        self.life.slow(args["seconds"], args["hops"])

    def do_clock(self, args: dict[str, Any]) -> None:
        self.life.clock_ms += round(args["seconds"] * 1000)

    def do_reload(self, args: dict[str, Any]) -> None:
        self.life.registry.reloaded()

    def do_mend(self, args: dict[str, Any]) -> None:
        self.life.calm()

    def do_spool(self, args: dict[str, Any]) -> None:
        """While there is no daemon, somebody hands something in."""
        if self.life.began or not self.past.sessions:
            return
        self.past.spooled += 1
        alias, text = f"spool:00000000-0000-4000-8000-{self.past.spooled:012}", self.text(long=args["long"])
        send = {"session": self.past.sessions[0], "verb": args["verb"], "text": text, "key": args["key"]}
        try:
            self.life.spool.prepare()
            self.life.spool.put(Spooled(alias, self.life.now(), {**SOMEBODY}, send))
        except OSError:  # there is no room: who hands it in is told so
            return
        self.promise("spooled", "", alias, as_logged(text))

    async def do_rest(self, args: dict[str, Any]) -> None:
        with trio.move_on_after(300):
            await self._answered()

    # --- the end

    async def _finale(self) -> None:
        life = self.life
        if self.past.finds:
            return
        life.die_in(None)
        life.calm()
        life.slow(0, 0)
        self.say("the disk is good, and nobody asks for anything any more")
        # Longer than what a full disk or a slow one lasts, or until a failed opening is tried again.
        await trio.sleep(75 if life.weather else 15)
        life.calm()
        await self._nobody_sits()
        for id in life.store.ids():
            with trio.move_on_after(PATIENCE_S) as limit:
                await self._to_rest(id)
            if limit.cancelled_caught:
                life.find(f"{id} does not come to rest: {life.registry.loaded[id].activity}")
        if not self.past.finds:
            with holding():
                await self._all_at_rest()

    async def _all_at_rest(self) -> None:
        life, present = self.life, self.life.store.ids()
        oracles = {id: check.at_rest(life, await life.registry.get(id)) for id in present}
        good = {id: oracle for id, oracle in oracles.items() if oracle is not None}
        self.past.counts.update(f"in a log: {type}" for oracle in good.values() for type in oracle.types)
        for oracle in good.values():
            self.past.counts.update({f"compaction: {end}": n for end, n in oracle.surface.ends.items()})
        check.asked(life, list(oracles.values()))
        check.taken_up(life, good)
        check.one_name_each(life, good.values())
        check.numbered_once(life, good.values())
        await self._waits_end()

    async def _to_rest(self, id: str) -> None:
        with holding():
            await self._rest(await self.life.registry.get(id))

    async def _rest(self, session: Session) -> None:
        id = session.id
        if session.word == "faulted":
            session, _ = await self.life.registry.reopen(session, ME)
        if session.broken is not None:
            self.life.find(f"{id} is {session.word} at the end: {session.broken.error}")
            return
        await self._idle(session)
        while any(m.due for m in session.state.queues["held"]):
            await trio.sleep(60)
            await self._idle(session)
        await trio.sleep(5)
        await self._idle(session)
        while session.state.ends and session.broken is None:
            await session.next_change()

    async def _idle(self, session: Session) -> None:
        """Until nothing runs; what waits for a person's answer gets one."""
        while (await session.wait_idle())["exit"] == 16:
            for asked in session.approvals():
                try:
                    await self.give(asked["id"], "deny" if asked["turn"] % 2 else "allow", "once")
                except Conflict:  # it has just expired; that is noted in a moment
                    await trio.sleep(1)

    async def _waits_end(self) -> None:
        """Who waits for a message is answered at once: it has ended, or only a person moves it on."""
        present = self.life.store.ids()
        for id, message in dict.fromkeys(r for r in self.past.receipts if r[0] in present):
            session = await self.life.registry.get(id)
            with trio.move_on_after(1) as limit:
                await session.wait_message(message)
            if limit.cancelled_caught:
                self.life.find(f"{message} is {session.state.receipts[message].state}, and a wait hangs")


def _waits(session: Session) -> bool:
    return session.state.turn is not None and session.state.turn.only_waits


def _sits(session: Session) -> bool:
    quiet = session.ledger is not None and session.ledger.idle and session.broken is None
    return quiet and session.activity.phase == "idle" and session.state.runnable
