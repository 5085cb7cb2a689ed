"""The configured hooks of an event, as they are when it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dshd.config import Hook
from dshd.hooks.runner import Place
from dshd.spawn.client import Spawner
from dshd.tools.bash import PROVIDER_KEYS


class Hooks:
    """``configured``: all of them, in the config's order; a reload gives others. ``daemon``: the variables
    that every hook gets; ``keys``: names of those that none does; ``log``: the path of a session's log."""

    def __init__(
        self,
        spawner: Spawner,
        configured: Callable[[], Sequence[Hook]],
        *,
        daemon: Callable[[], Mapping[str, str]],
        keys: Callable[[], frozenset[str]],
        log: Callable[[str], str],
    ) -> None:
        self.spawner = spawner
        self.log = log
        self._configured, self._daemon, self._keys = configured, daemon, keys

    def of(self, event: str) -> list[Hook]:
        return [hook for hook in self._configured() if hook.event == event]

    def place(self, dir: str, session: Mapping[str, str] | None = None) -> Place:
        return Place(dir=dir, session=session or {}, daemon=self._daemon(), keys=self._keys() | PROVIDER_KEYS)


class NoHooks:
    """For who has none."""

    def of(self, event: str) -> list[Hook]:
        return []
