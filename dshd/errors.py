"""Every failure that dshd tells somebody about is one of these.

A `DshError` is a sentence for a person plus the facts a program needs. The sentence says what
happened and where; `hint` is the next command to type (it may be empty, never a stack trace).

Class attributes, fixed by the contract:

- ``code``: the word in a JSON-RPC error's ``data.code``;
- ``exit_status``: what dshctl exits with;
- ``retryable``: whether the same request may succeed later, unchanged;
- ``rpc_code``: the JSON-RPC number.

Light on purpose: dshctl imports this, so nothing but the standard library may be imported here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeGuard


class DshError(Exception):
    """Base of all. ``str(error)`` is the sentence.

    ``outcome`` is ``"not-written"`` (nothing changed) or ``"unknown"`` (the disk has not answered),
    for requests that write; ``retry_at`` is Unix ms; ``data`` holds further members of the RPC
    error's ``data`` (``reset_to``, ``path``, ...).
    """

    code: ClassVar[str] = "INTERNAL"
    exit_status: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    rpc_code: ClassVar[int] = -32000

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        outcome: str | None = None,
        retry_at: int | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.outcome = outcome
        self.retry_at = retry_at
        self.data = data or {}

    def to_json(self) -> dict[str, Any]:
        """The RPC error object: ``{code, message, data: {code, hint, retryable, ...}}``."""
        data: dict[str, Any] = {"code": self.code, "hint": self.hint, "retryable": self.retryable}
        if self.retry_at is not None:
            data["retry_at"] = self.retry_at
        if self.outcome is not None:
            data["outcome"] = self.outcome
        return {"code": self.rpc_code, "message": self.message, "data": {**self.data, **data}}


class Internal(DshError):
    """A bug of ours. The log has the details."""

    rpc_code = -32603


class Invalid(DshError):
    """The request itself is wrong; ``message`` ends in ``@ $.path`` where one is known."""

    code, exit_status, rpc_code = "INVALID", 2, -32602


class Unreachable(DshError):
    """No daemon answers (raised by clients only)."""

    code, exit_status, retryable = "UNREACHABLE", 3, True


class NotFound(DshError):
    """No such session, message, approval, ..."""

    code, exit_status = "NOT_FOUND", 4


class Conflict(DshError):
    """A precondition does not hold, a key was used for something else, the session is busy."""

    code, exit_status = "CONFLICT", 5


class AlreadyRunning(Conflict):
    """Another daemon owns the state directory."""

    code = "ALREADY_RUNNING"


class Full(DshError):
    """A limit is reached; nothing was dropped to make room."""

    code, exit_status, retryable = "FULL", 6, True


class Damaged(DshError):
    """A log can be read but not continued; ``hint`` names the repair."""

    code, exit_status = "DAMAGED", 7


class Faulted(DshError):
    """The disk failed under a session; ``hint`` names the way back."""

    code, exit_status = "FAULTED", 7


class Unsupported(DshError):
    """Written by a newer dshd, or holds events that this one doesn't know."""

    code, exit_status = "UNSUPPORTED", 7


class Denied(DshError):
    """This caller may not do that."""

    code, exit_status = "DENIED", 8


class NotConfigured(DshError):
    """No model, no key, or no valid config."""

    code, exit_status = "NOT_CONFIGURED", 9


class NoSpace(DshError):
    """ENOSPC or EDQUOT: nothing was written, nothing was lost."""

    code, exit_status, retryable = "NO_SPACE", 75, True


class Stalled(DshError):
    """The disk has not answered in time; the outcome is unknown."""

    code, exit_status, retryable = "STALLED", 75, True


class Unavailable(DshError):
    """Try later: the daemon is stopping, starting, or out of descriptors."""

    code, exit_status, retryable = "UNAVAILABLE", 75, True


_LOGS: Final = (NoSpace, Faulted, Stalled, Unavailable, NotFound)


def log_refused(error: BaseException) -> TypeGuard[DshError]:
    """Whether a log has refused what was to be written: for want of room, because the disk failed (what has
    no class of its own is told as `DshError` itself), or because its session is gone."""
    return isinstance(error, _LOGS) or type(error) is DshError


def one_line(error: BaseException) -> str:
    """What to tell a person of an exception that is not ours: its text, else its type's name."""
    return " ".join(str(error).split()) or type(error).__name__
