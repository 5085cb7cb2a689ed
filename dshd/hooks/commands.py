"""The configured hooks of an event, as they are when it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dshd.config import Hook
from dshd.hooks.gates import GATES, Gate, Scene
from dshd.hooks.payload import TOOLS
from dshd.hooks.runner import Place, Run, matches, run_hook
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
        self._spawner = spawner
        self.log = log
        self._configured, self._daemon, self._keys = configured, daemon, keys

    async def run(self, hook: Hook, place: Place, found: Mapping[str, Any]) -> Run:
        return await run_hook(self._spawner, hook, place, found)

    def of(self, event: str) -> list[Hook]:
        return [hook for hook in self._configured() if hook.event == event]

    def gates(self, event: str, scene: Callable[[], Scene], tool: str | None = None) -> list[Gate]:
        """Those of an event, and of a tool if it is about one; each may stand in that event's chain."""
        found = self.of(event)
        if tool is not None:
            found = [hook for hook in found if matches(hook, tool, TOOLS.get(tool, tool))]
        if not found:
            return []
        here = scene()
        return [GATES[event](hook, here) for hook in found]

    def place(self, dir: str, session: Mapping[str, str] | None = None) -> Place:
        return Place(dir=dir, session=session or {}, daemon=self._daemon(), keys=self._keys() | PROVIDER_KEYS)


class NoHooks:
    """For who has none."""

    def of(self, event: str) -> list[Hook]:
        return []

    def gates(self, event: str, scene: Callable[[], Scene], tool: str | None = None) -> list[Gate]:
        return []
