"""The bash tool: a shell command in the session's directory, with no terminal, no stdin and a time limit."""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from dshd.plural import age
from dshd.spawn.client import Completed, Kept, Passage, Spawner, SpawnFailed
from dshd.tools import sandbox
from dshd.tools.guarded import sweep
from dshd.tools.jobs import Done, Spec, Work
from dshd.tools.sandbox import Plan
from dshd.tools.text import decoded, whole_end, whole_start
from dshd.tools.threads import writing
from dshd.tools.tool import Args, ToolContext, ToolFailure, ToolOutput, failure, text_output

log = logging.getLogger(__name__)

FREE = Plan(kind="none", net=True)
DEFAULT_LIMIT = 120.0  # s
SWEEP_LIMIT = 30.0  # s; `writing` gives up before
HEAD, TAIL = 10_000, 20_000  # bytes shown to the model

PROVIDER_KEYS = frozenset({"DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"})
FROM_DAEMON = re.compile(
    "HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|XDG_.*|PATH|DSHD_(HOME|STATE_DIR|SOCKET|CONFIG)", re.DOTALL
)
NEVER = re.compile(
    "BASH_ENV|ENV|BASH_FUNC_.*|GIT_.*|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS4|LD_PRELOAD", re.DOTALL
)
ALWAYS = {"TERM": "dumb", "DSHD_AUTOSTART": "0"}
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "description": "the command, as for bash -c"},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "seconds; 120 by default"},
        "background": {"type": "boolean", "description": "run as a job and return at once; no limit then"},
    },
    "required": ["command"],
    "additionalProperties": False,
}


