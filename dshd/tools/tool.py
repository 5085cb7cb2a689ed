"""What a tool is: a name, a schema, and a body that turns arguments into an output.

The room's vocabulary, sans-IO. A *call* is what the model asked for (its arguments still raw text, as
the log keeps them); a *context* is everything a body may know about the session that called it; an
*output* is what goes back. A body answers what is the model's own doing (no such file, no match) with
an error output or by raising `ToolFailure`: the turn goes on, and the text must say what to do
differently. Any other exception is contained by the registry and becomes an error output too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import attrs

from dshd.tools.grants import Grant

Args = dict[str, Any]
Block = dict[str, Any]  # {"type": "text", "text": str} and what else a model may be shown


@attrs.frozen(slots=True)
class Call:
    """One call of an assistant message. ``id`` is ours and unique in the log; ``arguments`` is raw text."""

    id: str
    name: str
    arguments: str


@attrs.frozen(slots=True)
class Rule:
    """One ``[[rules]]`` table: all given globs must match. ``action``: allow, ask or deny."""

    action: str
    tool: str | None = None
    command: str | None = None
    path: str | None = None
    host: str | None = None


async def at_once() -> None:
    """Nothing was given up that has to be had again."""


@attrs.frozen(slots=True, kw_only=True)
class ToolContext:
    """What a body may know of the session it works for.

    ``dir`` is absolute. ``mode`` is ``read-only``, ``workspace`` or ``full``. ``hidden`` are places no
    tool may read (state, socket, keys), ``readable`` exceptions inside them (spill files, attachments),
    ``protected`` dshd's own directories, never written in ``workspace``. ``bash_max`` is in seconds.
    ``whose`` stands behind a `dshctl set` that is for its session; ``grants`` what a person has allowed.
    ``keep`` takes the output of a call that is being cancelled, if it has something to say beyond that.
    ``call`` is the call's id, ``jobs`` where commands go on in the background (`jobs.House`), ``agents`` its
    subagents (`agents.Kin`); through ``leaving`` a command that is cancelled may go there
    (`jobs.Leaving`). Between ``rest``, which takes what it does in a line, and ``back`` a call only waits
    for others.
    """

    session: str
    name: str
    dir: Path
    spill_dir: Path
    env: Mapping[str, str] = attrs.field(factory=dict)
    mode: str = "workspace"
    net: bool = False
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    rules: tuple[Rule, ...] = ()
    grants: tuple[Grant, ...] = ()
    spawner: Any = None
    todo: tuple[Mapping[str, Any], ...] = ()
    ask: str = "deny"
    bash_max: float = 600.0
    sandbox: str = "auto"
    home: Path | None = None
    whose: str = ""
    keep: Callable[[ToolOutput], None] | None = None
    call: str = ""
    jobs: Any = None
    agents: Any = None
    leaving: Any = None
    rest: Callable[[str], None] = lambda doing: None
    back: Callable[[], Awaitable[None]] = at_once


@attrs.frozen(slots=True)
class ToolOutput:
    """What a call gave. ``events`` are ``(type, data)`` for the log; ``inject`` follows the whole batch.

    ``error`` is a code (`tool/result`'s ``error.code``), ``summary`` a few words for the chat view
    (``exit 2, 38 s``, ``+3 -1``).
    """

    content: list[Block]
    is_error: bool = False
    error: str | None = None
    events: tuple[tuple[str, dict[str, Any]], ...] = ()
    inject: tuple[str, ...] = ()
    summary: str | None = None

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


class ToolFailure(Exception):
    """A body's own "no": ``str()`` is the sentence for the model, ``code`` the result's error code."""

    code: ClassVar[str] = "TOOL_FAILED"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.error_code = code or self.code


@runtime_checkable
class Tool(Protocol):
    """A tool as the registry sees it.

    Attributes are constant. ``read_only`` calls run side by side, others are barriers. ``describe``
    gives one short line for status (``bash: make test``) and never raises on valid arguments.
    Cancellation: ``run`` is cancelled by abort, time limits and stop; it leaves nothing behind.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> dict[str, Any]: ...
    @property
    def read_only(self) -> bool: ...

    def describe(self, args: Args) -> str: ...
    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput: ...


def clean(text: str) -> str:
    """Lone surrogates become U+FFFD: neither the log nor a provider takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def text_output(
    text: str,
    *,
    is_error: bool = False,
    error: str | None = None,
    events: tuple[tuple[str, dict[str, Any]], ...] = (),
    inject: tuple[str, ...] = (),
    summary: str | None = None,
) -> ToolOutput:
    """An output of one text block."""
    return ToolOutput([{"type": "text", "text": clean(text)}], is_error, error, events, inject, summary)


def failure(text: str, code: str = "TOOL_FAILED") -> ToolOutput:
    """An error output: the sentence, and the code for ``tool/result.error``."""
    return text_output(text, is_error=True, error=code)
