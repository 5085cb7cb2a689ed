"""A warning beside what is shown of a session that can't be driven: what is wrong with it, and where.

Whatever reads such a session says so on standard error, also with ``-q`` and ``--json``; that changes
nothing about what is printed, nor about the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshctl.output import Out
from dshd.errors import Damaged

_BROKEN = ("damaged", "faulted", "unsupported")


def of_log(out: Out, session: Any, damage: str | None) -> None:
    """``damage``: ``damaged at line 7 (bytes 1435-1763 of log.jsonl)``, or None."""
    if damage:
        _warn(out, f"session {session} is {damage}", f"dshctl fsck --repair {session}")


def of_need(out: Out, need: Mapping[str, Any] | None) -> bool:
    """``need``: ``{kind, message, hint}``, or None. Whether there was something to be said."""
    if not need or need.get("kind") not in _BROKEN or not need.get("message"):
        return False
    _warn(out, need["message"], need.get("hint") or "")
    return True


def of_view(out: Out, session: Mapping[str, Any]) -> bool:
    """The same of a session as `dshctl show` has it. A daemon of before says no more than that it is so."""
    name = session.get("name") or session.get("id")
    needs = session.get("needs") or ()
    return any(
        [
            of_need(out, {**need, "message": need.get("message") or f"session {name} is {need.get('kind')}"})
            for need in needs
        ]
    )


def _warn(out: Out, message: str, hint: str) -> None:
    out.error_sentence(Damaged(message, hint=hint))
