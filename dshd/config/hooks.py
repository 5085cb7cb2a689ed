"""Commands of the user's that are started when something happens."""

from __future__ import annotations

from typing import Literal

import attrs

from dshd.config.kinds import Command, Duration


@attrs.frozen(slots=True, kw_only=True)
class Hook:
    event: Literal[
        "session_start", "pre_step", "pre_tool", "post_tool", "turn_stopping", "turn_end", "attention"
    ]
    command: Command
    on_failure: Literal["ignore", "block"] = "ignore"
    timeout: Duration = 10.0


@attrs.frozen(slots=True, kw_only=True)
class Notify:
    command: Command | None = None
