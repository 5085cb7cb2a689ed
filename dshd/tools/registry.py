"""The tools of a session, by name, and one call's way through them.

A call goes: known name -> raw text -> arguments -> schema -> policy -> body -> bounded output. Wherever it
stops, it stops with an output that says what is wrong and what is expected, never with an exception:
one bad call costs the model one result, not the turn.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping

import attrs

from dshd.errors import DshError, one_line
from dshd.model.request import ToolSpec
from dshd.tools import arguments
from dshd.tools.containment import resolve
from dshd.tools.grants import Grant, Subject, canonical, grant_of
from dshd.tools.output import bounded
from dshd.tools.policy import decide
from dshd.tools.threads import reading
from dshd.tools.tool import Args, Call, Tool, ToolContext, ToolFailure, ToolOutput, failure
from dshd.tools.urls import host_of

LONGEST_WHAT = 300  # characters
SEARCHES = frozenset({"glob", "grep"})  # without a path they mean the session's directory

log = logging.getLogger(__name__)


@attrs.frozen(slots=True)
class Question:
    """May this run? ``grant``: what an answer allows; ``what``: one short line; ``reason``: why it is
    asked."""

    grant: Grant
    what: str
    reason: str


class Registry:
    """Tools by name. The order of `specs` depends on nothing but the names, so prompts stay stable."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._checkers: dict[str, arguments.Checker] = {}
        self._specs: tuple[ToolSpec, ...] = ()
        self._off: dict[str, str] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Register; a second tool of the same name is a mistake of ours and raises ``ValueError``."""
        if tool.name in self._tools:
            raise ValueError(f"two tools are named {tool.name!r}")
        self._take(tool)
        self._specify()

    def _take(self, tool: Tool, *, foreign: bool = False) -> None:
        self._tools[tool.name] = tool
        self._checkers[tool.name] = arguments.Checker(tool.schema, foreign=foreign)

    def with_more(self, tools: Iterable[Tool]) -> Registry:
        """These and more, which are somebody else's; of two of one name the first."""
        more = Registry()
        more._tools, more._checkers, more._off = dict(self._tools), dict(self._checkers), dict(self._off)
        for tool in tools:
            if tool.name not in more._tools:
                more._take(tool, foreign=True)
        more._specify()
        return more

    def turn(self, name: str, off: str | None) -> None:
        """Offer the tool, or don't, and say in a sentence why it is ``off`` to who calls it all the same."""
        if off == self._off.get(name):
            return
        if off is None:
            del self._off[name]
        else:
            self._off[name] = off
        self._specify()

    def _specify(self) -> None:
        offered = (self._tools[name] for name in self.names)
        self._specs = tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in offered)

    @property
    def names(self) -> tuple[str, ...]:
        """Of those that are offered."""
        return tuple(sorted(self._tools.keys() - self._off.keys()))

    @property
    def off(self) -> Mapping[str, str]:
        """{name: why} of those that aren't."""
        return self._off

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told of the tools: sorted by name, nothing but name, description, schema.
        The same object as long as no tool comes or goes."""
        return self._specs

    def read_only(self, call: Call) -> bool:
        """Whether the call may run beside others; what is unknown may not."""
        tool = self._tools.get(call.name)
        return tool is not None and tool.read_only is True

    def describe(self, call: Call) -> str:
        """One short line for status: ``bash: make test``; the bare name when the call makes no sense.

        Quick: the arguments are read but not checked against the schema.
        """
        try:
            return " ".join(self._tools[call.name].describe(arguments.parse(call.arguments)).split())
        except Exception:
            return call.name

    def parse(self, name: str, raw: str) -> Args | ToolOutput:
        """Checked arguments, or the error output that takes the result's place."""
        if name in self._off:
            return failure(f"{name} is off here: {self._off[name]}", "DENIED")
        if name not in self._tools:
            return failure(self._unknown(name), "UNKNOWN_TOOL")
        try:
            args = arguments.parse(raw)
        except arguments.BadArguments as error:
            return self._bad(name, [str(error)])
        problems = self._checkers[name].problems(args)
        return self._bad(name, problems) if problems else args

    def _bad(self, name: str, problems: list[str]) -> ToolOutput:
        wanted = arguments.expected(self._tools[name].schema)
        return failure(f"{name} was not run: {'; '.join(problems)}.\n{name} expects {wanted}", "INVALID_ARGS")

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name, self.names, 1)
        guess = f" Did you mean {close[0]}?" if close else ""
        return f'there is no tool "{name[:80]}".{guess} The tools are: {", ".join(self.names) or "none"}.'

    async def execute(self, call: Call, ctx: ToolContext) -> ToolOutput:
        """One call from raw text to bounded output. Raises nothing but Cancelled.

        Cancellation: the body is cancelled; no output is made up for it here.
        """
        if not arguments.prepared():
            await reading(arguments.prepare)
        args = self.parse(call.name, call.arguments)
        if isinstance(args, ToolOutput):
            return args
        return bounded(await self._allowed(self._tools[call.name], args, ctx))

    async def asks(self, call: Call, ctx: ToolContext) -> Question | None:
        """What a person must be asked before this call may run; None if nothing.

        It is judged once more when it runs. What makes no sense is not asked about.
        """
        if not any(rule.action == "ask" for rule in ctx.rules):
            return None
        if not arguments.prepared():
            await reading(arguments.prepare)
        args = self.parse(call.name, call.arguments)
        if isinstance(args, ToolOutput):
            return None
        try:
            subject = await _subject(call.name, args, ctx)
            verdict = decide(subject, ctx)
        except (ToolFailure, DshError):
            return None  # it will say so
        if verdict.action != "ask":
            return None
        return Question(grant_of(subject), self._what(call, subject), verdict.reason)

    def _what(self, call: Call, subject: Subject) -> str:
        """``rm -rf build/``, ``write src/x.py``: in one line, for lists."""
        if subject.command is not None:
            return " ".join(subject.command.split())[:LONGEST_WHAT]
        return self.describe(call).replace(": ", " ", 1)[:LONGEST_WHAT]

    async def _allowed(self, tool: Tool, args: Args, ctx: ToolContext) -> ToolOutput:
        try:
            verdict = decide(await _subject(tool.name, args, ctx), ctx)
            if verdict.action == "allow":
                return await tool.run(args, ctx)
            return failure(verdict.sentence, "DENIED")
        except ToolFailure as error:
            return failure(str(error), error.error_code)
        except DshError as error:
            return failure(_refused(error), error.code)
        except BaseExceptionGroup as group:
            return _contained_group(tool.name, group)
        except Exception as error:
            return contained(tool.name, error)


