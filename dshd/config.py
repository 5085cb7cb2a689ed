"""The configuration: TOML text into classes that can't be wrong, errors that say where.

Two files, the user's over the system's. Tables are merged key by key, lists of tables (``[[rules]]``,
``[[hooks]]``) are appended, the system's first, anything else the user's replaces. ``[policy]`` may stand
only in the system's file: it is what users can't go beyond.

``model`` at the top is the default route. TOML lets a name be a value or a table, not both, so who also
wants ``[model]`` writes the route there, as ``default``.

Everything is a pure function of texts but `load`, which reads the files. Durations are seconds (float)
once read; 0 means none wherever a limit can be off.
"""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import attrs

from dshd.errors import Invalid, NotConfigured
from dshd.paths import Places, daemon_environment, parse_env_file
from dshd.strict import Path, Wrong, dotted, structure
from dshd.wire import MODES, Ask, Mode, did_you_mean, parse_duration

BUILT_IN_ROUTES: Final = ("deepseek", "anthropic", "openai", "ollama", "rehearsal")


def _duration(value: Any, path: Path) -> float:
    if type(value) in (int, float) and 0 <= value <= sys.float_info.max:
        return float(value)
    if not isinstance(value, str):
        raise Wrong(path, "expected a duration, like 90s or 1h30m")
    try:
        return parse_duration(value)
    except Invalid as error:
        raise Wrong(path, error.message) from None


def _not_negative(value: Any, path: Path) -> Any:
    if value < 0:
        raise Wrong(path, "must not be negative")
    return value


def _positive(value: Any, path: Path) -> Any:
    if value <= 0:
        raise Wrong(path, "must be more than 0")
    return value


def _not_empty(value: Any, path: Path) -> Any:
    if not value:
        raise Wrong(path, "must not be empty")
    return value


Duration = Annotated[Any, _duration]
Count = Annotated[int, _positive]
Limit = Annotated[int, _not_negative]
Money = Annotated[float, _not_negative]
Text = Annotated[str, _not_empty]
Command = Annotated[str | list[str], _not_empty]


@attrs.frozen(slots=True, kw_only=True)
class Price:
    """Money per million tokens."""

    input: Money
    output: Money
    cached: Money | None = None
    currency: str = "USD"


@attrs.frozen(slots=True, kw_only=True)
class Route:
    """One ``[routes.NAME]``. None is "not said": the built-in route of that name says it, if there is one."""

    adapter: Literal["openai", "anthropic", "rehearsal"] | None = None
    base_url: Text | None = None
    model: Text | None = None
    api_key_env: Text | None = None
    api_key_file: Text | None = None
    api_key_command: Command | None = None
    context_window: Count | None = None
    max_tokens: Count | None = None
    fallback: list[str] | None = None
    price: Price | None = None
    script: Text | None = None
    profile: dict[str, Any] | None = None

    def given(self) -> dict[str, Any]:
        """``{field: value}`` of what the table says."""
        return {field.name: value for field in attrs.fields(Route)
                if (value := getattr(self, field.name)) is not None}  # fmt: skip


@attrs.frozen(slots=True, kw_only=True)
class Daemon:
    path: Text | None = None
    idle_exit: Duration = 0.0
    shutdown_grace: Duration = 10.0


@attrs.frozen(slots=True, kw_only=True)
class Driver:
    max_running: Count = 8


@attrs.frozen(slots=True, kw_only=True)
class Inbox:
    max_pending: Count = 1000


@attrs.frozen(slots=True, kw_only=True)
class Model:
    """``default`` is the default route's name."""

    default: Text | None = None
    patience: Duration = 6 * 3600.0
    idle_timeout: Duration = 300.0


@attrs.frozen(slots=True, kw_only=True)
class Sessions:
    mode: Mode = "workspace"
    ask: Ask | None = None
    net: bool = False
    keep_run: Duration = 30 * 86400.0


@attrs.frozen(slots=True, kw_only=True)
class Budget:
    turn_steps: Limit = 200
    turn_time: Duration = 2 * 3600.0
    turn_tokens: Limit = 0
    turn_cost: Money = 0.0
    turn_errors: Limit = 10
    session_cost: Money = 0.0
    day_cost: Money = 0.0


