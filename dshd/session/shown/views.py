"""What a session's state looks like to a program: the JSON shapes of the protocol.

Pure functions of a state (and, where a live driver knows more, of an `Activity`). Every field of
a type is always there; unknown is ``None``. The daemon uses them, and dshctl on the files when no
daemon runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from dshd import reasons
from dshd.errors import DshError
from dshd.session.fold import spending
from dshd.session.fold.events import QUEUES
from dshd.session.fold.receipts import Receipt, Stop
from dshd.session.fold.state import State
from dshd.session.fold.turns import EndedTurn
from dshd.session.shown import holding, jobs, parking
from dshd.session.shown.activities import IDLE, Activity, of_wait
from dshd.session.shown.parking import parked
from dshd.session.shown.questions import allowed


def receipt(
    state: State, id: str, *, turn: int | None = None, duplicate: bool = False,
    redirected: bool = False, reopened: bool = False, activity: Activity = IDLE, warning: str | None = None,
    released: int = 0, retried: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The answer to a send. ``turn``: the one that runs, else the one that the message will open."""
    found = state.receipts[id]
    m = found.message
    ended = state.turns.get(found.turn) if found.state == "settled" and found.turn is not None else None
    running = state.turn.number if state.turn else None
    return {
        "type": "receipt",
        "exit": 0,
        "message": id,
        "session": state.id,
        "name": state.name,
        "dir": state.settings.get("dir"),
        "verb": m.verb,
        "queue": found.queue,
        "position": position(state, found),
        "seq": found.seq,
        "state": found.state,
        "phase": "running" if running is not None else _between(state),
        "turn": turn if turn is not None else (found.turn or running),
        "waits_for": activity.doing,
        "since_at": activity.since,
        "due_at": m.due,
        "expires_at": m.expires,
        "redirected": redirected,
        "now": m.now,
        "duplicate": duplicate,
        "retried": retried,
        "spooled": False,
        "created": False,
        "reopened": reopened,
        "released": released,
        "superseded": list(found.superseded),
        "replaced": 0,
        "parked": parked(state),
        "warning": warning,
        "outcome": found.outcome or (found.state if found.ended else None),
        "ended_at": ended.ended_at if ended else (found.way[-1]["at"] if found.ended else None),
    }


def _between(state: State) -> str:
    return "maintenance" if state.compaction is not None else "idle"


def would(state: State | None, word: str, *, receipt: Mapping[str, Any] | None = None,
          error: DshError | None = None) -> dict[str, Any]:  # fmt: skip
    """What a send would do (``--dry-run``): ``word`` is start-turn, join-turn, wait, duplicate or
    refused. ``state`` None: of a session that is not made yet."""
    got = receipt or {}
    return {
        "type": "would",
        "exit": error.exit_status if error else 0,
        "would": word,
        "session": state.id if state else None,
        "name": state.name if state else None,
        "turn": _would_turn(state, word, got),
        "message": got.get("message") if word == "duplicate" else (error and error.data.get("message")),
        "state": got.get("state") if word == "duplicate" else None,
        "queue": got.get("queue"),
        "position": got.get("position"),
        "due_at": got.get("due_at"),
        "expires_at": got.get("expires_at"),
        "redirected": bool(got.get("redirected")),
        "created": state is None,
        "reopened": bool(got.get("reopened")),
        "released": got.get("released") or 0,
        "superseded": [] if state is None or word == "duplicate" else list(got.get("superseded") or ()),
        "error": _error(error),
    }


def _would_turn(state: State | None, word: str, got: Mapping[str, Any]) -> int | None:
    if word == "start-turn":
        return state.next_turn if state else 1
    return got.get("turn") if word in ("join-turn", "duplicate") else None


def _error(error: DshError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"code": error.code, "message": error.message, "hint": error.hint or None}


def position(state: State, found: Receipt) -> int | None:
    """The place in its queue, from 1; None once it has left."""
    if found.queue is None or found.state not in ("pending", "held"):
        return None
    items, id = state.queues[found.queue], found.message.id
    if items and items[-1].id == id:
        return len(items)  # just sent: what waits before it is not looked through
    return next((n for n, m in enumerate(items, 1) if m.id == id), None)


def session_state(state: State, activity: Activity, broken: str | None = None) -> str:
    """The first that holds of damaged, faulted, closed, asks, waiting, running, parked, idle."""
    facts = (
        (broken or "", broken is not None),
        ("closed", state.closed and activity.phase == "idle"),
        ("asks", broken is None and bool(state.asks)),
        ("waiting", activity.waits is not None),
        ("running", activity.phase != "idle"),
        ("parked", parking.waits_for_person(state)),
    )
    return next((word for word, holds in facts if holds), "idle")


