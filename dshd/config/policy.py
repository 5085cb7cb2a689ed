"""``[policy]``: what users can't go beyond; it stands only in the system's file."""

from __future__ import annotations

import attrs

from dshd.config.kinds import Money
from dshd.wire import Mode


@attrs.frozen(slots=True, kw_only=True)
class Policy:
    """What users can't go beyond. ``adapters`` None: any."""

    max_mode: Mode = "full"
    adapters: list[str] | None = None
    day_cost: Money = 0.0
