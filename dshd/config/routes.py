"""``[routes.NAME]`` and what models cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from dshd.config.kinds import Command, Count, Money, Text
from dshd.strict import Path, Wrong
from dshd.wire import did_you_mean

if TYPE_CHECKING:
    from dshd.config.whole import Config

BUILT_IN_ROUTES: Final = ("deepseek", "anthropic", "openai", "ollama", "rehearsal")


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


def check_routes(config: Config) -> None:
    """Each has an adapter that the policy allows, and falls back on routes that there are. Raises `Wrong`."""
    for name, route in config.routes.items():
        if name not in BUILT_IN_ROUTES and route.adapter is None:
            raise Wrong(("routes", name, "adapter"), "missing")
        _check_adapter(config, name, route)
        for index, other in enumerate(route.fallback or ()):
            check_route_name(config, other, ("routes", name, "fallback", index))


def check_route_name(config: Config, name: str, path: Path) -> None:
    """Raises `Wrong`, with what may have been meant."""
    known = [*config.routes, *BUILT_IN_ROUTES]
    if name not in known:
        raise Wrong(path, f'no route "{name}"{did_you_mean(name, known)}')


def _check_adapter(config: Config, name: str, route: Route) -> None:
    allowed = config.policy.adapters
    if allowed is not None and route.adapter is not None and route.adapter not in allowed:
        raise Wrong(("routes", name, "adapter"), f"the policy allows only {', '.join(allowed) or 'none'}")