class Bash:
    """`provider_keys` are names of variables that no command sees, whoever asked for them."""

    name = "bash"
    description = (
        "Run a command with bash in the session's directory. There is no terminal and no stdin, so "
        "nothing interactive works. Each call is a fresh shell: directory and variables don't carry "
        "over. The call ends when the shell ends, and what it left in the background is ended with it: what "
        "is to go on (a server, a long build) is started with background, as a job; it is run at once, "
        "the call returns, and you are told when it ends (see the tool job). "
        "In the sandbox /tmp is the session's own, seen by its commands only. "
        "stdout and stderr come back together; of a long output the middle is left out, and the whole "
        "is in a file that you are told."
    )
    schema = SCHEMA
    read_only = False

    def __init__(self, provider_keys: frozenset[str] = PROVIDER_KEYS) -> None:
        self._provider_keys = provider_keys | PROVIDER_KEYS
        self._daemon = who_and_where(os.environ)
        self._found: sandbox.Found | None = None
        self._detecting = trio.Lock()

    def describe(self, args: Args) -> str:
        lines = str(args.get("command", "")).strip().split("\n")
        return f"bash: {lines[0]}" + (" ..." if len(lines) > 1 else "")

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        """Cancellation: the command and all it started are ended before Cancelled goes on."""
        if "\0" in args["command"]:
            return failure("the command holds a NUL character, which no command line can.")
        try:
            plan = await self._plan(args["command"], ctx)
            return await (self._begin_job if args.get("background") else self._run)(args, ctx, plan)
        except sandbox.Refused as error:
            return failure(str(error), "DENIED")
        except SpawnFailed as error:
            return failure(f"{error}{survivors(error.survivors)}", "SPAWN_FAILED")

    async def _plan(self, command: str, ctx: ToolContext) -> Plan:
        if sandbox.wanted(ctx) is None:
            return FREE
        return await writing(confine, command, ctx, self._found or await self.detect(ctx.spawner))

    async def detect(self, spawner: Spawner) -> sandbox.Found:
        """What sandbox works here; tried once."""
        async with self._detecting:
            if self._found is None:
                self._found = await sandbox.detect(spawner)
            return self._found

    async def _run(self, args: Args, ctx: ToolContext, plan: Plan) -> ToolOutput:
        limit = min(float(args.get("timeout") or DEFAULT_LIMIT), ctx.bash_max)
        file, leaving = ctx.spill_dir / spill_name(), ctx.leaving
        try:
            done, undone = await self._spawned(args, ctx, plan, file, limit, leaving)
        except trio.Cancelled:
            if leaving is not None and leaving.holds:
                leaving.spec = self._spec(args, ctx, plan, file, partial(self._rest, ctx, plan, leaving))
            else:
                tell_survivors(ctx)
            raise
        return result(done, limit, plan, undone, ctx.whose)

    async def _spawned(
        self, args: Args, ctx: ToolContext, plan: Plan, file: Path, limit: float | None,
        passage: Passage | None, *, follow: bool = False,
    ) -> Done:  # fmt: skip
        spawner: Spawner = ctx.spawner
        work = spawner.run(
            [*plan.prefix, "bash", "-c", args["command"]],
            cwd=str(ctx.dir),
            env=self._environment(ctx, plan),
            timeout=limit,
            head=HEAD,
            tail=TAIL,
            spill=file,
            label=ctx.session,
            wrapper=plan.kind == "bubblewrap",
            landlock=plan.landlock,
            follow=follow,
            passage=passage,
        )
        return await self._to_its_end(work, ctx, plan, passage)

    async def _to_its_end(
        self, work: Awaitable[Completed], ctx: ToolContext, plan: Plan, passage: Passage | None
    ) -> Done:
        """What the sandbox could not prevent is undone behind it, also if it was cancelled; not if the
        command goes on elsewhere."""
        undone: list[Path] = []
        goes_on = False
        try:
            done = await work
        except Kept:
            goes_on = True
            raise
        finally:
            if not goes_on and not (passage is not None and passage.holds):
                with trio.move_on_after(SWEEP_LIMIT, shield=True):
                    undone = await afterwards(plan, ctx.spill_dir)
        return done, undone

    @asynccontextmanager
    async def around(self, command: str, ctx: ToolContext) -> AsyncIterator[tuple[Plan, dict[str, str]]]:
        """For what isn't a command line and runs like one: its sandbox and its environment. What the sandbox
        could not prevent is undone behind it. Raises `sandbox.Refused`."""
        plan = await self._plan(command, ctx)
        try:
            yield plan, self._environment(ctx, plan)
        finally:
            with trio.move_on_after(SWEEP_LIMIT, shield=True):
                await afterwards(plan, ctx.spill_dir)

    def _environment(self, ctx: ToolContext, plan: Plan) -> dict[str, str]:
        return {**environment(ctx.env, self._daemon, self._provider_keys), **plan.env, "PWD": str(ctx.dir)}

    # --- jobs

    async def _begin_job(self, args: Args, ctx: ToolContext, plan: Plan) -> ToolOutput:
        if ctx.jobs is None:
            return failure("nothing can run in the background here; run it in the foreground.")
        limit, file = args.get("timeout"), ctx.spill_dir / spill_name("job")

        async def work(passage: Passage) -> Done:
            return await self._spawned(args, ctx, plan, file, limit, passage, follow=True)

        id = await ctx.jobs.start(self._spec(args, ctx, plan, file, work))
        return text_output(
            f"[{id} runs in the background; what it prints goes to {file}. You are told when it ends.]",
            summary=f"job {id}",
        )

    async def _rest(self, ctx: ToolContext, plan: Plan, left: Passage, passage: Passage) -> Done:
        spawner: Spawner = ctx.spawner
        return await self._to_its_end(spawner.go_on(left, passage), ctx, plan, passage)

    def _spec(self, args: Args, ctx: ToolContext, plan: Plan, file: Path, work: Work) -> Spec:
        return Spec(
            call=ctx.call, command=args["command"], dir=ctx.dir, file=file, work=work,
            after=partial(_swept, plan, ctx),
        )  # fmt: skip


async def _swept(plan: Plan, ctx: ToolContext) -> list[Path]:
    """Cancellation: shielded, and bounded."""
    undone: list[Path] = []
    with trio.move_on_after(SWEEP_LIMIT, shield=True):
        undone = await afterwards(plan, ctx.spill_dir)
    return undone


