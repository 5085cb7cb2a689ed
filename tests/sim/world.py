"""One life of the daemon: its real core, on a made-up world, from its start to its death.

`Life` notes what the world got to know while it lived: receipts, lines told to followers, requests to the
model, tools that began. At its death it stops noting at once, whatever the dying code still does.

Where the plan has a branch a life leaves a `Bud`: the disk as a death at this very instant would leave it,
and what the world knows. The life goes on; what would have come of its death is played afterwards.
"""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path
from random import Random
from typing import Any

import attrs
import trio

from dshd import wire
from dshd.config import Approval, Config, Inbox, Recovery
from dshd.config.daemon import Driver
from dshd.control.takeup import Gate, Settled, TakingUp
from dshd.driver.port import Services
from dshd.hooks.commands import NoHooks
from dshd.log.memory import Everything, MemoryDisk, Nothing, Prefix, Seeded
from dshd.log.memory.nodes import File
from dshd.log.store import Reserve, Store
from dshd.log.threads import Threads
from dshd.session.fold.who import Peer
from dshd.session.owner.loading import Upkeep, holding
from dshd.session.owner.session import Session
from dshd.session.registry.host import Host
from dshd.session.registry.registry import Registry
from dshd.spool import Spool
from tests.sim.actors import TOOLS, Ends, Models, Outside, Plugin, SimTools, sha256
from tests.sim.coverage import file_kind
from tests.sim.folded import Folded
from tests.sim.plan import Branch, Plan

STATE = Path("/state")
UPKEEP = Upkeep(idle=2.0, per_mib=0.0, look=3.0, least=1, working=2000)
START_MS = 1_796_040_000_000
ME = Peer(uid=1000, pid=4711, tty="pts/3", client="dshctl")
RESERVE = 4096
MOST_LINES = 3000  # no plan asks for so many
EARLY = 2  # calls after a failed one that have a branch
BOOT_MS = 1500  # between a death and the next life


@attrs.define(eq=False)
class Past:
    """What outlives a life: what was promised to the world, over all lives.

    ``told``: by session, the lines a follower holds. ``firm``: how many of them no crash may take (up to
    the last *now* line). ``began``: tool calls that began, in order. ``promises``: see `check`.
    ``calls``: how often the disk was changed; ``branches``: those that are still to come.
    """

    told: dict[str, list[bytes]] = attrs.field(factory=dict)
    firm: dict[str, int] = attrs.field(factory=dict)
    began: list[tuple[str, str]] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)  # sha256 of each request
    ends: list[tuple[str, int]] = attrs.field(factory=list)  # (session, turn) that a hook was told of
    promises: list[Any] = attrs.field(factory=list)
    receipts: list[tuple[str, str]] = attrs.field(factory=list)  # (session, message)
    keys: dict[tuple[str, str], str] = attrs.field(factory=dict)  # (session, key): text
    denied: dict[str, str] = attrs.field(factory=dict)  # text: session, of sends that were "not written"
    said: dict[str, int] = attrs.field(factory=dict)  # text: how often it was sent
    maybe: set[str] = attrs.field(factory=set)  # sessions that somebody wanted removed
    removed: set[str] = attrs.field(factory=set)
    runs: dict[str, str] = attrs.field(factory=dict)  # {key of a run: session}
    sessions: list[str] = attrs.field(factory=list)
    removals: set[str] = attrs.field(factory=set)  # ids that somebody wanted removed
    finds: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    folded: dict[str, Folded] = attrs.field(factory=dict)  # {session: what is known of its log}, for all
    error: BaseException | None = None
    texts: int = 0
    spooled: int = 0
    answers: int = 0
    verdicts: int = 0
    summaries: int = 0
    calls: int = 0
    branches: deque[tuple[int, Branch]] = attrs.field(factory=deque)  # (its number, itself)
    buds: list[Bud] = attrs.field(factory=list)

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def keeps(self, id: str, lines: list[bytes]) -> bool:
        """Whether a log of these lines has all that followers were told as durable. Of the rest a power cut
        takes what it likes, and a life that told nobody may have written other lines in its place."""
        firm = self.firm.get(id, 0)
        return lines[:firm] == self.told.get(id, [])[:firm]

    def copy(self) -> Past:
        """Of what the world knows; finds, counts and branches are the copy's own."""
        own = {name: value.copy() for name in _KNOWN if (value := getattr(self, name))}
        own["told"] = {id: lines.copy() for id, lines in self.told.items()}
        numbers = {name: getattr(self, name) for name in _COUNTED}
        return Past(folded=self.folded, **own, **numbers)


