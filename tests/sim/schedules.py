"""Schedules on the virtual clock: added, changed, fired, while the daemon dies and the clock jumps.

A history apart from those of `plan`, on the same disk and clock, and made from a seed as they are. What must
hold, whatever happens:

- a schedule that was acknowledged is there, until somebody wanted it removed;
- each instant of a schedule sends at most one message, in all logs together, and makes at most one run;
- what became of it is noted, and what is noted is so;
- when all is quiet nothing is overdue, and each ``at`` was sent.
"""

from __future__ import annotations

import errno
from collections import Counter
from random import Random
from typing import Any

import attrs
import trio

from dshd import wire
from dshd.errors import DshError
from dshd.log.memory import MemoryDisk, Prefix
from dshd.log.memory.nodes import File
from dshd.session.fold.schedules import HOME
from tests.session.rig import ME, World, say
from tests.sim import check, clockwork
from tests.sim.world import START_MS, dead_disk

Json = dict[str, Any]

MINUTE = 60.0
LIVES = 5
IN_BETWEEN = 0.1
SURVIVORS = (None, None, "blocks", "blocks", "prefix", "prefix", "nothing")
QUIET_S = 12 * MINUTE  # longer than any schedule rests
JUMPS_S = (-40 * 86_400, -5000, -30, 30, 5000, 3 * 86_400)
WHENS = ("every", "every", "cron", "at", "at")


@attrs.define
class Past:
    """``sure``: schedules that were acknowledged, and whether ``at``; ``doubted``: those to be removed."""

    r: Random
    sure: dict[str, bool] = attrs.field(factory=dict)
    doubted: set[str] = attrs.field(factory=set)
    finds: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)


def play(seed: int) -> Past:
    past = Past(Random(seed))
    with clockwork.deterministic(START_MS) as clock:
        clockwork.start_again(clock, seed, 0)
        trio.run(_history, past, clock=clock)
    return past


async def _history(past: Past) -> None:
    disk, offset = MemoryDisk(), 0
    for number in range(LIVES + 1):
        life = Life(past, disk, offset)
        await life.live(last=number == LIVES)
        if past.finds:
            return
        disk, offset = life.after, life.world.clock_offset + past.r.choice((1, 1000, 100_000, 4_000_000))


