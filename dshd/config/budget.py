"""Limits: of a turn, a session, a day."""

from __future__ import annotations

import attrs

from dshd.config.kinds import Duration, Limit, Money


@attrs.frozen(slots=True, kw_only=True)
class Budget:
    turn_steps: Limit = 200
    turn_time: Duration = 2 * 3600.0
    turn_tokens: Limit = 0
    turn_cost: Money = 0.0
    turn_errors: Limit = 10
    session_cost: Money = 0.0
    day_cost: Money = 0.0
