"""What the driver needs of the session that owns it, and of the daemon's services."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs

from dshd import memory
from dshd.driver.places import Places
from dshd.errors import Internal
from dshd.hooks.attention import Attention
from dshd.hooks.commands import NoHooks
from dshd.prompt.context import GitInfo
from dshd.prompt.git import git_info
from dshd.prompt.instructions import find_instructions, find_persona
from dshd.session.deciding.scratch import Scratch
from dshd.session.disk.days import Days
from dshd.session.fold.state import State
from dshd.tools.grants import Grant
from dshd.tools.mcp.servers import NoServers
from dshd.tools.threads import reading

T = TypeVar("T")

ROOM_POLL_S = 1.0  # between two looks at a full disk


class Owner(Protocol):
    """The session's owner: keeper of its state and its log."""

    @property
    def state(self) -> State:
        """The durable state; replaced as a whole by each batch."""
        ...

    @property
    def usable(self) -> bool:
        """Whether the log can be written (neither damaged nor faulted)."""
        ...

    @property
    def agents(self) -> Any:
        """Its subagents (`tools.agents.Kin`)."""
        ...

    @property
    def jobs(self) -> Any:
        """Where commands go on in the background (`tools.jobs.House`)."""
        ...

    def rested(self) -> None:
        """The driver has stopped for now; whoever waits for that may look."""
        ...

    def give_up(self, problem: Exception) -> None:
        """The open turn's end can't be written, in no way: let the session be changed no more."""
        ...

    async def next_change(self) -> None:
        """Wait until the next batch is durable. Cancellation: at any time."""
        ...

    async def remember(self) -> None:
        """Have the text of the surface in memory, for the history. Raises `DshError`."""
        ...

    def post(self, decide: Callable[[Scratch], object]) -> object:
        """Queue a proposal and go on; used for what nobody waits for."""
        ...

    async def record(self, decide: Callable[[Scratch], T]) -> T:
        """Queue a proposal and wait until it is decided and, if it emitted, durable.

        *Cancellation*: shielded; the caller's scope is looked at afterwards by whoever awaits
        next. Raises `DshError`: `NoSpace`, `Faulted`, or what ``decide`` refused with.
        """
        ...


class Numbers(Protocol):
    """Ids that count up in the state directory (`session.numbers`)."""

    async def take(self, kind: str, count: int, session: str) -> list[str]:
        """The next ``count`` ids of a kind, ``["a3", "a4"]``. Durability: they are taken for ever."""
        ...


class Untied:
    """For sessions that have no parents (`registry.kin.Ties`)."""

    def stops(self, state: State) -> Any:
        return None

    def bounds(self, state: State, mode: str, net: bool) -> tuple[str, bool]:
        return mode, net


class Unnumbered:
    """For who has no state directory: nothing is asked there."""

    async def take(self, kind: str, count: int, session: str) -> list[str]:
        raise Internal(f"no ids of kind {kind} can be taken here")


class Outside(Protocol):
    """What a prompt needs of the world around: asked once a turn, never in the middle of one."""

    async def instructions(self, directory: Path) -> list[tuple[str, str]]:
        """(label, text) of each AGENTS.md that counts there, broadest first."""
        ...

    async def notes(self, directory: Path) -> Notes:
        """What the user has written down for sessions there."""
        ...

    async def git(self, directory: Path) -> GitInfo | None: ...


@attrs.frozen(slots=True)
class Notes:
    """``persona``: how the agent is to be (``CONFIG_DIR/PERSONA.md``); ``memory``: what it is to remember
    (see `dshd.memory`)."""

    persona: str = ""
    memory: str = ""


class RealOutside:
    """Reads files, in threads."""

    def __init__(self, config_dir: Path, state: Path) -> None:
        self._config_dir = config_dir
        self._state = state

    async def notes(self, directory: Path) -> Notes:
        return await reading(self._notes, directory)

    def _notes(self, directory: Path) -> Notes:
        return Notes(find_persona(self._config_dir), memory.told(str(self._state), str(directory)))

    async def instructions(self, directory: Path) -> list[tuple[str, str]]:
        return await reading(find_instructions, directory, self._config_dir)

    async def git(self, directory: Path) -> GitInfo | None:
        return await reading(git_info, directory)


@attrs.frozen(kw_only=True)
class Services:
    """The daemon's, shared by all drivers. ``now`` gives Unix ms; ``days``: what all sessions spent;
    ``hidden``: what no tool may see;
    ``attention``: to be called with what needs a person; ``hooks``: the configured ones, for each event;
    ``servers``: those of tools (`tools.mcp.servers`);
    ``allowed``: what a person has allowed in every session; ``ties``: what subagents share with their
    parents."""

    models: Any
    tools: Any
    spawner: Any
    plugins: Sequence[Any]
    now: Callable[[], int]
    config: Callable[[], Any]
    hidden: Callable[[], tuple[Path, ...]]
    protected: tuple[Path, ...]
    readable: tuple[Path, ...]
    reserve: Callable[[], bool]
    rng: random.Random
    home: Path | None
    outside: Outside
    tool_rules: Sequence[Any] = ()
    numbers: Numbers = attrs.field(factory=Unnumbered)
    allowed: Callable[[], tuple[Grant, ...]] = lambda: ()
    days: Days = attrs.field(factory=Days)
    places: Places = attrs.field(
        default=attrs.Factory(lambda all: Places(lambda: all.config().driver.max_running), takes_self=True)
    )
    attention: Attention = attrs.field(factory=Attention)
    hooks: Any = attrs.field(factory=NoHooks)
    ties: Any = attrs.field(factory=lambda: Untied())
    servers: Any = attrs.field(factory=NoServers)
    environment: Callable[[State], Mapping[str, str]] = lambda state: dict(state.settings.get("env") or {})

    @property
    def hooked(self) -> bool:
        """Whether there are hooks that are told of a turn's end."""
        return bool(self.hooks.of("turn_end"))
