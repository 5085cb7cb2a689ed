"""One life of the daemon: its real core, on a made-up world, from its start to its death.

`Life` notes what the world got to know while it lived: receipts, lines told to followers, requests to the
model, tools that began. At its death it stops noting at once, whatever the dying code still does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import attrs
import orjson
import trio

from dshd.config import Config, Inbox, Recovery
from dshd.driver.port import Services
from dshd.log.memory import Everything, MemoryDisk, Nothing, Prefix, Seeded, _Directory, _File
from dshd.log.store import Reserve, Store
from dshd.model.adapter import PreparedCall
from dshd.model.chunks import BlockEnd, BlockStart, Chunk, Finish, TextDelta, ToolCallDelta, Usage
from dshd.model.errors import ModelError
from dshd.model.request import ModelRequest
from dshd.model.retry import RetryPolicy
from dshd.model.routes import Choice
from dshd.plugins import Defer, PreStep, Reject
from dshd.session.registry import Registry
from dshd.session.session import Session
from dshd.session.who import Peer
from dshd.tools.registry import Registry as Tools
from dshd.tools.tool import Call, ToolContext, ToolOutput, failure, text_output

STATE = Path("/state")
START_MS = 1_796_040_000_000
ME = Peer(uid=1000, pid=4711, tty="pts/3", client="dshctl")
RESERVE = 4096
MOST_LINES = 3000  # no plan asks for so many


class Simulated(Exception):
    """What a plan made the world raise; every other exception is a find."""


@attrs.define(eq=False)
class Past:
    """What outlives a life: what was promised to the world, over all lives.

    ``told``: by session, the lines a follower holds. ``firm``: how many of them no crash may take (up to
    the last *now* line). ``seen``: tool calls that began, in order. ``promises``: see `check`.
    """

    told: dict[str, list[bytes]] = attrs.field(factory=dict)
    firm: dict[str, int] = attrs.field(factory=dict)
    began: list[tuple[str, str]] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)  # sha256 of each request
    promises: list[Any] = attrs.field(factory=list)
    receipts: list[tuple[str, str]] = attrs.field(factory=list)  # (session, message)
    keys: dict[tuple[str, str], str] = attrs.field(factory=dict)  # (session, key): text
    denied: dict[str, str] = attrs.field(factory=dict)  # text: session, of sends that were "not written"
    said: dict[str, int] = attrs.field(factory=dict)  # text: how often it was sent
    maybe: set[str] = attrs.field(factory=set)  # sessions that may have been removed
    sessions: list[str] = attrs.field(factory=list)
    removals: set[str] = attrs.field(factory=set)  # ids that somebody wanted removed
    finds: list[str] = attrs.field(factory=list)
    counts: dict[str, int] = attrs.field(factory=dict)
    error: BaseException | None = None
    texts: int = 0
    ids: int = 0
    answers: int = 0
    verdicts: int = 0

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def clone(disk: MemoryDisk) -> MemoryDisk:
    """The same disk with its page cache, nothing open: what a killed process leaves."""
    made: dict[int, Any] = {}  # {inode: its copy}

    def node(n: Any) -> Any:
        if n.inode in made:
            return made[n.inode]
        if isinstance(n, _File):
            made[n.inode] = _File(n.inode, bytearray(n.cache), bytearray(n.durable), list(n.dirty), n.links)
            return made[n.inode]
        made[n.inode] = copy = _Directory(n.inode)
        copy.names = {name: node(child) for name, child in n.names.items()}
        copy.durable = {name: node(child) for name, child in n.durable.items()}
        return copy

    other = MemoryDisk()
    other.calls.root = node(disk.calls.root)
    other.calls.inodes = disk.calls.inodes
    return other


def survivor(name: str, chance: int) -> Any:
    if name == "nothing":
        return Nothing()
    if name == "everything":
        return Everything()
    return Prefix(chance * 7) if name == "prefix" else Seeded(Random(chance))


# --- the model -------------------------------------------------------------------------------------


class Model:
    name = "scripted"
    encoder = "scripted/1"

    def __init__(self, life: Life) -> None:
        self._life = life

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        return encode(request)

    async def stream(self, call: PreparedCall, body: bytes, emit: Any) -> None:
        life = self._life
        life.note_asked(body)
        await trio.lowlevel.checkpoint()
        await self._play(life.next_answer(), emit)

    async def _play(self, answer: Any, emit: Any) -> None:
        kind = answer[0]
        if kind == "slow":
            await emit(BlockStart(0, "text"))
            await emit(TextDelta(0, "slow"))
            await trio.sleep(answer[1])
            await self._play(answer[2], emit)
        elif kind == "error":
            if answer[2]:
                await emit(BlockStart(0, "text"))
                await emit(TextDelta(0, "half"))
            raise ModelError(answer[1], "simulated")
        elif kind == "raise":
            raise Simulated("simulated")
        else:
            for chunk in say(answer) if kind == "say" else call(answer):
                await emit(chunk)


def encode(request: ModelRequest) -> bytes:
    return orjson.dumps([request.system, request.messages, [t.name for t in request.tools]])


def say(answer: Any) -> list[Chunk]:
    half = len(answer[1]) // 2
    return [
        BlockStart(0, "text"),
        TextDelta(0, answer[1][:half]),
        TextDelta(0, answer[1][half:]),
        BlockEnd(0),
        Usage({"input": 10, "output": 2}),
        Finish(answer[2]),
    ]


def call(answer: Any) -> list[Chunk]:
    chunks: list[Chunk] = []
    if answer[2]:
        chunks = [BlockStart(0, "text"), TextDelta(0, "let me see")]
    for i, (name, seconds, what) in enumerate(answer[1], 1):
        raw = json.dumps({"s": seconds, "what": what})
        chunks += [BlockStart(i, "tool-call", id=f"p{i}", name=name), ToolCallDelta(i, raw)]
    return [*chunks, Usage({"input": 10, "output": 5}), Finish("tool-calls")]


class Models:
    def __init__(self, life: Life) -> None:
        self._adapter = Model(life)

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        policy = RetryPolicy(quick=2, first=0.1)
        return PreparedCall(route=route, adapter=self._adapter, model="m", retry=policy, window=100_000)

    async def choose(self, explicit: str | None, *, client_is_terminal: bool) -> Choice:
        return Choice("scripted", "a plan")

    def adapter_name(self, ref: str) -> str:
        return "scripted"


# --- tools and a plugin ----------------------------------------------------------------------------


@attrs.frozen
class Tool:
    name: str
    read_only: bool = False
    description: str = "simulated"
    schema: dict[str, Any] = attrs.field(factory=lambda: {"type": "object"})

    def describe(self, args: dict[str, Any]) -> str:
        return f"{self.name} {args.get('what', '')}"

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.sleep(args["s"]) if args["s"] else await trio.lowlevel.checkpoint()
        return OUTPUTS.get(self.name, _done)(args)


def _done(args: dict[str, Any]) -> ToolOutput:
    return text_output(f"done {args['what']}")


def _fail(args: dict[str, Any]) -> ToolOutput:
    raise Simulated("simulated")


OUTPUTS: dict[str, Callable[[dict[str, Any]], ToolOutput]] = {
    "fail": _fail,
    "tell": lambda args: ToolOutput([{"type": "text", "text": "told"}], inject=(f"note {args['what']}",)),
    "todo": lambda args: ToolOutput(
        [{"type": "text", "text": "noted"}],
        events=(("todo/write", {"items": [{"text": args["what"], "status": "pending"}]}),),
    ),
    "nothing": lambda args: ToolOutput([]),
}
TOOLS = tuple(Tool(name, name == "look") for name in ("work", "look", "fail", "tell", "todo", "nothing"))


class SimTools(Tools):
    """Bodies run in place, without threads; what begins is noted."""

    life: Life

    async def execute(self, call: Call, ctx: ToolContext) -> ToolOutput:
        tool = self.get(call.name)
        assert tool is not None
        here = (ctx.session, call.id)
        self.life.note_began(here)
        try:
            return await tool.run(json.loads(call.arguments), ctx)
        except Simulated as error:
            return failure(f"{call.name}: {error}", "TOOL_FAILED")
        finally:
            self.life.running.discard(here)


class Plugin:
    name = "judge"

    def __init__(self, life: Life) -> None:
        self._life = life

    async def pre_step(self, proposal: PreStep) -> PreStep | Reject | Defer:
        kind, seconds = self._life.next_verdict()
        await trio.sleep(seconds) if kind == "hang" else await trio.lowlevel.checkpoint()
        messages = proposal.messages
        if kind == "raise":
            raise Simulated("simulated")
        if kind == "reject":
            return Reject("no")
        if kind == "reject one" and messages:
            return Reject("not this", (messages[-1]["id"],))
        if kind == "defer":
            return Defer("later", seconds)
        if kind == "add":
            extra = {"role": "user", "content": [{"type": "text", "text": "from the plugin"}], "created": 0,
                     "source": {"kind": "plugin"}, "wake": False, "verb": "inject"}  # fmt: skip
            return attrs.evolve(proposal, messages=(*messages, extra))
        if kind == "drop" and messages:
            return attrs.evolve(proposal, messages=messages[1:])
        return proposal


class Outside:
    async def instructions(self, directory: Path) -> list[tuple[str, str]]:
        await trio.lowlevel.checkpoint()
        return []

    async def git(self, directory: Path) -> None:
        await trio.lowlevel.checkpoint()


# --- a life ----------------------------------------------------------------------------------------


class SimRegistry(Registry):
    past: Past

    def _fresh_id(self, rows: Any) -> str:
        self.past.ids += 1
        return f"s{self.past.ids:07}".replace("1", "h").replace("0", "a")


class Life:
    """``after``: the disk as the next life finds it, once this one is dead."""

    def __init__(self, plan: Any, past: Past, disk: MemoryDisk, clock_ms: int, number: int) -> None:
        self.plan, self.past, self.disk, self.number = plan, past, disk, number
        self.clock_ms = clock_ms
        self.dead = False
        self.after: MemoryDisk | None = None
        self.died = trio.Event()
        self.draining = False
        self.running: set[tuple[str, str]] = set()
        self.followed: set[str] = set()
        self.found: dict[str, int] = {}  # {session: lines that its log had at this life's start}
        self.pauses: list[float] = []
        self._signals: dict[str, trio.Event] = {}
        self._death: dict[str, Any] | None = None
        self._nursery: trio.Nursery | None = None
        self.store = Store(disk, STATE)
        self.store.reserve = Reserve(disk, STATE / "reserve", RESERVE)
        self.registry: SimRegistry
        disk.pause = self._pause

    async def _pause(self) -> None:
        if self.pauses:
            await trio.sleep(self.pauses.pop())
        else:
            await trio.lowlevel.checkpoint()

    def now(self) -> int:
        return START_MS + self.clock_ms + round(trio.current_time() * 1000)

    # --- dying

    def die_in(self, args: dict[str, Any] | None) -> None:
        """Before the so-many-th disk call from now: a power cut, or a kill if no survivor is named."""
        self._death = dict(args) if args else None
        self.disk.before(self._before if args else None)

    def _before(self, name: str, path: str) -> None:
        if self._death is None or self.dead:
            return
        if self._death["calls"] > 0:
            self._death["calls"] -= 1
            return
        if "survivor" in self._death or not self._lied_to():
            self.die()

    def _lied_to(self) -> bool:
        """Whether the page cache shows what a failed sync has lost, and nobody has cut it away yet.

        A kill at this very instant leaves lines that look good and can't be made durable by any sync;
        no opening can tell. It comes a call later instead.
        """
        return any(f.cache != f.durable and not f.dirty for f in self.disk.calls._files())

    def die(self) -> None:
        """The end, now: from here on nothing is noted, and the disk of the next life is made."""
        if self.dead:
            return
        how = self._death or {}
        name = how.get("survivor")
        self.after = self.disk.crash(survivor(name, how["chance"])) if name else clone(self.disk)
        self.past.count(f"death: {'power cut, ' + name if name else 'kill'}")
        self.dead = True
        self.disk.before(None)
        self.died.set()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # --- living

    async def begin(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.store.prepare()
        tools = SimTools(TOOLS)
        tools.life = self
        self.registry = SimRegistry(
            self.store,
            self._services(tools),
            start=nursery.start_soon,
            on_lines=self._on_lines,
            on_reset=self._on_reset,
            boot=f"boot{self.number}",
            version="sim",
            limiter=trio.CapacityLimiter(4),
        )
        self.registry.past = self.past
        await self.registry.start()

    def _services(self, tools: SimTools) -> Services:
        plan = self.plan
        config = Config(
            inbox=Inbox(max_pending=plan.max_pending), recovery=Recovery(continue_interrupted=plan.go_on)
        )
        return Services(
            models=Models(self),
            tools=tools,
            spawner=None,
            plugins=(Plugin(self),) if plan.verdicts else (),
            now=self.now,
            config=lambda: config,
            hidden=(),
            protected=(),
            readable=(STATE / "sessions",),
            reserve=self._give_reserve,
            rng=Random(self.number),
            home=Path("/home/me"),
            outside=Outside(),
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
        if self.dead:
            return
        told = self.past.told.setdefault(id, [])
        if first != len(told):
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
                break

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
        if first < self.past.firm.get(id, 0) or lines[: min(first, len(told))] != told[:first]:
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
        if not self.dead:
            self.past.asked.append(sha256(body))
            self.past.count("model asked")

    def note_began(self, here: tuple[str, str]) -> None:
        if self.dead:
            return
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

    # --- for clients

    async def session(self, at: int = 0) -> Session | None:
        ids = [id for id in self.past.sessions if id not in self.past.maybe]
        return await self.registry.get(ids[at % len(ids)]) if ids else None


def log_lines(disk: MemoryDisk, path: Path) -> list[bytes]:
    return disk.peek(path).splitlines(keepends=True)


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


_SOON = tuple(
    f'"type":"{type}"'.encode()
    for type in ("assistant/chunk", "tool/result", "step/end", "llm/retry", "todo/write", "hook/")
)


def is_now(line: bytes) -> bool:
    """Whether the contract wants this line durable before anybody is told."""
    start = line[:90]
    return not any(mark in start for mark in _SOON)
