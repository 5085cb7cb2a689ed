"""Routes: a provider and a model under a name; and which one a new session gets.

Built in are ``deepseek``, ``anthropic``, ``openai``, ``ollama`` and ``rehearsal``; a table of the same name
in the config changes single fields of a built-in one. A session's model is a *reference*: a route's name,
or ``ROUTE/MODEL`` for another model of that provider (``ollama/qwen3:8b``).

Nothing here does IO: what has to be asked first (`/models`, Ollama) is in `discovery`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from dshd.errors import NotConfigured


@attrs.frozen
class Route:
    """Fields as in the config. ``max_tokens`` and ``context_window`` in tokens.

    ``base_url_env``: a variable that moves the built-in route elsewhere. ``key_required``: a call without a
    key is not tried.
    """

    name: str
    adapter: str
    base_url: str = ""
    model: str = ""
    api_key_env: str | None = None
    api_key_file: str | None = None
    api_key_command: str | tuple[str, ...] | None = None
    key_required: bool = False
    base_url_env: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    fallback: tuple[str, ...] = ()
    price: Mapping[str, Any] | None = None
    script: str | None = None
    profile: Mapping[str, Any] | None = None


BUILT_IN: dict[str, Route] = {
    route.name: route
    for route in (
        Route(
            "deepseek", "openai", "https://api.deepseek.com", "deepseek-v4-flash",
            api_key_env="DEEPSEEK_API_KEY", key_required=True,
            context_window=1_000_000, max_tokens=65_536,
        ),
        Route(
            "anthropic", "anthropic", "https://api.anthropic.com/v1", "claude-sonnet-4-6",
            api_key_env="ANTHROPIC_API_KEY", key_required=True,
            context_window=200_000, max_tokens=32_768,
        ),
        Route(
            "openai", "openai", "https://api.openai.com/v1", "gpt-5.1",
            api_key_env="OPENAI_API_KEY", key_required=True, base_url_env="OPENAI_BASE_URL",
            context_window=400_000, max_tokens=65_536,
        ),
        Route("ollama", "openai", "http://127.0.0.1:11434/v1", base_url_env="OLLAMA_HOST"),
        Route("rehearsal", "rehearsal", model="rehearsal", context_window=1_000_000),
    )
}  # fmt: skip

REHEARSAL: Final = "rehearsal"
NONE_SET_UP: Final = "no model is set up: the rehearsal model answers. It is not an AI."
KEYED = ("deepseek", "anthropic", "openai")  # built-in routes that a key selects, in this order
KEY_FIELDS = ("api_key_env", "api_key_file", "api_key_command")
SCALARS = (
    "adapter",
    "base_url",
    "model",
    *KEY_FIELDS,
    "context_window",
    "max_tokens",
    "price",
    "script",
    "profile",
)


def route_of(name: str, table: object) -> Route:
    """The route that the config's table (a mapping, or an object with those fields) describes.

    Fields that are absent or None keep the built-in route's value. A route that names where its key is
    needs one; a built-in one that was moved elsewhere does not, unless it names it again.
    """
    said = {key: value for key in SCALARS if (value := _get(table, key)) is not None}
    base = _base(name, said.get("adapter"))
    named_key = any(key in said for key in KEY_FIELDS)
    said["key_required"] = named_key or (base.key_required and "base_url" not in said)
    if "base_url" in said:
        said["base_url_env"] = None
    if isinstance(said.get("api_key_command"), list):
        said["api_key_command"] = tuple(said["api_key_command"])
    if attrs.has(type(said.get("price"))):
        said["price"] = attrs.asdict(said["price"])
    return attrs.evolve(base, **said, fallback=tuple(_get(table, "fallback") or ()))


def _base(name: str, adapter: str | None) -> Route:
    """The built-in route of that name, unless it is to have another adapter. The rehearsal asks no server
    for its model, whatever its route is called."""
    base = BUILT_IN.get(name)
    if base is not None and adapter in (None, base.adapter):
        return base
    if adapter == "rehearsal":
        return attrs.evolve(BUILT_IN["rehearsal"], name=name)
    return Route(name, adapter or "openai")


def _get(table: object, key: str) -> Any:
    return table.get(key) if isinstance(table, Mapping) else getattr(table, key, None)


def moved(route: Route, env: Mapping[str, str]) -> Route:
    """A built-in route with the address that its variable gives; then it needs no key and any model."""
    url = env.get(route.base_url_env or "", "").strip()
    if not url:
        return route
    if route.name == "ollama":
        return attrs.evolve(route, base_url=ollama_url(url), base_url_env=None)
    ours = BUILT_IN.get(route.name)
    model = "" if ours is not None and route.model == ours.model else route.model
    return attrs.evolve(
        route, base_url=url, model=model, key_required=False, base_url_env=None,
        context_window=None if not model else route.context_window,
        max_tokens=None if not model else route.max_tokens,
    )  # fmt: skip


def ollama_url(host: str) -> str:
    """``OLLAMA_HOST`` as a base URL: scheme and port may be left out, 0.0.0.0 means this machine."""
    url = host if "://" in host else f"http://{host}"
    scheme, _, rest = url.partition("://")
    authority = rest.split("/", 1)[0].replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - it is replaced
    port = "" if authority.rsplit("]", 1)[-1].count(":") else ":11434"
    return f"{scheme}://{authority}{port}/v1"


def table_of(config: Mapping[str, object] | None) -> dict[str, Route]:
    """All routes: the config's ``[routes]`` over the built-in ones."""
    return {**BUILT_IN, **{name: route_of(name, table) for name, table in (config or {}).items()}}


