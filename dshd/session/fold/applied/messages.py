"""Events that concern messages while they wait: what is put in, moved, taken out, claimed; and waking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dshd.log.codec import Event
from dshd.session.fold import counting, inbox, undo
from dshd.session.fold.applied.shared import Appliers, aborted, attached, note_removal
from dshd.session.fold.events import QUEUES, Message, Queue
from dshd.session.fold.receipts import first_receipt
from dshd.session.fold.schedules import became
from dshd.session.fold.state import Keyed, State, fingerprint
from dshd.session.fold.turns import Abort
from dshd.session.fold.values import evolve

_NAMES: Final[dict[str, Queue]] = {queue: queue for queue in QUEUES}  # one string for each, not one a message

_ENDED_BY_CAUSE: Final = {
    "claim": "claimed", "remove": "removed", "clear": "cleared",
    "expire": "expired", "supersede": "superseded",
}  # fmt: skip


def _spliced(state: State, event: Event) -> None:
    data, before = event.data, state.queues
    gone = {id: op["queue"] for op in data["ops"] for id in op["remove"]}
    came = [(_NAMES[op["queue"]], Message.from_json(m)) for op in data["ops"] for m in op["insert"]]
    state.queues = inbox.apply(before, data["ops"], {m.id: m for _, m in came})
    _weigh(state, bool(gone), came)
    moved = {m.id for _, m in came}
    if len(moved) != len(came):
        raise KeyError("a message is inserted twice")
    out = gone.keys() - moved
    left = tuple(m.id for queue in QUEUES for m in before[queue] if m.id in out) if out else ()
    by = data.get("by")
    if data["cause"] == "send" and not gone:
        for queue, message in came:
            _came(state, event, queue, message, moved=False)
        return _interrupted(state, data)
    if data["cause"] == "supersede":  # who did it is the message that came instead
        by = {**(by or {}), "by": next(iter(moved - set(gone)), None)}
    for id in left:
        _left(state, event, id, by)
    for queue, message in came:
        _came(state, event, queue, message, moved=message.id in gone)
        if data["cause"] == "supersede" and message.id not in gone:
            state.receipts[message.id] = evolve(state.receipts[message.id], superseded=left)
    if data["cause"] in undo.CAUSES:
        note_removal(state, event, data["cause"], left)
    elif data["cause"] == "undo":
        state.removals = undo.undone(state.removals, data["of"])
    if data["cause"] == "claim":
        _claimed(state, tuple(inbox.find(before, id) or _no(id) for id in gone))
    state.woken = state.woken and bool(state.queues["next-turn"])
    _interrupted(state, data)


def _interrupted(state: State, data: Mapping[str, Any]) -> None:
    if "interrupts" in data and state.turn and state.turn.number == data["interrupts"]:
        aborted(state, Abort("interrupt", "continue", data.get("by"), data.get("reason")))


def _weigh(state: State, moves: bool, came: Sequence[tuple[Queue, Message]]) -> None:
    """Keep ``weight``, ``timed``, ``waking``: a plain insertion adds, all else counts anew."""
    if moves:
        standing = ((queue, m) for queue in QUEUES for m in state.queues[queue])
        state.weight, state.timed, state.waking = inbox.burden(standing)
    else:
        weight, timed, waking = inbox.burden(came)
        state.weight += weight
        state.timed += timed
        state.waking += waking


def _no(id: str) -> tuple[Queue, Message]:
    raise KeyError(id)


def _left(state: State, event: Event, id: str, by: Any) -> None:
    data = event.data
    receipt = state.receipts[id]
    turn = data.get("turn") if data["cause"] == "claim" else None
    if data["cause"] != "claim":
        became(state, receipt.message, _ENDED_BY_CAUSE[data["cause"]])
    state.receipts[id] = receipt.to(
        _ENDED_BY_CAUSE[data["cause"]], at=event.time, seq=event.seq, by=by, turn=turn
    )


def _came(state: State, event: Event, queue: Queue, message: Message, *, moved: bool) -> None:
    """A message is in a queue now: a new one, one that moved or was edited, or one that is back."""
    by, cause = event.data.get("by"), event.data["cause"]
    receipt = state.receipts.get(message.id)
    if cause == "undo":
        became(state, message, None)
    if receipt is None:
        state.receipts[message.id] = first_receipt(message, queue, at=event.time, seq=event.seq, by=by)
        _said(state, event, queue, message)
        return
    if receipt.state in ("pending", "held") and not moved:
        raise KeyError(f"{message.id} stands in two places")
    target = "held" if queue == "held" else "pending"
    anew = {"turn": None, "step": None, "outcome": None} if cause == "undo" else {}
    failed = cause in ("requeue", "hold") and not moved and event.data.get("failed", False)
    state.receipts[message.id] = receipt.to(
        target, at=event.time, seq=event.seq, by=by, cause=cause, message=message, queue=queue,
        requeues=receipt.requeues + failed, **anew,
    )  # fmt: skip
    attached(state, message)
    if state.turn is not None and not moved:
        kept = tuple((q, m) for q, m in state.turn.claimed if m.id != message.id)
        state.turn = evolve(state.turn, claimed=kept)


def _said(state: State, event: Event, queue: Queue, message: Message) -> None:
    """A new message: it takes its number and its key, and may unpark."""
    state.next_message = max(state.next_message, int(message.id.rpartition(".")[2]) + 1)
    attached(state, message)
    if message.key is not None:
        state.keys[message.key] = Keyed(message.id, fingerprint(message))
    if message.kind == "user":
        state.wakes = 0
    elif message.wake and (message.kind == "job" or message.source.get("via") in state.agents):
        state.wakes += 1
    if not state.title and message.kind == "user":
        state.title = message.text.strip().partition("\n")[0][:200]
    if queue != "held" and state.unparks(message):
        state.parked, state.crashes = None, 0


def _claimed(state: State, claimed: inbox.Claimed) -> None:
    if state.turn is None:
        raise KeyError("a claim outside a turn")
    opener = next((m for q, m in claimed if q == "next-turn"), None)
    state.turn = evolve(
        state.turn,
        claimed=(*state.turn.claimed, *claimed),
        opener=opener.id if opener else state.turn.opener,
        then_park=opener.id if opener and opener.then_park else state.turn.then_park,
    )


def _woken(state: State, event: Event) -> None:
    """Unparks, and ends a wait for the provider. A wish to retry alone does not unpark, one that comes with a
    raised budget (``add``) does; a mere wish to ``try`` what waits does not either."""
    _try_now(state, event)
    if event.data.get("try"):
        return
    state.crashes = 0
    retry, add = event.data.get("retry"), event.data.get("add")
    if retry is not None:
        state.retry, state.adding = retry, None
    if add is not None:
        counting.raised(state, event, add)
    if retry is None or add is not None:
        state.parked = None
        state.woken = bool(state.queues["next-turn"])


def _try_now(state: State, event: Event) -> None:
    wait = state.turn.wait if state.turn is not None else None
    if state.turn is not None and wait is not None and wait.what == "provider":
        state.turn = evolve(state.turn, wait=evolve(wait, until=event.time, asked={}))


TABLE: Final[Appliers] = {
    "inbox/spliced": _spliced,
    "driver/woken": _woken,
}
