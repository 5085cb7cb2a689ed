"""What a session begins with, and what becomes of it."""

from __future__ import annotations

import attrs

from dshd.config.kinds import Duration
from dshd.wire import Ask, Mode


@attrs.frozen(slots=True, kw_only=True)
class Sessions:
    mode: Mode = "workspace"
    ask: Ask | None = None
    net: bool = False
    keep_run: Duration = 30 * 86400.0