class Life:
    """``after``: the disk as the next life finds it."""

    def __init__(self, past: Past, disk: MemoryDisk, offset: int) -> None:
        self.past, self.r = past, past.r
        self.world = World(disk)
        self.world.clock_offset = offset
        self.after = disk
        self.dead = False
        self._scope = trio.CancelScope()
        self._calls = self.r.randrange(1, 120)
        disk.calls.faults = []
        disk.limit()
        disk.before(self._before)

    @property
    def schedules(self) -> Any:
        return self.world.registry.schedules

    def _before(self, name: str, path: str) -> None:
        self._calls -= 1
        if self._calls == 0 and not self.dead:
            self._die()
        elif self._calls > 0 and not self.dead:
            self._die_in_between(name, path)

    def _die_in_between(self, name: str, path: str) -> None:
        """Now and then between what was sent and the note that it was: those are two lines, or two logs."""
        if name == "write" and path == str(self.store.log_path(HOME)) and self.r.random() < IN_BETWEEN:
            self._die()
        file = self.disk.calls.find(path) if name == "fdatasync" else None
        tail = bytes(file.cache[len(file.durable) :]) if isinstance(file, File) else b""
        if b'"type":"schedule/fired"' in tail and self.r.random() < IN_BETWEEN:
            first = self.r.randint(1, tail.count(b"\n"))
            self._die(Prefix(sum(len(line) + 1 for line in tail.split(b"\n")[:first])))

    def _die(self, survivor: Prefix | None = None) -> None:
        name = self.r.choice(SURVIVORS)
        how: Json = {"survivor": name, "chance": self.r.randrange(200)} if name else {}
        disk = self.world.disk
        assert isinstance(disk, MemoryDisk)
        self.after, self.dead = dead_disk(disk, how) if survivor is None else disk.crash(survivor), True
        self.past.counts["deaths"] += 1
        self._scope.cancel()

    async def live(self, *, last: bool) -> None:
        if last:
            self._calls = -1
        with self._scope:
            async with self.world.run():
                await self._check()
                for _ in range(0 if last else self.r.randrange(3, 12)):
                    await self._act()
                if last:
                    await self._quiet()
                else:
                    self._die()

    # --- what is done

    async def _act(self) -> None:
        kind = self.r.choice(
            (
                "add",
                "add",
                "add",
                "change",
                "change",
                "run",
                "sleep",
                "sleep",
                "jump",
                "slow",
                "fault",
                "full",
            )
        )
        self.past.counts[kind] += 1
        try:
            await getattr(self, f"_{kind}")()
        except DshError:
            self.past.counts["refused"] += 1
        await trio.sleep(self.r.choice((0, 0.01, 1.0, 59.0, 400.0)))

    async def _add(self) -> None:
        session, run = None, wire.CreateParams(dir="/", run=True, mode="full")
        if self.r.random() < 0.6:
            ids = [row.id for row in await self.world.registry.rows() if row.state != "closed"]
            again = ids and self.r.random() < 0.7
            session = await (self.world.registry.get(self.r.choice(ids)) if again else self.world.session())
        params: Json = {"text": "t", "zone": "Europe/Berlin", "run": None if session else run}
        kind = self.r.choice(WHENS)
        if kind == "every":
            params["every"] = self.r.choice((60.0, 90.0, 600.0))
        elif kind == "cron":
            params["cron"] = self.r.choice(("* * * * *", "*/7 * * * *"))
        else:
            params["at"] = self.world.now() + self.r.choice((1, 5000, 400_000))
        overlap: Any = self.r.choice(("skip", "queue", "supersede") if session else ("skip", "queue"))
        catch_up = self.r.choice((None, True, False)) if kind != "at" else None
        asked = wire.ScheduleAddParams(**params, typed=kind, overlap=overlap, catch_up=catch_up)
        row = await self.schedules.add(session, asked, ME)
        if not self.dead:
            self.past.sure[row["id"]] = kind == "at"

    async def _change(self) -> None:
        if self.past.sure:
            id, op = self.r.choice(list(self.past.sure)), self.r.choice(("rm", "pause", "resume"))
            if op == "rm":
                self.past.doubted.add(id)
            await self.schedules.change(op, id, ME)

    async def _run(self) -> None:
        if self.past.sure:
            await self.schedules.run(self.r.choice(list(self.past.sure)), ME)

    async def _sleep(self) -> None:
        await trio.sleep(self.r.choice((1, 3, 6)) * MINUTE)

    async def _jump(self) -> None:
        self.world.clock_offset += self.r.choice(JUMPS_S) * 1000

    async def _fault(self) -> None:
        """One of the next calls of the disk fails."""
        call = self.r.choice(("fdatasync", "fdatasync", "write", "fsync", "rename", "create"))
        self.disk.fail(call, errno.EIO, skip=self.r.randrange(4), times=1)

    async def _full(self) -> None:
        self.disk.limit(free=self.r.choice((0, 50, 700)))
        await trio.sleep(self.r.choice((0.5, 70.0, 400.0)))
        self.disk.limit()

    async def _slow(self) -> None:
        """The next answer takes a while."""
        seconds = self.r.choice((30.0, 200.0))

        async def answer() -> Any:
            await trio.sleep(seconds)
            return say("late")

        self.world.script.append(answer)

    # --- what must hold

    def _find(self, what: str) -> None:
        if not self.dead:
            self.past.finds.append(what)

    async def _check(self) -> None:
        for id in self.past.sure.keys() - self.past.doubted:
            try:
                await self.schedules.log(id)
            except DshError as error:
                self._find(f"{id} was acknowledged: {error}")
        self._check_sent()

    def _check_sent(self) -> Counter[str]:
        """How often each schedule has sent; in all logs together, each instant was sent once."""
        keys: Counter[str] = Counter()
        for id in self.world.store.ids():
            for event in check.decoded(check.log_of(self, id)):  # type: ignore[arg-type]
                keys.update(_sent(event.data) if event.type == "inbox/spliced" else ())
        for key, n in keys.items():
            if n > 1:
                self._find(f"{key} was sent {n} times")
        return Counter(key.partition("@")[0] for key in keys)

    async def _quiet(self) -> None:
        for id in self.past.sure.keys() - self.past.doubted:
            row = await self.schedules.log(id)
            if row["state"] == "paused":
                await self.schedules.change("resume", id, ME)
        await trio.sleep(QUIET_S)
        sent, now = self._check_sent(), self.world.now()
        runs = {view["id"] for view in await self.world.registry.views(True) if view["run"]}
        for id in self.past.sure.keys() - self.past.doubted:
            row = await self.schedules.log(id)
            self.past.counts["fired"] += len(row["firings"])
            if row["next_at"] is not None and row["next_at"] < now - 1000:
                self._find(f"{id} is overdue")
            overlaps = any(one["skipped"] == "overlap" for one in row["firings"])  # with one by hand
            if self.past.sure[id] and row["state"] == "over" and not sent[id] and not overlaps:
                self._find(f"{id} was to be sent once, and was not: {row['firings']}")
            if self.past.sure[id] and row["state"] != "over" and row["next_at"] <= now + QUIET_S * 500:
                self._find(f"{id} should be over")
            for one in row["firings"]:
                self.past.counts[f"firing: {one['skipped'] or 'sent'}"] += 1
                if one["session"] is not None and one["session"] not in runs:
                    self._find(f"{id} made {one['session']}, and there is no such run")
        for id in (*self.world.registry.loaded, HOME):
            there = self.disk.exists(self.store.log_path(id))  # HOME's is made for the first run
            report = await self.world.registry.fsck(id) if there else {"ok": True}
            if not report["ok"]:
                self._find(f"{id}: {report['problem']}")

    @property
    def disk(self) -> Any:
        return self.world.disk

    @property
    def store(self) -> Any:
        return self.world.store


def _sent(data: Json) -> list[str]:
    if data["cause"] not in ("send", "supersede"):
        return []
    came = [message for op in data["ops"] for message in op["insert"]]
    gone = {id for op in data["ops"] for id in op["remove"]}
    mine = [m for m in came if m["source"]["kind"] == "schedule" and m["id"] not in gone]
    by_hand = [m for m in mine if (m.get("key") or "").partition("@")[2].startswith("now:")]
    return [f"{m['source']['via']}@{m['source']['due'] // 1000}" for m in mine if m not in by_hand]