def env_names(routes: Mapping[str, Route]) -> set[str]:
    """Variables that routes read; the daemon's environment is cleaned of all but these and a few."""
    every = [*BUILT_IN.values(), *routes.values()]
    names = [name for route in every for name in (route.api_key_env, route.base_url_env)]
    return {name for name in names if name}


def find(ref: str, routes: Mapping[str, Route]) -> Route | None:
    """The route that a session's model reference names; None if there is none."""
    if ref in routes:
        return routes[ref]
    name, slash, model = ref.partition("/")
    if not slash or not model or name not in routes:
        return None
    return attrs.evolve(routes[name], model=model)


# -- which model


@attrs.frozen
class Choice:
    """``ref`` goes into the session's header. ``why`` is a sentence for a person."""

    ref: str
    why: str


@attrs.frozen
class Ask:
    """Undecided: the answer depends on what a server says (see `discovery`)."""

    what: str  # "openai" | "ollama"


def choose_route(
    explicit: str | None,
    configured: str | None,
    routes: Mapping[str, Route],
    *,
    has_key: Callable[[Route], bool],
    ask_ollama: bool = True,
    client_is_terminal: bool = False,
) -> Choice | Ask:
    """Which model a new session gets. Raises `NotConfigured`; `Ask` if a server must be asked first.

    Order: ``--model``; ``model`` in the config; the first built-in route with a key; an address in
    ``OPENAI_BASE_URL``; a local Ollama; for a client on a terminal the rehearsal model.
    """
    set_up = _set_up(routes, has_key)
    if explicit == REHEARSAL and not configured and set_up is None:
        return Choice(explicit, NONE_SET_UP)
    for ref, why in ((explicit, "--model"), (configured, "config")):
        if ref:
            return _named(ref, why, routes)
    if set_up is not None:
        return _or_ask(*set_up)
    if ask_ollama:
        return Ask("ollama")
    return rehearsal_or_nothing(client_is_terminal)


def _set_up(routes: Mapping[str, Route], has_key: Callable[[Route], bool]) -> tuple[Route, str] | None:
    """The first built-in route that somebody has set up by a variable or a stored key, and by which."""
    for name in KEYED:
        route = routes[name]
        if not route.key_required and route.base_url != BUILT_IN[name].base_url:
            return route, f"{BUILT_IN[name].base_url_env or 'base_url'} is set"
        if has_key(route):
            return route, f"there is a key for {name}"
    return None


def _named(ref: str, why: str, routes: Mapping[str, Route]) -> Choice | Ask:
    route = find(ref, routes)
    if route is None:
        known = ", ".join(sorted(routes))
        raise NotConfigured(f'no model "{ref}". There are: {known}.', hint="dshctl models")
    return Choice(ref, why) if route.model else Ask(route.name)


def _or_ask(route: Route, why: str) -> Choice | Ask:
    return Choice(route.name, why) if route.model else Ask(route.name)


def rehearsal_or_nothing(client_is_terminal: bool) -> Choice:
    """The last resort. Raises `NotConfigured` for a client that is not on a terminal."""
    if client_is_terminal:
        return Choice(REHEARSAL, NONE_SET_UP)
    raise NotConfigured(
        "no model is set up, and this is not a terminal, so nothing was run.",
        hint="dshctl config check        or, to try without a model: --model rehearsal",
    )
