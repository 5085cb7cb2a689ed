"""What holds for the whole process: the settings, as the config and a reload leave them, and what sessions
and requests are given of them."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd import __version__
from dshd import config as configuration
from dshd.config import Config
from dshd.driver.port import RealOutside, Services
from dshd.errors import DshError, NotConfigured
from dshd.hooks import programs
from dshd.hooks.attention import Attention, Notify
from dshd.hooks.commands import Hooks
from dshd.log.store import Store
from dshd.model.adapter import PreparedCall
from dshd.model.credentials import loose_files
from dshd.model.errors import ModelError
from dshd.model.models import Models
from dshd.model.routes import Choice
from dshd.paths import Places, looks_secret
from dshd.plugins.loader import load_plugins
from dshd.spawn import SpawnerHandle
from dshd.spawn.client import Spawner
from dshd.systemd import Manager, look_what_ends_it
from dshd.tools.bash import Bash
from dshd.tools.builtin import FETCH_OFF, builtin_tools
from dshd.tools.mcp.servers import NoServers, Servers
from dshd.tools.sandbox import Found
from dshd.tools.tool import Rule
from dshd.wire import PROTOCOL

log = logging.getLogger(__name__)
Json = dict[str, Any]


@attrs.frozen(slots=True, kw_only=True)
class Setup:
    """What ``__main__`` found before the event loop. ``environ`` is what the daemon was started with."""

    config: Config
    places: Places
    environ: dict[str, str]
    manager: Manager
    handle: SpawnerHandle
    started_by: str | None = None


class Live(Sequence[Any]):
    """A list that a reload replaces as a whole, for those who were given it once."""

    def __init__(self) -> None:
        self.items: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]


class PermittedModels(Models):
    """Models through the adapters that the policy allows; ``allowed`` None: through any."""

    allowed: list[str] | None = None

    def prepare_call(self, ref: str, *, patience: float | None = None) -> PreparedCall:
        if (why := self._why_not(ref)) is not None:
            raise ModelError("NO_ADAPTER", why)
        return super().prepare_call(ref, patience=patience)

    async def choose(self, explicit: str | None, *, client_is_terminal: bool) -> Choice:
        choice = await super().choose(explicit, client_is_terminal=client_is_terminal)
        if (why := self._why_not(choice.ref)) is not None:
            raise NotConfigured(f"{why}.", hint="dshctl models")
        return choice

    def _why_not(self, ref: str) -> str | None:
        adapter = self.adapter_name(ref)
        if self.allowed is None or adapter is None or adapter in self.allowed:
            return None
        return f'the policy does not allow route "{ref}" (adapter {adapter})'


class Daemon:
    """The process, as requests see it (`control.calls.Process`), and its settings."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.config = setup.config
        self.places = setup.places
        self.started_at = round(time.time() * 1000)
        self.boot = os.urandom(8).hex()
        self.environ: dict[str, str] = {}
        self.plugins = Live()
        self.rules = Live()
        self.warnings: list[str] = []
        self.stop_asked = trio.Event()
        self.on_reload: Callable[[], None] = lambda: None
        self.models = self._models()
        self.tools = builtin_tools(frozenset(setup.config.key_variables()))
        self._apply(setup.config)

    # ---------------------------------------------------------------- settings

    def _models(self) -> PermittedModels:
        config = self._setup.config
        return PermittedModels(
            config.routes,
            default=config.model.default,
            env=self.environ,
            config_dir=Path(self.places.config_dir),
            idle_timeout=config.model.idle_timeout,
            patience=config.model.patience,
        )

    def _apply(self, config: Config) -> None:
        """Take a config, whole or not at all."""
        environ = configuration.environment(config, self.places, self._setup.environ)
        made = tuple(self.plugins)
        plugins = tuple(load_plugins(config.plugins, self.config.plugins if made else None, made))
        model = config.model
        self.models.configure(
            config.routes, default=model.default, idle_timeout=model.idle_timeout, patience=model.patience
        )
        self.models.allowed = config.policy.adapters
        self.environ.clear()
        self.environ.update(environ)
        self.plugins.items = plugins
        self.rules.items = tuple(Rule(**attrs.asdict(rule)) for rule in config.rules)
        self.tools.turn("fetch", None if config.tools.fetch else FETCH_OFF)
        self.config = config
        lacking = programs.missing(config, environ.get("PATH", ""))
        self.warnings = [*config.warnings(), *lacking, *loose_files(config.routes)]
        for warning in self.warnings:
            log.warning("config: %s", warning)

    async def reload(self) -> Json:
        """Read the config again. Raises `NotConfigured`; then everything is as it was."""
        self._setup.manager.reloading()
        try:
            found = await trio.to_thread.run_sync(configuration.load, self.places, abandon_on_cancel=True)
            self._apply(found)
        finally:
            self._setup.manager.ready()
        log.info("config read again")
        self.on_reload()
        return {
            "type": "reloaded",
            "exit": 0,
            "config": self.places.config,
            "warnings": self.warnings,
        }

    async def reload_quietly(self) -> None:
        try:
            await self.reload()
        except DshError as error:
            log.error("the config was not taken, the old one stays: %s", error)

    # ---------------------------------------------------------------- what requests ask

    def hello(self) -> Json:
        return {
            "type": "hello",
            "protocol": PROTOCOL,
            "version": __version__,
            "pid": os.getpid(),
            "boot": self.boot,
            "started_at": self.started_at,
            "state_dir": self.places.state,
        }

    def status(self) -> Json:
        manager = self._setup.manager
        return {
            **self.hello(),
            "socket": self.places.socket,
            "config": self.places.config,
            "supervisor": "systemd" if manager.there else self._setup.started_by,
            "stopping": self.stop_asked.is_set(),
            "today": {"tokens": None, "cost": None, "currency": None, "limit": None},
        }

    def stop(self) -> None:
        self.stop_asked.set()

    def examined(self, sandbox: Found, sessions: Sequence[Json], spool: Json) -> list[Json]:
        """What is well and what isn't. Blocks."""
        from dshd.doctor import checks, looking  # rarely wanted
        from dshd.doctor.facts import Running

        manager = self._setup.manager
        running = Running(
            version=__version__,
            pid=os.getpid(),
            supervisor="systemd" if manager.there else self._setup.started_by,
            ends=look_what_ends_it(manager),
            behind=False,
        )
        facts = looking.gather(
            self.places,
            home=self._setup.environ.get("HOME", ""),
            environ=self.environ,
            running=running,
            reading=lambda: (configuration.load(self.places), self.models),
            sandbox=sandbox,
            sessions=sessions,
            spool=spool,
        )
        if facts.config is not None and facts.config != self.config:
            facts = attrs.evolve(facts, config=self.config, running=attrs.evolve(running, behind=True))
        return [check.to_json() for check in checks.examine(facts)]

    # ---------------------------------------------------------------- what sessions need

    def services(
        self, spawner: Spawner, store: Store, start: Callable[..., None] | None = None
    ) -> Services:
        """``start`` runs a task of a session's."""
        home = self._setup.environ.get("HOME")
        hooks = self._hooks(spawner, store)
        return Services(
            models=self.models,
            tools=self.tools,
            spawner=spawner,
            plugins=self.plugins,
            now=lambda: time.time_ns() // 1_000_000,
            config=lambda: self.config,
            hidden=self._secret,
            protected=(Path(self.places.state), Path(self.places.config_dir)),
            readable=(store.sessions,),
            reserve=lambda: _give_reserve(store),
            rng=random.Random(),  # noqa: S311 - for the jitter of retries
            home=Path(home) if home else None,
            outside=RealOutside(Path(self.places.config_dir), Path(self.places.state)),
            tool_rules=self.rules,
            hooks=hooks,
            servers=NoServers() if start is None else self._servers(spawner, start),
            attention=Attention(Notify(lambda: self.config, hooks)),
        )

    def _secret(self) -> tuple[Path, ...]:
        """What no tool may see, as of now."""
        return (*map(Path, self.places.secret()), *self.models.key_files())

    def _servers(self, spawner: Spawner, start: Callable[..., None]) -> Servers:
        bash = self.tools.get("bash")
        assert isinstance(bash, Bash)
        return Servers(lambda: self.config.mcp, spawner, bash, start)

    def _hooks(self, spawner: Spawner, store: Store) -> Hooks:
        return Hooks(
            spawner,
            lambda: self.config.hooks,
            daemon=self._for_hooks,
            keys=lambda: frozenset(self.config.key_variables()),
            log=lambda id: str(store.log_path(id)),
        )

    def _for_hooks(self) -> Json:
        """The daemon's environment, without what may be a key."""
        return {name: value for name, value in self.environ.items() if not looks_secret(name)}


def _give_reserve(store: Store) -> bool:
    held = store.reserve.held
    store.reserve.release()
    return held
