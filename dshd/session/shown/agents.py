"""What a subagent looks like to a program: the JSON of ``agent``."""

from __future__ import annotations

from typing import Any

from dshd.session.fold.state import State
from dshd.session.fold.subagents import Subagent
from dshd.session.shown.activities import IDLE, Activity

Json = dict[str, Any]


def agent(parent: State, one: Subagent, child: State | None, activity: Activity = IDLE) -> Json:
    """``child`` and its ``activity``: how its session is, if it is in memory."""
    asks = child.asks if child is not None and one.runs else ()
    return {
        "type": "agent",
        "id": one.id,
        "session": parent.id,
        "name": parent.name,
        "turn": one.turn,
        "prompt": one.prompt,
        "context": one.context,
        "state": "running" if one.runs else "ended",
        "step": child.turn.step if child is not None and child.turn is not None else None,
        "doing": activity.doing if one.runs else None,
        "since_at": activity.since if one.runs else None,
        "waits": activity.waits if one.runs else None,
        "asks": [asked.id for asked in asks],
        "outcome": one.end.outcome if one.end is not None else None,
        "text": one.end.text if one.end is not None else None,
        "cost": one.spent.get("cost"),
        "started_at": one.at,
        "ended_at": one.end.at if one.end is not None else None,
    }
