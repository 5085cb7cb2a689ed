"""Limits: of a turn, a session, a day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from dshd.config.kinds import Duration, Limit, Money
from dshd.config.routes import unpriced, used_routes
from dshd.strict import Path, Wrong

if TYPE_CHECKING:
    from dshd.config.whole import Config


@attrs.frozen(slots=True, kw_only=True)
class Budget:
    turn_steps: Limit = 200
    turn_time: Duration = 2 * 3600.0
    turn_tokens: Limit = 0
    turn_cost: Money = 0.0
    turn_errors: Limit = 10
    session_cost: Money = 0.0
    day_cost: Money = 0.0


def check_prices(config: Config) -> None:
    """A limit in money needs to know what things cost, in one currency. Raises `Wrong`."""
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
