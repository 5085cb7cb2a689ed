"""Exit codes: the one table from what happened to what the shell sees.

A command's code comes from one of three words: the `outcome` of a message (how its turn ended, or
what became of it before), the `code` of an error, or, with `--wait`, the reason why nothing will
move without a person. Everything else is spelled out here once and nowhere else.
"""

from __future__ import annotations

from typing import Any, Final

DONE: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
CONFLICT: Final = 5
FULL: Final = 6
DAMAGED: Final = 7
DENIED: Final = 8
NOT_CONFIGURED: Final = 9
ERROR: Final = 10
BLOCKED: Final = 11
ABORTED: Final = 12
MAX_TOKENS: Final = 13
INTERRUPTED: Final = 14
BUDGET: Final = 15
APPROVAL: Final = 16
REMOVED: Final = 17
PARKED: Final = 18
LATER: Final = 75
TIMED_OUT: Final = 124
SIGINT: Final = 130
SIGTERM: Final = 143

MEANING: Final[dict[int, str]] = {
    DONE: "done (the turn completed)",
    FAILURE: "another failure",
    USAGE: "usage",
    UNREACHABLE: "no daemon can be reached",
    NOT_FOUND: "no such session, message, approval, job or schedule",
    CONFLICT: "a conflict, or a precondition that does not hold",
    FULL: "full, or over a limit",
    DAMAGED: "the session is damaged or faulted",
    DENIED: "denied to this caller",
    NOT_CONFIGURED: "not configured: no model, no key, or no valid config",
    ERROR: "the turn ended in an error",
    BLOCKED: "blocked or rejected",
    ABORTED: "aborted, also before it entered a turn",
    MAX_TOKENS: "the model ran into its output limit",
    INTERRUPTED: "interrupted",
    BUDGET: "a budget is used up",
    APPROVAL: "waits for an approval",
    REMOVED: "the message was removed, cleared, expired or superseded",
    PARKED: "parked, or waits for a person",
    LATER: "try later: rate limit, provider, disk full",
    TIMED_OUT: "--timeout passed; the work goes on, unless --tied",
    SIGINT: "interrupted by Ctrl-C; the work goes on",
    SIGTERM: "ended by SIGTERM; the work goes on",
}

OF_OUTCOME: Final[dict[str, int]] = {
    "completed": DONE,
    "error": ERROR,
    "blocked": BLOCKED,
    "rejected": BLOCKED,
    "aborted": ABORTED,
    "max-tokens": MAX_TOKENS,
    "interrupted": INTERRUPTED,
    "budget": BUDGET,
    "removed": REMOVED,
    "cleared": REMOVED,
    "expired": REMOVED,
    "superseded": REMOVED,
    # What `wait` answers when nothing but a person moves it on.
    "idle": DONE,
    "approval": APPROVAL,
    "asks": APPROVAL,
    "parked": PARKED,
    "held": PARKED,
    "damaged": DAMAGED,
    "faulted": DAMAGED,
}

OF_CODE: Final[dict[str, int]] = {
    "INVALID": USAGE,
    "UNREACHABLE": UNREACHABLE,
    "NOT_FOUND": NOT_FOUND,
    "CONFLICT": CONFLICT,
    "ALREADY_RUNNING": CONFLICT,
    "FULL": FULL,
    "DAMAGED": DAMAGED,
    "FAULTED": DAMAGED,
    "UNSUPPORTED": DAMAGED,
    "DENIED": DENIED,
    "NOT_CONFIGURED": NOT_CONFIGURED,
    "NO_SPACE": LATER,
    "STALLED": LATER,
    "UNAVAILABLE": LATER,
    "INTERNAL": FAILURE,
}

# A turn that failed for one of these would have succeeded another time.
TRY_LATER: Final = frozenset(
    {
        "QUOTA",
        "STORAGE",
        "RATE_LIMIT",
        "SERVER",
        "TIMEOUT",
        "TRANSPORT",
        "STREAM_CLOSED",
        "EMPTY_RESPONSE",
    }
)


def of_code(code: str | None) -> int:
    """What dshctl exits with for an error of this code; an unknown code is a failure."""
    return OF_CODE.get(code or "", FAILURE)


def of_result(result: dict[str, Any]) -> int:
    """What dshctl exits with for a `result`: the daemon's own `exit`, else by its outcome."""
    given = result.get("exit")
    if isinstance(given, int):
        return given
    outcome = result.get("outcome")
    error = result.get("error") or {}
    if outcome == "error" and error.get("code") in TRY_LATER:
        return LATER
    return OF_OUTCOME.get(outcome or "", FAILURE)


def worst(codes: list[int]) -> int:
    """Several messages: the first code that isn't 0."""
    return next((code for code in codes if code), DONE)
