"""Subagents: which work, and ending one."""

from __future__ import annotations

from dshd.wire.params import Params


class AgentListParams(Params, method="agent.list"):
    """Those at work, or ``all`` that are known; of one session, or (both None) of every."""

    session: str | None = None
    cwd: str | None = None
    all: bool = False


class AgentStopParams(Params, method="agent.stop"):
    """End one, by the id of its session. It is over then; its parent knows."""

    agent: str