@attrs.frozen(slots=True, kw_only=True)
class Tools:
    bash_max: Duration = 600.0
    sandbox: Literal["auto", "bwrap", "landlock", "none"] = "auto"
    fetch: bool = False


@attrs.frozen(slots=True, kw_only=True)
class Approval:
    expires: Duration = 24 * 3600.0


@attrs.frozen(slots=True, kw_only=True)
class Notify:
    command: Command | None = None


@attrs.frozen(slots=True, kw_only=True)
class Recovery:
    continue_interrupted: bool = False


@attrs.frozen(slots=True, kw_only=True)
class Rule:
    """All globs given must match; of the rules that match, the last wins."""

    action: Literal["allow", "ask", "deny"]
    tool: Text | None = None
    command: Text | None = None
    path: Text | None = None
    host: Text | None = None


@attrs.frozen(slots=True, kw_only=True)
class Hook:
    event: Literal[
        "session_start", "pre_step", "pre_tool", "post_tool", "turn_stopping", "turn_end", "attention"
    ]
    command: Command
    on_failure: Literal["ignore", "block"] = "ignore"
    timeout: Duration = 10.0


@attrs.frozen(slots=True, kw_only=True)
class Server:
    """One ``[mcp.NAME]``: a command to start, or a URL."""

    command: Command | None = None
    url: Text | None = None


@attrs.frozen(slots=True, kw_only=True)
class Policy:
    """What users can't go beyond. ``adapters`` None: any."""

    max_mode: Mode = "full"
    adapters: list[str] | None = None
    day_cost: Money = 0.0


@attrs.frozen(slots=True, kw_only=True)
class Config:
    """All of it. ``sources``: the files that were read; ``environment``: the lines of the env file."""

    model: Model = Model()
    routes: dict[str, Route] = attrs.field(factory=dict)
    daemon: Daemon = Daemon()
    driver: Driver = Driver()
    inbox: Inbox = Inbox()
    sessions: Sessions = Sessions()
    budget: Budget = Budget()
    tools: Tools = Tools()
    approval: Approval = Approval()
    notify: Notify = Notify()
    recovery: Recovery = Recovery()
    rules: list[Rule] = attrs.field(factory=list)
    hooks: list[Hook] = attrs.field(factory=list)
    plugins: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    mcp: dict[str, Server] = attrs.field(factory=dict)
    policy: Policy = Policy()

    @cached_property
    def currency(self) -> str:
        """Of the limits: what the routes' prices are in."""
        prices = (route.price for route in used_routes(self).values())
        return next((price.currency for price in prices if price is not None), "USD")

    def unpriced(self, ref: str) -> str | None:
        """Why a limit in money can't hold for a session with this model; None if it can."""
        name = ref.partition("/")[0]
        others = (other.partition("/")[0] for other in self.routes.get(name, Route()).fallback or ())
        return unpriced(self, (name, *others))

    def key_variables(self) -> tuple[str, ...]:
        """The variables that routes take their keys from."""
        return tuple(route.api_key_env for route in self.routes.values() if route.api_key_env)

    def ahead(self) -> list[str]:
        """Settings that are set and that this version reads, checks and does not carry out yet."""
        plain = Config()
        found = [
            ".".join(path)
            for path, harmless in _AHEAD.items()
            if _value(self, path) not in (_value(plain, path), *harmless)
        ]
        asks = any(rule.action == "ask" for rule in self.rules)
        return [*found, *(["rules.action = ask"] if asks else [])]

    def warnings(self) -> list[str]:
        """What is right and still not what its writer will see, a sentence each."""
        return [f"{name} is set, and this version does not carry it out yet" for name in self.ahead()]

    def within_policy(self, mode: Mode) -> Mode:
        """The mode, or the most that the policy allows."""
        return min(mode, self.policy.max_mode, key=MODES.index)


# {setting: values besides the default that are carried out}
_AHEAD: Final[dict[tuple[str, ...], tuple[Any, ...]]] = {
    ("driver", "max_running"): (),
    ("model", "patience"): (0.0,),
    ("sessions", "ask"): ("deny",),
    ("tools", "fetch"): (),
    ("approval",): (),
    ("notify",): (),
    ("hooks",): (),
    ("mcp",): (),
}


