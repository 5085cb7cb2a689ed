"""What no field and no section alone can know: each check is given the whole, and raises `Wrong`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dshd.config.routes import BUILT_IN_ROUTES, Route, unpriced
from dshd.config.whole import Config
from dshd.strict import Path, Wrong
from dshd.wire import did_you_mean


def routes(config: Config) -> None:
    """Each has an adapter that the policy allows, and falls back on routes that there are."""
    for name, route in config.routes.items():
        if name not in BUILT_IN_ROUTES and route.adapter is None:
            raise Wrong(("routes", name, "adapter"), "missing")
        _adapter(config, name, route)
        for index, other in enumerate(route.fallback or ()):
            _route_name(config, other, ("routes", name, "fallback", index))


def model(config: Config) -> None:
    """The default route is there."""
    if config.model.default is not None:
        _route_name(config, config.model.default, ("model",))


def servers(config: Config) -> None:
    """Each is started, or reached, and not both."""
    for name, server in config.mcp.items():
        if (server.command is None) == (server.url is None):
            raise Wrong(("mcp", name), "needs either command or url")
        if server.url is not None and not server.url.startswith(("http://", "https://")):
            raise Wrong(("mcp", name, "url"), "expected an address that begins with http:// or https://")


def prices(config: Config) -> None:
    """A limit in money needs to know what things cost, in one currency."""
    limits: dict[Path, float] = {
        ("budget", "turn_cost"): config.budget.turn_cost,
        ("budget", "session_cost"): config.budget.session_cost,
        ("budget", "day_cost"): config.budget.day_cost,
        ("policy", "day_cost"): config.policy.day_cost,
    }
    problem = unpriced(config.routes, config.used_routes())
    for path, limit in limits.items():
        if limit and problem is not None:
            raise Wrong(path, problem)


def _route_name(config: Config, name: str, path: Path) -> None:
    known = [*config.routes, *BUILT_IN_ROUTES]
    if name not in known:
        raise Wrong(path, f'no route "{name}"{did_you_mean(name, known)}')


def _adapter(config: Config, name: str, route: Route) -> None:
    allowed = config.policy.adapters
    if allowed is not None and route.adapter is not None and route.adapter not in allowed:
        raise Wrong(("routes", name, "adapter"), f"the policy allows only {', '.join(allowed) or 'none'}")


# In the order in which they are looked at.
CHECKS: Final[tuple[Callable[[Config], None], ...]] = (routes, model, servers, prices)
