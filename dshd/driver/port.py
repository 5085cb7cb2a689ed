"""What the driver needs of the session that owns it, and of the daemon's services."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs

from dshd.session.scratch import Scratch
from dshd.session.state import State

T = TypeVar("T")


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

    def rested(self) -> None:
        """The driver has stopped for now; whoever waits for that may look."""
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


@attrs.frozen(kw_only=True)
class Services:
    """The daemon's, shared by all drivers. ``now`` gives Unix ms."""

    models: Any
    tools: Any
    spawner: Any
    plugins: tuple[Any, ...]
    now: Callable[[], int]
    config: Callable[[], Any]
    hidden: tuple[Path, ...]
    protected: tuple[Path, ...]
    readable: tuple[Path, ...]
    reserve: Callable[[], bool]
    rng: random.Random
    home: Path | None
    config_dir: Path
    tool_rules: tuple[Any, ...] = ()
    environment: Callable[[State], Mapping[str, str]] = lambda state: dict(state.settings.get("env") or {})