def confine(command: str, ctx: ToolContext, found: sandbox.Found) -> Plan:
    """How to confine the command. Blocks; raises Refused."""
    places = sandbox.look(ctx, command, environ=os.environ, found=found)
    return sandbox.plan(ctx.mode, ctx.net, sandbox.wanted(ctx) or "auto", places, found)


async def afterwards(plan: Plan, spill_dir: Path) -> list[Path]:
    """Undo what the sandbox could not prevent, whether the call was cancelled or not. A few stat calls as a
    rule, so not worth a thread."""
    guarded = plan.places.guarded if plan.places is not None else None
    if guarded is None:
        return []
    if guarded.before is None and guarded.aside is None:
        return sweep(guarded, spill_dir / "removed")
    try:
        return await writing(sweep, guarded, spill_dir / "removed")
    except ToolFailure as error:
        log.warning("what a command made in %s was not looked through: %s", guarded.dir, error)
        return []


def tell_survivors(ctx: ToolContext) -> None:
    """A cancelled call is said to have been stopped; say it if that is not so."""
    left = ctx.spawner.survivors(ctx.session)
    if left and ctx.keep is not None:
        ctx.keep(failure(f"Told to stop, but not all of it has ended.{survivors(left)}", "SURVIVORS"))


def environment(
    session: Mapping[str, str], daemon: Mapping[str, str], provider_keys: frozenset[str]
) -> dict[str, str]:
    """What a command sees: who and where from the daemon, the rest from the session, never a
    provider's key, nor what would make bash run a file first. (A session's environment holds names that
    look like secrets only if its person named them.)"""
    env = {**daemon, **session}
    env.setdefault("PATH", DEFAULT_PATH)
    env.update(ALWAYS)
    unwanted = [name for name in env if NEVER.fullmatch(name) or name in provider_keys]
    return {name: value for name, value in env.items() if name not in unwanted}


def who_and_where(environ: Mapping[str, str]) -> dict[str, str]:
    """The daemon's share in it."""
    return {name: value for name, value in environ.items() if FROM_DAEMON.fullmatch(name)}


DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_last_name = 0


