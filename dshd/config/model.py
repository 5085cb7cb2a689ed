"""``[model]``: the default route, and how long a model is waited for."""

from __future__ import annotations

import attrs

from dshd.config.kinds import Duration, Text


@attrs.frozen(slots=True, kw_only=True)
class Model:
    """``default`` is the default route's name."""

    default: Text | None = None
    patience: Duration = 6 * 3600.0
    idle_timeout: Duration = 300.0