def _refused(error: DshError) -> str:
    """What happened; the command beside it is for a person, and the model can pass it on."""
    said = f"{error.message.rstrip('.')}."
    return f"{said} A person may type: {error.hint}" if error.hint else said


async def _subject(tool: str, args: Args, ctx: ToolContext) -> Subject:
    if is_about_a_place(tool, args):
        return await reading(subject_of, tool, args, ctx)
    return subject_of(tool, args, ctx)


def is_about_a_place(tool: str, args: Args) -> bool:
    """Whether a path has to be resolved to know what a call is about."""
    return isinstance(args.get("path"), str) or tool in SEARCHES


def subject_of(tool: str, args: Args, ctx: ToolContext) -> Subject:
    """What a call is about, from the arguments that have a meaning everywhere. Blocks if it
    `is_about_a_place`; if not, ``dir`` is as it is called, for nothing is compared with it."""
    path, command, url = (args.get(key) for key in ("path", "command", "url"))
    subject = Subject(
        tool=tool,
        dir=ctx.dir,
        home=ctx.home,
        command=command if isinstance(command, str) else None,
        host=host_of(url) if isinstance(url, str) else None,
    )
    if not is_about_a_place(tool, args):
        known = subject.command is not None or subject.host is not None
        return subject if known else attrs.evolve(subject, arguments=canonical(args))
    target = resolve(path or ".", ctx)
    return attrs.evolve(subject, dir=target.dir, path=target.path, named=target.named)


def contained(name: str, error: BaseException) -> ToolOutput:
    """The output of a body that raised: the turn goes on, the daemon's log has the trace."""
    log.warning("tool %s failed", name, exc_info=error)
    return failure(f"{name} failed: {type(error).__name__}: {one_line(error)[:500]}", "TOOL_FAILED")


def _contained_group(name: str, group: BaseExceptionGroup[BaseException]) -> ToolOutput:
    # A cancelled body may bring other errors along with Cancelled: the cancellation must go on alone,
    # or the scope that caught it would be left with the rest and end the turn with it.
    # (The predicate is asked about the groups themselves as well.)
    inner, rest = group.split(lambda error: not isinstance(error, Exception | BaseExceptionGroup))
    if rest is not None:
        output = contained(name, rest)
    if inner is not None:
        raise inner
    return output
