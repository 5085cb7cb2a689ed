"""What the fold knows of approvals: the questions that stand open, the newest answers, and what is allowed.

A call that a person must allow is asked about by `approval/asked`, in the batch that brings the call. It
ends with exactly one `approval/answered`, the first one written:

| answer      | by                                              | then                                   |
|-------------|-------------------------------------------------|----------------------------------------|
| `allow`     | a person                                        | the call may run, if it hasn't changed |
| `deny`      | a person, or the clock when it has expired      | the model is told, with the reason     |
| `withdrawn` | whoever ended the turn (abort, crash, close)    | nobody can answer any more             |

`allow` has a scope: `once` (this call), `session` (this very thing as long as the session is there), `always`
(in every session: kept by the daemon, see `allowed`). `approval/forgotten` takes the session's back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.log.codec import Event
from dshd.session.fold.values import evolve

KEPT: Final = 64  # answered ones, so that who comes late is told who was first

Json = Mapping[str, Any]


@attrs.frozen(slots=True)
class Approval:
    """One question. ``grant``: what is asked for, as `tools.grants` writes it; ``what``: that in one short
    line; ``why``: what the model said with it; ``rule``: why it is asked; ``expires``: Unix ms, None: never.
    ``arguments``: the call's raw text, until it is answered."""

    id: str
    turn: int
    step: int
    call: str
    tool: str
    grant: Json
    what: str
    at: int
    seq: int
    rule: str = ""
    why: str = ""
    expires: int | None = None
    arguments: str = ""
    answer: str | None = None
    scope: str | None = None
    reason: str | None = None
    by: Any = None
    answered_at: int | None = None

    @property
    def open(self) -> bool:
        return self.answer is None


@attrs.frozen(slots=True)
class Allowed:
    """What is allowed for the session: by which approval (``id``), when and by whom."""

    id: str
    grant: Json
    at: int
    by: Any = None


def asked(event: Event, arguments: str) -> Approval:
    data = event.data
    return Approval(
        id=data["id"], turn=data["turn"], step=data["step"], call=data["call"], tool=data["tool"],
        grant=data["grant"], what=data["what"], at=event.time, seq=event.seq, rule=data.get("rule", ""),
        why=data.get("why", ""), expires=data.get("expires"), arguments=arguments,
    )  # fmt: skip


def answered(approvals: Mapping[str, Approval], event: Event) -> dict[str, Approval]:
    """Raises `KeyError` for one that isn't open."""
    data = event.data
    found = approvals[data["id"]]
    if not found.open:
        raise KeyError(f"{found.id} is answered already")
    done = evolve(
        found, answer=data["answer"], scope=data.get("scope"), reason=data.get("reason"), by=data.get("by"),
        answered_at=event.time, arguments="",
    )  # fmt: skip
    after = {**approvals, found.id: done}
    old = [id for id, one in after.items() if not one.open]
    for id in old[: max(0, len(old) - KEPT)]:
        del after[id]
    return after


def of_call(approvals: Mapping[str, Approval], turn: int, call: str) -> Approval | None:
    """The question about this call."""
    return next((one for one in approvals.values() if one.turn == turn and one.call == call), None)


def ended(approvals: Mapping[str, Approval], at: int) -> dict[str, Approval]:
    """When a turn has: what is still open then has an end that the log lost."""
    return {
        id: one if not one.open else evolve(one, answer="withdrawn", answered_at=at, arguments="")
        for id, one in approvals.items()
    }


def allowed(answer: Approval) -> Allowed | None:
    """What this answer allows for the session, beyond the call."""
    if answer.answer != "allow" or answer.scope != "session":
        return None
    return Allowed(answer.id, answer.grant, answer.answered_at or 0, answer.by)