def session(state: State, activity: Activity = IDLE, *, size: int = 0,
            broken: Mapping[str, Any] | None = None) -> dict[str, Any]:  # fmt: skip
    """A session as a thing. ``size`` in bytes; ``broken``: why it can't be driven (`Broken.told`)."""
    settings = state.settings
    if activity.phase == "idle" and state.turn is not None and state.turn.wait is not None:
        activity = attrs.evolve(of_wait(state.turn.wait, state.asks), phase="idle")  # until a daemon is there
    word = session_state(state, activity, broken["kind"] if broken else None)
    return {
        "type": "session",
        "id": state.id,
        "name": state.name,
        "dir": settings.get("dir"),
        "title": state.title,
        "state": word,
        "phase": activity.phase,
        "turn": state.turn.number if state.turn else (state.last_turn or None),
        "step": state.turn.step if state.turn else None,
        "turn_started_at": state.turn.started_at if state.turn else None,
        "doing": activity.doing,
        "since_at": activity.since,
        "waits": activity.waits,
        "until_at": activity.until,
        "pending": {queue: len(state.queues[queue]) for queue in QUEUES},
        "jobs": jobs.running(state),
        "parked": parked(state),
        "needs": _needs(state, broken),
        "model": settings.get("model"),
        "mode": settings.get("mode"),
        "patience": settings.get("patience"),
        "net": settings.get("net"),
        "ask": settings.get("ask"),
        "allowed": [allowed(one, state) for one in state.allowed],
        "implicit": bool(settings.get("implicit")),
        "run": bool(settings.get("run")),
        "parent": (state.header or {}).get("parent"),
        "agent": settings.get("agent"),
        "agents": len(state.running_agents),
        "key": settings.get("key"),
        "max_cost": settings.get("max_cost"),
        "max_steps": settings.get("max_steps"),
        "max_time": settings.get("max_time"),
        "max_tokens": settings.get("max_tokens"),
        "max_errors": settings.get("max_errors"),
        "session_cost": settings.get("session_cost"),
        "cost": state.spent.get("cost"),
        "currency": state.spent.get("currency"),
        "tokens": spending.tokens(state.spent) or None,
        "budgets": None,
        "schedules": None,
        "origins": None,
        "log": None,
        "context": _context(state),
        "bytes": size,
        "created_at": (state.header or {}).get("created"),
        "active_at": state.time,
    }


def _context(state: State) -> dict[str, Any] | None:
    """How full the model's window is, as far as was heard."""
    if state.context is None:
        return None
    return {"used": state.context, "window": (state.request_context or {}).get("window")}


def in_directory(view: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """The view of the session in a directory. One whose header says another id is a copy, and one whose
    header can't be read says nothing: they go by the directory's name."""
    if view["id"] == directory:
        return dict(view)
    own = {"id": directory, "name": directory, "state": "damaged", "implicit": False, "key": None}
    view = {name: value for name, value in view.items() if name != "lately"}  # it counts where it was spent
    known: Mapping[str, Any] = next((need for need in view["needs"] if need["kind"] == "damaged"), {})
    copied = f"dshctl export {directory} | dshctl import --as-new -"
    helps = copied if view["id"] else f"dshctl fsck {directory}"
    message = known.get("message") or f"session {directory} is damaged: its header speaks of another."
    need = {"kind": "damaged", "id": None, "message": message, "hint": known.get("hint") or helps}
    return {**view, **own, "needs": [need]}


def _needs(state: State, broken: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if broken is not None:
        return [{"id": None, **broken}]
    asks = [{"kind": "approval", "id": one.id, "what": one.what, "at": one.at} for one in state.asks]
    held = _held(state) if state.queues["held"] else []
    if parking.waits_for_person(state):
        return [*asks, {"kind": "parked", "id": None}, *held]
    return [*(asks or _came_to_nothing(parking.failed(state))), *held]


def _held(state: State) -> list[dict[str, Any]]:
    found = holding.unasked(state)
    return [
        {"kind": "held", "id": first.message.id, "what": holding.cause(first), "at": first.way[-1].at,
         "count": len(found)}
        for first in found[:1]
    ]  # fmt: skip


def _came_to_nothing(turn: EndedTurn | None) -> list[dict[str, Any]]:
    if turn is None:
        return []
    code = (turn.error or {}).get("code")
    return [{"kind": "ended", "id": None, "turn": turn.number, "what": turn.reason, "code": code,
             "at": turn.ended_at}]  # fmt: skip


ALL_TEXTS: Final = 4 * 1024 * 1024  # characters that the messages of one answer may have together
LEAST_TEXT: Final = 1024  # of each, whatever their number


def messages(state: State, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Many messages in one answer. If their texts together would not fit a line, long ones are cut."""
    total = sum(len(state.receipts[id].message.text) for id in ids)
    most = max(LEAST_TEXT, ALL_TEXTS // len(ids)) if total > ALL_TEXTS else None
    return [message(state, id, most) for id in ids]


def message(state: State, id: str, most: int | None = None) -> dict[str, Any]:
    """A message and its way. ``cut``: of the text only the first ``most`` characters are there. Raises
    ``KeyError`` if the session never had it."""
    found = state.receipts[id]
    m = found.message
    text = m.text
    return {
        "type": "message",
        "id": id,
        "session": state.id,
        "name": state.name,
        "verb": m.verb,
        "queue": found.queue,
        "position": position(state, found),
        "state": found.state,
        "outcome": found.outcome or (found.state if found.ended and found.state != "settled" else None),
        "turn": found.turn,
        "step": found.step,
        "text": text[:most],
        "cut": most is not None and len(text) > most,
        "source": dict(m.source),
        "key": m.key,
        "tag": m.tag,
        "version": m.version,
        "created_at": m.created,
        "due_at": m.due,
        "expires_at": m.expires,
        "attempts": list(found.attempts),
        "way": [_stop(stop) for stop in found.way],
    }


def _stop(stop: Stop) -> dict[str, Any]:
    """``by``: who, in words; ``source``: the same as the log has it, None where only the driver can be it."""
    by = stop.by if isinstance(stop.by, Mapping) else None
    words = by.get("by") if by else None
    return {**stop, "by": str(words or reasons.who(by)), "source": None if by is None else dict(by)}


def where(found: Receipt) -> str:
    """In words, where a message is that no longer waits."""
    if found.state in ("entered", "settled"):
        ended = f" and ended {found.outcome}" if found.outcome else ""
        return f"it entered turn {found.turn}{ended}"
    if found.state == "claimed":
        return f"turn {found.turn} has taken it"
    return f"it was {found.state}"
