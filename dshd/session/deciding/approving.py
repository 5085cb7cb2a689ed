"""What is decided about approvals: asking, answering, expiring, withdrawing. On a scratch; no IO.

The first answer that is decided wins, whoever gives it; the clock is one of those who may. What has expired
by the time somebody answers has expired, whether or not it was noticed until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd import reasons
from dshd.errors import Conflict, NotFound
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import approvals
from dshd.session.fold.approvals import Approval
from dshd.session.fold.state import State
from dshd.session.fold.who import SYSTEM

By = Mapping[str, Any]
SCOPES: Final = ("once", "session", "always")
CLOCK: Final[By] = {"kind": "system", "via": "clock"}
DENIED: Final = "DENIED"


@attrs.frozen(slots=True, kw_only=True)
class Asked:
    """A question about a call, before it is written down. ``expires``: Unix ms, None: never."""

    id: str
    call: str
    tool: str
    grant: Mapping[str, str]
    what: str
    rule: str
    why: str = ""
    expires: int | None = None


def ask(s: Scratch, turn: int, step: int, asked: Iterable[Asked], worked: int) -> None:
    """Emit the questions; their calls must be in the log. ``worked``: ms that the turn has by now."""
    for one in asked:
        data = attrs.asdict(one, filter=lambda _, value: value is not None)
        here = {"turn": turn, "step": step, "worked_ms": worked, "grant": dict(one.grant)}
        s.emit("approval/asked", {**data, **here})


def answer(s: Scratch, id: str, given: str, scope: str, reason: str | None, by: By) -> Approval:
    """Emit an answer; ``given`` is allow or deny. Raises `NotFound`, and `Conflict` if it is answered."""
    expire(s)
    check_open(s.state, id)
    data: dict[str, Any] = {"id": id, "answer": given, "by": dict(by), "scope": scope}
    if reason:
        data["reason"] = reason
    s.emit("approval/answered", data)
    return s.state.approvals[id]


def check_open(state: State, id: str) -> Approval:
    found = state.approvals.get(id)
    if found is None:
        raise NotFound(f'no approval "{id}"', hint="dshctl approvals", outcome="not-written")
    if not found.open:
        raise Conflict(f"{id} is {told(found)}.", outcome="not-written")
    return found


def told(approval: Approval) -> str:
    """How it ended: ``allowed already, by you (pts/3) at 2026-11-30T12:04:11Z``."""
    at = reasons.utc(0).when(approval.answered_at or 0)
    if approval.answer == "withdrawn":
        return f"no longer asked: {approval.reason or 'the turn ended'}, at {at}"
    word = "allowed" if approval.answer == "allow" else "denied"
    if (approval.by or {}).get("via") == CLOCK["via"]:
        return f"denied already, for nobody had answered by {at}"
    return f"{word} already, by {reasons.who(approval.by)} at {at}"


def expire(s: Scratch) -> None:
    """Emit the answer of what nobody has answered in time."""
    for one in s.state.asks:
        if one.expires is not None and one.expires <= s.now:
            data = {"id": one.id, "answer": "deny", "by": dict(CLOCK), "scope": "once", "reason": EXPIRED}
            s.emit("approval/answered", data)


EXPIRED: Final = "nobody answered in time"


def next_expiry(asks: Sequence[Approval]) -> int | None:
    """Unix ms of the first that expires."""
    return min((one.expires for one in asks if one.expires is not None), default=None)


def withdraw(s: Scratch, why: str, by: By | None) -> None:
    """Emit the end of every question: what it was about won't run any more."""
    for one in s.state.asks:
        data = {"id": one.id, "answer": "withdrawn", "by": dict(by or SYSTEM), "scope": "once", "reason": why}
        s.emit("approval/answered", data)


def forget(s: Scratch, id: str, by: By) -> bool:
    """Take back what was allowed for the session; whether there was anything."""
    there = any(one.id == id for one in s.state.allowed)
    if there:
        s.emit("approval/forgotten", {"id": id, "by": dict(by)})
    return there


def denial(approval: Approval) -> dict[str, Any]:
    """The members of the `tool/result` of a call that was denied: what the model is told."""
    if (approval.by or {}).get("via") == CLOCK["via"]:
        text = "Denied: a person was asked, and nobody answered in time. It was not run."
    else:
        because = f": {approval.reason.rstrip('.')}" if approval.reason else ""
        text = f"Denied by the user{because}. It was not run."
    return {"content": [{"type": "text", "text": text}], "is_error": True, "error": {"code": DENIED}}


def of_call(state: State, call: str) -> Approval | None:
    """The question about a call of the open step."""
    turn = state.turn
    if turn is None or not state.approvals:
        return None
    return approvals.of_call(state.approvals, turn.number, call)
