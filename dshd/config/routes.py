"""``[routes.NAME]`` and what models cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from dshd.config.kinds import Command, Count, Money, Text

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


def used_routes(routes: Mapping[str, Route], default: str | None) -> dict[str, Route]:
    """Those that are configured, the default one and those to fall back on, which may be built-in ones."""
    others = (name for route in routes.values() for name in route.fallback or ())
    names = (name for name in (default, *others) if name is not None)
    return {**{name.partition("/")[0]: Route() for name in names}, **routes}


def unpriced(routes: Mapping[str, Route], names: Iterable[str]) -> str | None:
    """Why a limit in money can't hold on the routes of these names: one has no price, or another currency;
    None if it can. The rehearsal model costs nothing."""
    prices: dict[str, str] = {}  # {currency: route}
    for name in names:
        route = routes.get(name, Route())
        if route.price is not None:
            prices.setdefault(route.price.currency, name)
        elif (route.adapter or name) != "rehearsal":
            return f'a cost limit needs prices, and route "{name}" has none'
    if len(prices) > 1:
        both = " and ".join(f'"{name}" in {currency}' for currency, name in list(prices.items())[:2])
        return f"a cost limit needs one currency, and prices are {both}"
    return None
