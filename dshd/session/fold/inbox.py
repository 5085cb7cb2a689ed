"""The inbox: three ordered queues of messages, changed by splices and by nothing else.

Rules:

- `apply` takes all ops of one event or none (`IllegalSplice`).
- An id stands in at most one queue. A removed id that the same event inserts has moved.
- A claim takes, at a turn's first step, all of ``next-step`` and then at most one of
  ``next-turn``; at later steps all of ``next-step``. ``held`` is never claimed.
- What goes to the front of a queue goes behind the front-marked ones that are there already, so
  that two redirected messages keep their order.

Values, not objects: queues are a mapping of sequences that never change, shared freely between states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.session.fold.events import QUEUES, Message, Queue, splice
from dshd.session.fold.layer import grown

Queues = Mapping[Queue, Sequence[Message]]

EMPTY: Final[Queues] = {queue: () for queue in QUEUES}
Claimed = tuple[tuple[Queue, Message], ...]


class IllegalSplice(ValueError):
    """An op removes what isn't there, inserts an id twice, or points at an unknown neighbour."""


def apply(
    queues: Queues, ops: Iterable[Mapping[str, Any]], made: Mapping[str, Message] | None = None
) -> Queues:
    """The queues after all of ``ops``, in order. ``made``: messages of theirs that were read already.

    That no message stands in two places is looked at only when something moves: a plain send must
    not cost what is in the queue already, and the fold knows whether its ids are new.
    """
    after = dict(queues)
    moves = False
    for op in ops:
        queue: Queue = op["queue"]
        after[queue] = _one(after[queue], op, made or {})
        moves = moves or bool(op["remove"])
    if moves:
        ids = [m.id for queue in QUEUES for m in after[queue]]
        if len(ids) != len(set(ids)):
            raise IllegalSplice("a message stands in two places")
    return after


def _one(items: Sequence[Message], op: Mapping[str, Any], made: Mapping[str, Message]) -> Sequence[Message]:
    new = [made.get(m["id"]) or Message.from_json(m) for m in op["insert"]]
    if not op["remove"] and op.get("before") is None:
        return grown(items, new)
    gone = set(op["remove"])
    kept = [m for m in items if m.id not in gone]
    if len(items) - len(kept) != len(gone):
        raise IllegalSplice(f"{op['queue']} doesn't hold {sorted(gone - {m.id for m in items})}")
    at = _index(kept, op.get("before"))
    kept[at:at] = new
    return tuple(kept)


def _index(items: list[Message], before: str | None) -> int:
    if before is None:
        return len(items)
    for i, message in enumerate(items):
        if message.id == before:
            return i
    raise IllegalSplice(f"no {before} to insert before")


def find(queues: Queues, id: str) -> tuple[Queue, Message] | None:
    for queue in QUEUES:
        for message in queues[queue]:
            if message.id == id:
                return queue, message
    return None


def head(items: Sequence[Message]) -> str | None:
    """The id to insert before, for the very head of a queue."""
    return items[0].id if items else None


def behind_front(items: Sequence[Message]) -> str | None:
    """The id to insert before, for "the front, behind earlier ones of its kind"."""
    return next((m.id for m in items if not m.front), None)


def claimable(queues: Queues, *, first_step: bool) -> Claimed:
    """What a claim takes now, in the batch's order."""
    steps: Claimed = tuple(("next-step", m) for m in queues["next-step"])
    if not first_step:
        return steps
    return (*steps, *(("next-turn", m) for m in queues["next-turn"][:1]))


def claim_ops(claimed: Claimed) -> list[dict[str, Any]]:
    """Pure removals, one op a queue."""
    by_queue = _by_queue(claimed)
    return [splice(queue, remove=[m.id for m in items]) for queue, items in by_queue.items()]


def return_ops(queues: Queues, claimed: Claimed, *, to_held: frozenset[str] = frozenset()
               ) -> list[dict[str, Any]]:  # fmt: skip
    """Ops that put claimed messages back at the head of where they were, in the same order.

    ``to_held`` names those that are kept for a person instead.
    """
    kept = [(q, attrs.evolve(m, home=q)) for q, m in claimed if m.id in to_held]
    back = _by_queue(tuple((q, m) for q, m in claimed if m.id not in to_held))
    ops = [splice(q, insert=items, before=head(queues[q])) for q, items in back.items()]
    return ops + ([splice("held", insert=[m for _, m in kept])] if kept else [])


def expired(queues: Queues, now: int) -> list[tuple[Queue, Message]]:
    return [
        (queue, m) for queue in QUEUES for m in queues[queue] if m.expires is not None and m.expires <= now
    ]


def too_late(queues: Queues, turn: int) -> list[tuple[Queue, Message]]:
    """Those that were meant for this turn, or one before it, and still wait."""
    return [
        (queue, m) for queue in QUEUES for m in queues[queue] if m.if_turn is not None and m.if_turn <= turn
    ]


def remove_ops(found: Iterable[tuple[Queue, Message]]) -> list[dict[str, Any]]:
    return claim_ops(tuple(found))


def due(queues: Queues, now: int) -> list[Message]:
    """Held messages whose time has come, by due time."""
    ready = [m for m in queues["held"] if m.due is not None and m.due <= now]
    return sorted(ready, key=lambda m: m.due or 0)


def due_ops(queues: Queues, ready: list[Message]) -> list[dict[str, Any]]:
    """Ops that move due messages home: deferred ones to the front, timed ones to the end."""
    ops = [splice("held", remove=[m.id for m in ready])]
    for queue in ("next-step", "next-turn"):
        mine = [attrs.evolve(m, due=None, home=None) for m in ready if _home(m) == queue]
        early, late = [m for m in mine if m.front], [m for m in mine if not m.front]
        if early:
            ops.append(splice(queue, insert=early, before=head(queues[queue])))
        if late:
            ops.append(splice(queue, insert=late))
    return ops


def burden(standing: Iterable[tuple[Queue, Message]]) -> tuple[int, int, int]:
    """Of messages with their queues: bytes, how many come due or expire, how many wake."""
    weight = timed = waking = 0
    for queue, m in standing:
        weight += m.bytes
        timed += m.due is not None or m.expires is not None
        waking += m.wake and queue != "held"
    return weight, timed, waking


def next_moment(queues: Queues) -> int | None:
    """When (Unix ms) something comes due or expires next."""
    times = [m.due for m in queues["held"] if m.due is not None]
    times += [m.expires for q in QUEUES for m in queues[q] if m.expires is not None]
    return min(times, default=None)


def _home(message: Message) -> Queue:
    return message.home or ("next-turn" if message.verb == "followup" else "next-step")


def _by_queue(claimed: Claimed) -> dict[Queue, list[Message]]:
    by_queue: dict[Queue, list[Message]] = {}
    for queue, message in claimed:
        by_queue.setdefault(queue, []).append(message)
    return by_queue
