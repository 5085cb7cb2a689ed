"""Taking back what took messages out of the inbox: the newest removal, once. A decision on a scratch; no IO.

A message comes back to the queue it was in, to where its number puts it (one at the front: behind
the others there), without its ``expires`` and without the turn that it was meant for, or it would be
gone again at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from dshd.errors import Conflict, NotFound
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import inbox
from dshd.session.fold.events import Message, Queue, splice
from dshd.session.fold.state import State
from dshd.session.fold.undo import Removal


def decide(s: Scratch, by: Mapping[str, Any]) -> Removal:
    """Emit the return of the newest removal. Raises `NotFound` if there is none, `Conflict` if closed."""
    state = s.state
    if not state.removals:
        raise NotFound(f"{state.name}: there is nothing to undo.", hint=f"dshctl queue -s {state.name}",
                       outcome="not-written")  # fmt: skip
    if state.closed:
        raise Conflict(f"not undone: session {state.name} is closed.", hint=f"dshctl reopen {state.name}",
                       outcome="not-written")  # fmt: skip
    newest = state.removals[-1]
    ops = return_ops(state, newest.ids)
    s.emit("inbox/spliced", {"cause": "undo", "by": dict(by), "of": newest.seq, "ops": ops})
    return newest


def return_ops(state: State, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Ops that put ended messages back, each to its own queue and place."""
    back: dict[Queue, list[Message]] = {}
    for id in ids:
        receipt = state.receipts[id]
        message = attrs.evolve(receipt.message, expires=None, if_turn=None, now=False)
        back.setdefault(receipt.queue or "next-turn", []).append(message)
    return [op for queue, messages in back.items() for op in _into(queue, state.queues[queue], messages)]


def _into(queue: Queue, items: Sequence[Message], back: list[Message]) -> list[dict[str, Any]]:
    if not items:
        return [splice(queue, insert=back)]
    there, ops = list(items), []
    for message in back:
        before = _place(there, message)
        ops.append(splice(queue, insert=[message], before=before))
        at = len(there) if before is None else [m.id for m in there].index(before)
        there.insert(at, message)
    return ops


def _place(items: list[Message], message: Message) -> str | None:
    if message.front:
        return inbox.behind_front(tuple(items))
    return next((m.id for m in items if not m.front and number(m.id) > number(message.id)), None)


def number(id: str) -> int:
    return int(id.rpartition(".")[2])
