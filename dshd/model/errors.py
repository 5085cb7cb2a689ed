"""What can go wrong with a model call. Policy looks at ``code`` alone, never at the text.

The codes are the contract's (``CODES``); those in ``RETRIED`` may be tried again in the same step.
"""

from __future__ import annotations

from typing import Any, Final

CODES = frozenset(
    {
        "AUTH", "QUOTA", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "STREAM_CLOSED",
        "MALFORMED_RESPONSE", "EMPTY_RESPONSE", "INVALID_REQUEST", "CONTEXT_WINDOW_EXCEEDED",
        "CONTENT_FILTERED", "NO_ADAPTER", "MISSING_CREDENTIAL", "PLUGIN", "STORAGE", "ABORTED", "UNKNOWN",
    }
)  # fmt: skip

RETRIED = frozenset({"RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "STREAM_CLOSED", "EMPTY_RESPONSE"})


# No provider makes anybody wait for a hundred years; what says so is no time, and is not heeded. Unix ms:
# 2200-01-01, which every reader of a log and every calendar still knows.
LONGEST_S: Final = 100 * 365.25 * 86400
LATEST_MS: Final = 7_258_118_400_000


class ModelError(Exception):
    """A failed model call: a sentence for a person and a code for the retry policy.

    ``retry_after`` is in seconds from now, ``retry_at`` Unix ms; a provider names at most one of them
    (a `Retry-After` of seconds, or a date); one that is no time (NaN, in the past, in a hundred years) counts
    as none. ``hint`` is the next command to type, or empty.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        http_status: int | None = None,
        retry_after: float | None = None,
        retry_at: int | None = None,
        hint: str = "",
    ) -> None:
        assert code in CODES, code
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status
        self.retry_after = retry_after if retry_after is not None and 0 < retry_after <= LONGEST_S else None
        self.retry_at = round(retry_at) if retry_at is not None and 0 < retry_at <= LATEST_MS else None
        self.hint = hint

    def __repr__(self) -> str:
        return f"ModelError({self.code!r}, {self.message!r})"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.code in RETRIED

    def to_json(self) -> dict[str, Any]:
        """``{code, message, http_status, retry_at}``, all present; for `turn/end` and `llm/retry`."""
        return {
            "code": self.code,
            "message": self.message,
            "http_status": self.http_status,
            "retry_at": self.retry_at,
        }
