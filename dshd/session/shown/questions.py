"""Questions to a person, and what answers have allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshd.session.fold.approvals import Allowed, Approval
from dshd.session.fold.state import State


def approval(state: State, one: Approval) -> dict[str, Any]:
    """A question, and how it ended. ``what``: in a line; ``command``: the whole of it, of `bash`;
    ``arguments``: the call's raw text, while it is open; ``rule``: why it is asked; ``works_for``: of a
    subagent's, the sessions (``id``, ``name``) that it works for, the nearest first, where they are known."""
    return {
        "type": "approval",
        "id": one.id,
        "session": state.id,
        "name": state.name,
        "works_for": [],
        "dir": one.grant.get("dir") or state.settings.get("dir"),
        "turn": one.turn,
        "step": one.step,
        "call": one.call,
        "tool": one.tool,
        "what": one.what,
        "command": one.grant.get("command"),
        "path": one.grant.get("path"),
        "host": one.grant.get("host"),
        "arguments": one.arguments or None,
        "why": one.why or None,
        "rule": one.rule or None,
        "asked_at": one.at,
        "expires_at": one.expires,
        "answer": one.answer,
        "scope": one.scope if one.answer == "allow" else None,
        "reason": one.reason,
        "by": dict(one.by) if isinstance(one.by, Mapping) else None,
        "answered_at": one.answered_at,
    }


def approvals(state: State) -> list[dict[str, Any]]:
    """Those that wait for an answer, the oldest first."""
    return [approval(state, one) for one in state.asks]


def allowed(one: Allowed, state: State | None = None) -> dict[str, Any]:
    """Something that an answer allowed; ``state``: of the session that it is for, None: for all."""
    return {
        "type": "allowed",
        "id": one.id,
        "session": state.id if state is not None else None,
        "name": state.name if state is not None else None,
        "scope": "session" if state is not None else "always",
        "tool": one.grant["tool"],
        "dir": one.grant.get("dir"),
        "command": one.grant.get("command"),
        "path": one.grant.get("path"),
        "host": one.grant.get("host"),
        "arguments": one.grant.get("arguments"),
        "by": dict(one.by) if isinstance(one.by, Mapping) else None,
        "allowed_at": one.at,
    }
