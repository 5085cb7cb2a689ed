"""How a refusal reads to who asked: a full disk is told with what was not done for it."""

from __future__ import annotations

from typing import Final

from dshd.errors import DshError, NoSpace

_NOT_DONE: Final = {"session.send": "not sent", "session.interrupt": "not sent", "session.create": "not made"}


def worded(method: str, error: DshError) -> DshError:
    """The same error, for a request by this method. Others may be told the error itself, so it stays."""
    what = _NOT_DONE.get(method)
    if what is None or not isinstance(error, NoSpace) or error.message.startswith(what):
        return error
    return NoSpace(f"{what}: {error.message}", hint=error.hint, outcome=error.outcome,
                   retry_at=error.retry_at, data=error.data)  # fmt: skip
