"""Approvals: what waits for a person's answer, answering it, and taking back what was allowed."""

from __future__ import annotations

from typing import Literal

from dshd.wire.params import Params, check_reason

Answer = Literal["allow", "deny"]
Scope = Literal["once", "session", "always"]


class ApprovalListParams(Params, method="approval.list"):
    """What waits for an answer, in one session or (None) in all; with what is allowed already."""

    session: str | None = None
    cwd: str | None = None


class ApprovalAnswerParams(Params, method="approval.answer"):
    """``scope``: what an allow is for: this call, this very thing in its session, or in every session.
    ``reason`` reaches the model."""

    id: str
    answer: Answer
    scope: Scope = "once"
    reason: str | None = None

    def check(self) -> None:
        check_reason(self.reason)


class ApprovalForgetParams(Params, method="approval.forget"):
    """Take back what the answer to this approval allowed, for its session or everywhere."""

    id: str


class ApprovalFollowParams(Params, method="approval.follow"):
    """Be told what comes to wait, and what is answered."""