def spill_name(kind: str = "bash") -> str:
    """A file name that was not used before, by any daemon: the time in ms, or the next number after it."""
    global _last_name
    number = _last_name = max(time.time_ns() // 1_000_000, _last_name + 1)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return f"{kind}-{digits}.out"


def result(
    done: Completed, limit: float, plan: Plan, undone: Sequence[Path] = (), whose: str = ""
) -> ToolOutput:
    """The output and how it ended, in words."""
    text = shown(done)
    if plan.kind == "bubblewrap" and done.returncode == 1 and text.startswith("bwrap: "):
        return failure(f"the sandbox could not be set up: {text.strip()}", "SANDBOX")
    notes = [ending(done, limit), *remarks(done, text, plan, whose)]
    notes += [f"{path} is protected here, so what the command did to it was undone" for path in undone]
    body = text if text.endswith("\n") or not text else text + "\n"
    failed = done.timed_out or done.signal is not None or done.returncode is None
    code = "TIMEOUT" if done.timed_out else "SIGNAL" if failed else None
    return text_output(
        body + "\n".join(f"[{note}]" for note in notes),
        is_error=failed,
        error=code,
        summary=f"{brief(done)}, {age(done.duration_s * 1000)}",
    )


def shown(done: Completed) -> str:
    """Head and tail as text, cut at code points, with a line for what is left out."""
    if done.total <= len(done.output):
        return decoded(done.output)
    head, tail = whole_end(done.head), whole_start(done.tail)
    left_out = done.total - len(head) - len(tail)
    where = f"; {'its beginning' if done.spill_error else 'all of it'}: {done.spill}" if done.spill else ""
    return f"{decoded(head)}\n[... {left_out} bytes left out{where} ...]\n{decoded(tail)}"


def ending(done: Completed, limit: float) -> str:
    if done.timed_out:
        return f"time limit: stopped after {duration(limit)}"
    if done.signal is not None:
        return f"killed by {signal_name(done.signal)} after {duration(done.duration_s)}"
    return f"exit {done.returncode}, {duration(done.duration_s)}"


def brief(done: Completed) -> str:
    if done.timed_out:
        return "time limit"
    return f"exit {done.returncode}" if done.returncode is not None else f"signal {done.signal}"


def remarks(done: Completed, text: str, plan: Plan, whose: str) -> list[str]:
    """What else the model should know."""
    notes = []
    if "\ufffd" in text:
        notes.append("bytes that are not UTF-8 text are shown as \ufffd")
    if done.spill_error:
        held = f"{done.spill} holds the first {done.spilled} bytes; the rest"
        notes.append(f"{held if done.spill else 'what is left out'} was not kept: {done.spill_error}")
    if done.left and not done.timed_out:
        words = "process was" if done.left == 1 else "processes were"
        notes.append(f"{done.left} background {words} ended with the command")
    if done.returncode != 0:
        notes += forbidden(text, plan, whose)
    if done.survivors:
        notes.append(survivors(done.survivors).strip())
    return notes


NETWORK_WORDS = (
    "could not resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "network is unreachable",
    "no address associated with hostname",
    "failed to establish a new connection",
    "getaddrinfo",
    "eai_again",
    "enotfound",
    "unable to resolve",
    "temporary failure resolving",
    "nodename nor servname",
    "failed to lookup address",
    "dial tcp",
)
# As words: FileNotFoundError, of a socket in a directory, has nothing to do with ENOTFOUND.
NETWORK = re.compile(rf"(?<![a-z0-9_])(?:{'|'.join(NETWORK_WORDS)})(?![a-z0-9_])")
# What clients of docker, of the bus, of an agent say, and databases' (which are there with a network).
SERVICE = re.compile(r"(?:connect|dial|socket)[^\n]*/run/|connect to (?:the |[a-z]+ )?bus\b")
SERVICE_WITH_NET = re.compile(r"/run/(?:postgresql|mysqld)/|connect[a-z]* to (?:your authentication )?agent")


def forbidden(text: str, plan: Plan, whose: str) -> list[str]:
    """What of a failed command's output looks like the sandbox's doing, and what a person can do."""
    lower = text.lower()
    notes = []
    if not plan.net and NETWORK.search(lower):
        notes.append(f"network is off here: dshctl set net=on{whose}")
    elif not plan.net and SERVICE_WITH_NET.search(lower):
        notes.append(f"this is there with a network only: dshctl set net=on{whose}")
    elif plan.kind == "bubblewrap" and SERVICE.search(lower):
        notes.append(f"services outside can't be reached from here: dshctl set mode=full{whose}")
    if plan.places is not None and "read-only file system" in lower:
        notes.append(where_to_write(plan.places, lower, whose))
    elif plan.kind == "landlock" and "permission denied" in lower:
        notes.append(f"only {plan.places and plan.places.dir} and $TMPDIR can be written here")
    elif plan.places is not None and ".git/config" in lower and "resource busy" in lower:
        notes.append(f"git's settings and hooks can't be changed here: dshctl set mode=full{whose}")
    return notes


def where_to_write(places: sandbox.Places, lower: str, whose: str) -> str:
    guarded = places.guarded.protected if places.guarded is not None else ()
    if any(str(path).lower() in lower or path.name.lower() in lower for path in guarded):
        return "git's settings and hooks, keys and start-up files can't be changed here"
    change = f"dshctl set mode=MODE{whose}"
    return f"in mode workspace {places.dir} and /tmp can be written, in read-only /tmp: {change}"


def survivors(pids: list[int]) -> str:
    if not pids:
        return ""
    return f" These processes could not be ended: {', '.join(map(str, pids))}."


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def duration(seconds: float) -> str:
    """``0.2 s``, ``38 s``, ``2 min``, ``4 min 10 s``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    words = [f"{minutes} min"] if minutes else []
    return " ".join(words + ([f"{rest} s"] if rest else []))
