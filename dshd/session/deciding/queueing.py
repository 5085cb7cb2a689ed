"""Queue commands: what a person may do to messages that still wait. Sans-IO, decided on a scratch.

Every command is one `inbox/spliced` event that names who did it. A message that was claimed or
has ended is refused with a sentence that says where it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.errors import Conflict, NotFound
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import inbox
from dshd.session.fold.events import QUEUES, Message, Queue, splice
from dshd.session.fold.state import State
from dshd.session.shown import views

By = Mapping[str, Any]


def waiting(state: State, id: str) -> tuple[Queue, Message]:
    """Where a pending or held message stands; raises `NotFound` or `Conflict`."""
    found = inbox.find(state.queues, id)
    if found is not None:
        return found
    receipt = state.receipts.get(id)
    if receipt is None:
        raise NotFound(f'no message "{id}"', hint="dshctl queue", outcome="not-written")
    raise Conflict(f"{id} doesn't wait any more: {views.where(receipt)}.",
                   hint=f"dshctl message {id}", outcome="not-written")  # fmt: skip


def edit(s: Scratch, id: str, content: tuple[Mapping[str, Any], ...], version: int | None, by: By) -> None:
    """Replace a waiting message's content in place. ``version``: the one that was read."""
    queue, message = waiting(s.state, id)
    if version is not None and version != message.version:
        raise Conflict(f"{id} was edited meanwhile: it is at version {message.version}.",
                       hint=f"dshctl queue show {id}", outcome="not-written")  # fmt: skip
    edited = attrs.evolve(message, content=content, version=message.version + 1)
    after = _next_to(s.state, queue, id)
    _emit(s, "edit", by, [splice(queue, remove=[id], insert=[edited], before=after)])


def remove(s: Scratch, ids: Sequence[str], by: By) -> None:
    found = tuple(waiting(s.state, id) for id in dict.fromkeys(ids))
    _emit(s, "remove", by, inbox.remove_ops(found))


def clear(s: Scratch, queue: Queue | None, by: By) -> list[str]:
    """Remove all of a queue (None: of every queue); the ids. Clearing nothing writes nothing."""
    found = [(q, m) for q, items in s.state.queues.items() if queue in (None, q) for m in items]
    if found:
        _emit(s, "clear", by, inbox.remove_ops(found))
    return [m.id for _, m in found]


def move(s: Scratch, how: str, ids: Sequence[str], by: By) -> None:
    """``how`` is first, last, promote or demote (see `_MOVES`)."""
    target, at_head = _MOVES[how]
    found = [waiting(s.state, id) for id in dict.fromkeys(ids)]
    removals = inbox.remove_ops(found)
    for queue in dict.fromkeys(target or q for q, _ in found):
        mine = [_moved(m, queue, front=at_head) for q, m in found if (target or q) == queue]
        gone = {m.id for _, m in found}
        rest = tuple(m for m in s.state.queues[queue] if m.id not in gone)
        removals.append(splice(queue, insert=mine, before=inbox.head(rest) if at_head else None))
    _emit(s, "move", by, removals)


def _moved(message: Message, queue: Queue, *, front: bool) -> Message:
    """As it stands in its new place; outside of held nothing of its waiting there is left."""
    if queue == "held":
        return attrs.evolve(message, front=front)
    return attrs.evolve(message, front=front, due=None, home=None)


def release(s: Scratch, id: str, by: By) -> None:
    """Let a held message go: it is the last of its queue."""
    queue, message = waiting(s.state, id)
    if queue != "held":
        raise Conflict(f"{id} isn't held: it waits in {queue}.", hint=f"dshctl why {id}",
                       outcome="not-written")  # fmt: skip
    ops = inbox.due_ops(s.state.queues, [attrs.evolve(message, front=False)])
    _emit(s, "release", by, ops)


_MOVES: Final[dict[str, tuple[Queue | None, bool]]] = {
    "first": (None, True),
    "last": (None, False),
    "promote": ("next-step", False),
    "demote": ("next-turn", False),
}


def _next_to(state: State, queue: Queue, id: str) -> str | None:
    ids = [m.id for m in state.queues[queue]]
    at = ids.index(id)
    return ids[at + 1] if at + 1 < len(ids) else None


def _emit(s: Scratch, cause: str, by: By, ops: list[dict[str, Any]]) -> None:
    s.emit("inbox/spliced", {"cause": cause, "by": dict(by), "ops": ops})


def expire(s: Scratch) -> None:
    """End what has expired; decided before every claim."""
    gone = inbox.expired(s.state.queues, s.now)
    if gone:
        _emit(s, "expire", _CLOCK, inbox.remove_ops(gone))


def come_due(s: Scratch) -> None:
    """Move held messages whose time has come to their queues."""
    ready = inbox.due(s.state.queues, s.now)
    if ready:
        _emit(s, "due", _CLOCK, inbox.due_ops(s.state.queues, ready))


def tick(s: Scratch) -> None:
    """What the clock brings about."""
    expire(s)
    come_due(s)


def hold_doubted(s: Scratch, doubted: Iterable[str]) -> None:
    """Keep for a person what waits of these: after a repair, what became of it is not known."""
    ids = set(doubted)
    found = [(q, m) for q in QUEUES if q != "held" for m in s.state.queues[q] if m.id in ids]
    if found:
        held = [attrs.evolve(m, home=q, due=None) for q, m in found]
        _emit(s, "hold", _REPAIR, [*inbox.remove_ops(found), splice("held", insert=held)])


_REPAIR: Final[By] = {"kind": "system", "via": "repair"}
_CLOCK: Final[By] = {"kind": "system", "via": "clock"}
Decide = Callable[[Scratch], Any]