_COUNTED = ("texts", "spooled", "answers", "verdicts", "summaries")
_KNOWN = (
    "firm", "began", "asked", "ends", "promises", "receipts", "keys", "denied", "said", "maybe", "sessions",
    "removals", "removed", "runs",
)  # fmt: skip


@attrs.frozen
class Bud:
    """Where a branch begins: with the next life, on this disk."""

    number: int
    branch: Branch
    past: Past
    disk: MemoryDisk
    clock_ms: int
    life: int


def survivor(name: str, chance: int) -> Any:
    if name == "nothing":
        return Nothing()
    if name == "everything":
        return Everything()
    return Prefix(chance * 7) if name == "prefix" else Seeded(Random(chance))


def dead_disk(disk: MemoryDisk, how: dict[str, Any]) -> MemoryDisk:
    """What a power cut leaves if a survivor is named, else what a kill does."""
    name = how.get("survivor")
    return disk.crash(survivor(name, how["chance"])) if name else disk.copy()


def kind_of_death(how: dict[str, Any]) -> str:
    return f"death: power cut, {how['survivor']}" if how.get("survivor") else "death: kill"


# --- a life ----------------------------------------------------------------------------------------


class Life:
    """``after``: the disk as the next life finds it, once this one is dead."""

    def __init__(self, plan: Plan, past: Past, disk: MemoryDisk, clock_ms: int, number: int) -> None:
        self.plan, self.past, self.disk, self.number = plan, past, disk, number
        self.clock_ms = clock_ms
        self.began = self.dead = False
        self.watched = True  # what followers are told
        self.after: MemoryDisk | None = None
        self.died = trio.Event()
        self.weather = False  # whether the disk was ever a bad one
        self.gate = Gate()
        self.spool = Spool(disk, STATE)
        self.running: set[tuple[str, str]] = set()
        self.followed: set[str] = set()
        self.found: dict[str, int] = {}  # {session: lines that its log had at this life's start}
        self.oracles: dict[str, Any] = {}  # {session: (an oracle, the lines that it has followed)}
        self._failed = self._early = 0
        self._signals: dict[str, trio.Event] = {}
        self._death: dict[str, Any] | None = None
        self._nursery: trio.Nursery | None = None
        self.store = Store(disk, STATE)
        self.store.reserve = Reserve(disk, STATE / "reserve", RESERVE)
        self.registry: Registry
        disk.before(self._before)

    def slow(self, seconds: float, hops: int) -> None:
        """The next hops to the disk take so long, each."""

        async def pause() -> None:
            nonlocal hops
            hops -= 1
            if not hops:
                self.disk.pause = None
            await trio.sleep(seconds)

        self.disk.pause = pause if hops else None

    def now(self) -> int:
        return START_MS + self.clock_ms + round(trio.current_time() * 1000)

    # --- dying

    def die_in(self, args: dict[str, Any] | None) -> None:
        """Before the so-many-th disk call from now: a power cut, or a kill if no survivor is named."""
        self._death = dict(args) if args else None

    def _before(self, name: str, path: str) -> None:
        if self.dead:
            return
        past = self.past
        past.calls += 1
        if past.branches and (past.branches[0][1].call <= past.calls or self._has_failed()):
            self._bud(*past.branches.popleft(), name, path)
        if self._death is None:
            return
        if self._death["calls"] > 0:
            self._death["calls"] -= 1
            return
        past.count(f"died before: {name} {file_kind(path)}")
        self.die()

    def _has_failed(self) -> bool:
        """Whether one of the last calls of the disk did; that is a good time to die."""
        failed = self.disk.calls.struck.total()
        if failed > self._failed:
            self._failed, self._early = failed, EARLY
        self._early -= 1
        return self.plan.early and self._early >= 0

    def _bud(self, number: int, branch: Branch, name: str, path: str) -> None:
        past, clock_ms = self.past.copy(), self.clock_ms + round(trio.current_time() * 1000)
        past.count(kind_of_death(branch.death))
        past.count(f"died before: {name} {file_kind(path)}")
        disk = dead_disk(self.disk, branch.death)
        branch = attrs.evolve(branch, call=self.past.calls)
        self.past.buds.append(Bud(number, branch, past, disk, clock_ms + BOOT_MS, self.number + 1))

    def die(self) -> None:
        """The end, now: from here on nothing is noted, and the disk of the next life is made."""
        if self.dead:
            return
        how = self._death or {}
        self.after = dead_disk(self.disk, how)
        self.past.count(kind_of_death(how))
        self.dead = True
        self.disk.before(None)
        self.died.set()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def calm(self) -> None:
        """The disk is good from now on."""
        self.disk.calls.faults = []
        self.disk.limit()

    # --- living

    async def begin(self, nursery: trio.Nursery) -> None:
        self._nursery, self.began = nursery, True
        self.store.prepare()
        tools = SimTools(TOOLS)
        tools.life = self
        self.registry = Registry(
            self.store,
            self._services(tools),
            Host(
                start=nursery.start_soon, threads=Threads(4),
                on_lines=self._on_lines, on_reset=self._on_reset,
                boot=f"boot{self.number}", version="sim", upkeep=UPKEEP if self.plan.unloads else None,
            ),
        )  # fmt: skip
        taking_up = TakingUp(self.spool, self.gate, self._deliver, self.now)
        self.gate.close()
        names = await taking_up.look()
        await self.registry.start()
        nursery.start_soon(taking_up.run, names)

    async def _deliver(
        self, peer: Peer, params: wire.SendParams, session: str | None, settled: Settled
    ) -> dict[str, Any]:
        with holding():
            found = await self.registry.get(session or await self.registry.resolve(params.session, None))
            if session is None:
                await settled(found.id)
            return await found.send(params, peer)

    def _services(self, tools: SimTools) -> Services:
        plan = self.plan
        config = Config(
            inbox=Inbox(max_pending=plan.max_pending), recovery=Recovery(continue_interrupted=plan.go_on),
            driver=Driver(max_running=plan.max_running), approval=Approval(expires=plan.asks or 0.0),
        )  # fmt: skip
        return Services(
            models=Models(self),
            tools=tools,
            spawner=None,
            plugins=(Plugin(self),) if plan.verdicts else (),
            now=self.now,
            config=lambda: config,
            hidden=tuple,
            protected=(),
            readable=(STATE / "sessions",),
            reserve=self._give_reserve,
            rng=Random(self.number),
            home=Path("/home/me"),
            outside=Outside(),
            hooks=Ends(self) if plan.ends else NoHooks(),
        )

    def _give_reserve(self) -> bool:
        held = self.store.reserve.held
        self.store.reserve.release()
        return held

    async def told_of(self, type: str) -> None:
        """Wait until followers are told of an event of this type."""
        await self._signals.setdefault(type, trio.Event()).wait()

    # --- noting

    def find(self, what: str) -> None:
        if not self.dead:
            self.past.finds.append(what)

    def _on_lines(self, id: str, first: int, lines: list[bytes]) -> None:
        if self.dead or not self.watched:
            return
        told = self.past.told.setdefault(id, [])
        if id not in self.followed or first != len(told):
            self._catch_up(id, first)
        self.followed.add(id)
        self._signal(lines)
        if len(told) > MOST_LINES:
            self.find(f"{id} runs away: {len(told)} lines")
            self.die()
        told.extend(lines)
        for n in range(len(told), first, -1):
            if is_now(told[n - 1]):
                self.past.firm[id] = max(self.past.firm.get(id, 0), n)
                self._must_be_durable(id, told[n - 1], f"line {n - 1} is told")
                break

    def _must_be_durable(self, id: str, mark: bytes, why: str) -> None:
        """What is told or done rests on this part of the log."""
        file = self.disk.calls.find(str(self.store.log_path(id)))
        if isinstance(file, File) and file.durable.rfind(mark) < 0:
            self.find(f"{id}: {why}, and is not on disk")

    def _signal(self, lines: list[bytes]) -> None:
        for type in list(self._signals):
            mark = f'"type":"{type}"'.encode()
            if any(mark in line[:90] for line in lines):
                self._signals.pop(type).set()

    def _catch_up(self, id: str, first: int) -> None:
        """Once in a life, a follower comes with what it holds, and gets from the file what it lacks."""
        told, lines = self.past.told[id], log_lines(self.disk, self.store.log_path(id))
        if id in self.followed:
            self.find(f"{id}: told from seq {first} on, after {len(told)} lines")
        if first < self.past.firm.get(id, 0) or not self.past.keeps(id, lines):
            self.find(f"{id}: told from seq {first} on, and a follower holds other lines as durable")
        told[:] = lines[:first]

    def _on_reset(self, id: str, to: int) -> None:
        if self.dead:
            return
        self.past.count("reset")
        if to + 1 < self.past.firm.get(id, 0):
            self.find(f"{id}: reset to {to}, though {self.past.firm[id]} lines were told as durable")
        del self.past.told.setdefault(id, [])[to + 1 :]
        self.found[id] = to + 1

    def note_asked(self, body: bytes) -> None:
        if self.dead:
            return
        sha = sha256(body)
        self.past.asked.append(sha)
        self.past.count("model asked")
        logs = [self.disk.calls.find(str(self.store.log_path(id))) for id in self.store.ids()]
        if not any(isinstance(log, File) and sha.encode() in log.durable for log in logs):
            self.find(f"the model is asked {sha[:8]}, and that is not on disk")

    def note_told_of_end(self, session: str, turn: int) -> None:
        """A hook is told that a turn has ended."""
        if self.dead:
            return
        self.past.ends.append((session, turn))
        self.past.count("hook told of an end")
        begun = b'"type":"hook/begun","data":{"event":"turn_end","turn":%d}' % turn
        self._must_be_durable(session, begun, f"a hook is told of the end of turn {turn}")

    def note_began(self, here: tuple[str, str]) -> None:
        if self.dead:
            return
        self._must_be_durable(here[0], b'"call":"%s","name":' % here[1].encode(), f"{here[1]} runs")
        if here in self.past.began:
            self.find(f"{here}: a tool call ran twice")
        self.past.began.append(here)
        self.running.add(here)
        self.past.count("tool ran")

    def next_answer(self) -> Any:
        self.past.answers += not self.dead
        n = self.past.answers - 1
        return self.plan.answers[n] if 0 <= n < len(self.plan.answers) else ("say", "done", "stop")

    def next_verdict(self) -> Any:
        self.past.verdicts += not self.dead
        n = self.past.verdicts - 1
        return self.plan.verdicts[n] if 0 <= n < len(self.plan.verdicts) else ("pass", 0.0)

    def next_summary(self) -> Any:
        self.past.summaries += not self.dead
        n = self.past.summaries - 1
        return self.plan.summaries[n] if 0 <= n < len(self.plan.summaries) else ("say", 20, "stop")

    # --- for clients

    async def session(self, at: int = 0) -> Session | None:
        ids = [id for id in self.past.sessions if id not in self.past.maybe]
        return await self.registry.get(ids[at % len(ids)]) if ids else None


def log_lines(disk: MemoryDisk, path: Path) -> list[bytes]:
    """None, if there is no such log (any more)."""
    if not disk.exists(path):
        return []
    return disk.peek(path).splitlines(keepends=True)


WAITS = b'"waits":true'
_SOON = tuple(
    f'"type":"{type}"'.encode()
    for type in (
        *("assistant/chunk", "tool/result", "step/end", "llm/retry", "todo/write"),
        *("hook/ran", "hook/due", "hook/done"),
    )
)


def is_now(line: bytes) -> bool:
    """Whether the contract wants this line durable before anybody is told; that a step waits, too, and
    that somebody is about to be told of a turn's end."""
    start = line[:90]
    return not any(mark in start for mark in _SOON) or (b'"type":"llm/retry"' in start and WAITS in line)
