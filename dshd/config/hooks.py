"""The user's own programs: run at fixed points, and when something needs a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import attrs

from dshd.config.kinds import Command, Text, TimeLimit
from dshd.strict import Path, Wrong
from dshd.wire import did_you_mean

EVENTS: Final = {  # {ours: what other agents call it}
    "session_start": "SessionStart", "pre_step": "UserPromptSubmit", "pre_tool": "PreToolUse",
    "post_tool": "PostToolUse", "turn_stopping": "Stop", "turn_end": "TurnEnd", "attention": "Notification",
}  # fmt: skip


def _event(value: str, path: Path) -> str:
    if value not in EVENTS:
        ours = next((event for event, theirs in EVENTS.items() if theirs == value), None)
        guess = f"; here it is {ours}" if ours else did_you_mean(value, EVENTS)
        raise Wrong(path, f'no event is called "{value}"{guess}')
    return value


def _pattern(value: str, path: Path) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise Wrong(path, f"expected names joined by |, or a regular expression ({error})") from None
    return value


@attrs.frozen(slots=True, kw_only=True)
class Hook:
    """``matcher``: which tools, or which kinds of notice, it is about; None: all. ``env``: the session's
    secrets that it is given. ``timeout`` in s."""

    event: Annotated[str, _event]
    command: Command
    on_failure: Literal["ignore", "block"] = "ignore"
    timeout: TimeLimit = 10.0
    name: Text | None = None
    matcher: Annotated[str, _pattern] | None = None
    env: list[str] = attrs.field(factory=list)


BLOCKABLE: Final = frozenset(("pre_step", "pre_tool"))


def in_vain(hooks: Sequence[Hook]) -> list[str]:
    """A sentence for each hook that is to block where nothing can be blocked."""
    return [
        f"hooks[{n}].on_failure is block, and {hook.event} has nothing to block"
        for n, hook in enumerate(hooks)
        if hook.on_failure == "block" and hook.event not in BLOCKABLE
    ]


@attrs.frozen(slots=True, kw_only=True)
class Notify:
    command: Command | None = None
