"""What a subagent looks like to a program: the JSON of ``agent``."""

from __future__ import annotations

from typing import Any

from dshd.session.fold.state import State
from dshd.session.fold.subagents import Subagent

Json = dict[str, Any]


def agent(parent: State, one: Subagent, child: State | None) -> Json:
    """``child``: how its session is, if it is in memory."""
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
        "outcome": one.end.outcome if one.end is not None else None,
        "text": one.end.text if one.end is not None else None,
        "cost": one.spent.get("cost"),
        "started_at": one.at,
        "ended_at": one.end.at if one.end is not None else None,
    }