def _value(found: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        found = getattr(found, name)
    return found


# ---------------------------------------------------------------- texts into a Config


@attrs.frozen(slots=True)
class Source:
    """One file: its text, and the name that errors call it by."""

    name: str
    text: str


def parse(user: Source | None, system: Source | None = None) -> Config:
    """The config that these texts mean. Raises `NotConfigured`: ``config.toml:7: routes.x.y: what``."""
    tables = [(source, _toml(source)) for source in (system, user) if source is not None]
    for source, table in tables:  # each on its own first, so that errors name the right file
        _structured(source, table)
    if user is not None and "policy" in tables[-1][1]:
        raise _located(user, Wrong(("policy",), "only the system's file may hold it"))
    merged: dict[str, Any] = {}
    for _source, table in tables:
        merged = _merge(merged, table)
    last = user or system or Source("config.toml", "")
    config = _structured(last, merged)
    try:
        _check_whole(config)
    except Wrong as wrong:
        raise _located(next((s for s, t in tables[::-1] if _holds(t, wrong.path)), last), wrong) from None
    return config


def _toml(source: Source) -> dict[str, Any]:
    try:
        table = tomllib.loads(source.text)
    except (ValueError, RecursionError) as error:  # the latter two: a number, or brackets, without end
        what = _syntax_error(source, str(error))
        raise NotConfigured(what, hint="dshctl config check") from None
    model = table.get("model", {})
    if isinstance(model, str):
        table["model"] = {"default": model}
    elif not isinstance(model, dict):
        raise _located(source, Wrong(("model",), "expected the name of a route"))
    return table


def _syntax_error(source: Source, text: str) -> str:
    what, _, place = text.partition(" (at ")
    line = place.partition("line ")[2].partition(",")[0]
    if place.startswith("end of document"):
        line = str(source.text.rstrip().count("\n") + 1)
    if what == "Cannot overwrite a value":
        what = 'a name is a value or a table, not both (for both: [model] default = "ROUTE")'
    return f"{source.name}:{line}: {what}" if line.isdigit() else f"{source.name}: {text}"


def _structured(source: Source, table: dict[str, Any]) -> Config:
    try:
        return structure(table, Config)
    except Wrong as wrong:
        raise _located(source, wrong) from None


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = _merge(below, value)
        elif key in ("rules", "hooks") and isinstance(below, list):
            merged[key] = [*below, *value]
        else:
            merged[key] = value
    return merged


def _check_whole(config: Config) -> None:
    """What no field alone can know."""
    for name, route in config.routes.items():
        if name not in BUILT_IN_ROUTES and route.adapter is None:
            raise Wrong(("routes", name, "adapter"), "missing")
        _check_adapter(config, name, route)
        for index, other in enumerate(route.fallback or ()):
            _check_route_name(config, other, ("routes", name, "fallback", index))
    if config.model.default is not None:
        _check_route_name(config, config.model.default, ("model",))
    for name, server in config.mcp.items():
        if (server.command is None) == (server.url is None):
            raise Wrong(("mcp", name), "needs either command or url")
    _check_prices(config)


def _check_adapter(config: Config, name: str, route: Route) -> None:
    allowed = config.policy.adapters
    if allowed is not None and route.adapter is not None and route.adapter not in allowed:
        raise Wrong(("routes", name, "adapter"), f"the policy allows only {', '.join(allowed) or 'none'}")


def _check_route_name(config: Config, name: str, path: Path) -> None:
    known = [*config.routes, *BUILT_IN_ROUTES]
    if name not in known:
        raise Wrong(path, f'no route "{name}"{did_you_mean(name, known)}')


def _check_prices(config: Config) -> None:
    limits: dict[Path, float] = {
        ("budget", "turn_cost"): config.budget.turn_cost,
        ("budget", "session_cost"): config.budget.session_cost,
        ("budget", "day_cost"): config.budget.day_cost,
        ("policy", "day_cost"): config.policy.day_cost,
    }
    problem = unpriced(config, used_routes(config))
    for path, limit in limits.items():
        if limit and problem is not None:
            raise Wrong(path, problem)


def used_routes(config: Config) -> dict[str, Route]:
    """Those that are configured, the default one and those to fall back on, which may be built-in ones."""
    others = (name for route in config.routes.values() for name in route.fallback or ())
    names = (name for name in (config.model.default, *others) if name is not None)
    return {**{name.partition("/")[0]: Route() for name in names}, **config.routes}


def unpriced(config: Config, routes: Iterable[str]) -> str | None:
    """Why a limit in money can't hold on these routes: one has no price, or another currency; None if it
    can. The rehearsal model costs nothing."""
    prices: dict[str, str] = {}  # {currency: route}
    for name in routes:
        route = config.routes.get(name, Route())
        if route.price is not None:
            prices.setdefault(route.price.currency, name)
        elif (route.adapter or name) != "rehearsal":
            return f'a cost limit needs prices, and route "{name}" has none'
    if len(prices) > 1:
        both = " and ".join(f'"{name}" in {currency}' for currency, name in list(prices.items())[:2])
        return f"a cost limit needs one currency, and prices are {both}"
    return None


# ---------------------------------------------------------------- where in the text


def _located(source: Source, wrong: Wrong) -> NotConfigured:
    line = find_line(source.text, wrong.path)
    where = f"{source.name}:{line}" if line else source.name
    at = f"{dotted(wrong.path)}: " if wrong.path else ""
    return NotConfigured(f"{where}: {at}{wrong.what}", hint="dshctl config check")


def _holds(table: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(table, dict) or part not in table:
            return isinstance(table, list)
        table = table[part]
    return True


def find_line(text: str, path: Path) -> int | None:
    """The line (from 1) on which the longest known beginning of ``path`` stands; None for none of it.

    tomllib keeps no positions. Headers and the left sides of ``=`` are read here, with tomllib itself for
    the keys, so that quoted and dotted ones come out right. Lines inside multi-line values may look like
    keys; they count only if they spell the very path.
    """
    best, found = 0, None
    for number, place in _places(text):
        shared = len(place) if path[: len(place)] == place else 0
        if shared > best:
            best, found = shared, number
    return found


def _places(text: str) -> Iterator[tuple[int, Path]]:
    """``(line number, path)`` of each header and key, in order; elements of ``[[x]]`` are counted."""
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("[["):
            name = _key_path(line[2:].partition("]]")[0])
            table = (*name, counts.get(name, 0))
            counts[name] = counts.get(name, 0) + 1
            yield number, table
        elif line.startswith("["):
            table = _key_path(line[1:].partition("]")[0])
            yield number, table
        elif "=" in line and (key := _key_path(line.partition("=")[0])):
            yield number, (*table, *key)


def _key_path(key: str) -> Path:
    try:
        table: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(table, dict) and table:
        name = next(iter(table))
        path.append(name)
        table = table[name]
    return tuple(path)


# ---------------------------------------------------------------- files


def load(places: Places) -> Config:
    """Read and check the config files. A missing file is an empty one, unless the user named it. Raises
    `NotConfigured`."""
    user = _read(places.config, places.config)
    if user is None and places.config_named:
        raise NotConfigured(f"no config file {places.config}.", hint="dshctl paths")
    return parse(user, _read(places.system_config, places.system_config))


def _read(path: str, name: str) -> Source | None:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotConfigured(f"can't read {path}: {os.strerror(error.errno or 0)}.") from error
    try:
        return Source(name, data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotConfigured(f"{name}:{line}: not UTF-8") from None


def environment(config: Config, places: Places, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that the daemon is to have. Raises `NotConfigured` for an env file that others may
    read, or with a line that isn't ``NAME=VALUE``."""
    return daemon_environment(
        environ,
        keys=config.key_variables(),
        path=config.daemon.path,
        lines=_env_lines(places.env_file),
    )


def _env_lines(path: str) -> dict[str, str]:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if stat.S_IMODE(mode) & 0o077:
        raise NotConfigured(f"{path} can be read by others.", hint=f"chmod 600 {path}")
    source = _read(path, path)
    return parse_env_file(source.text, source.name) if source else {}
