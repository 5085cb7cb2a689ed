"""Whether a held message waits for a person who may not know: the one answer for `status` and `why`.

| who held it                                           | what       | is among the needs |
|-------------------------------------------------------|------------|--------------------|
| a person (``--hold``, ``queue``), or who edited since | ``asked``  | no                 |
| a crash, as ``--on-crash hold`` says                  | ``crash``  | yes                |
| its third return after an error                       | ``failed`` | yes                |
| a repair of the log                                   | ``repair`` | yes                |
| the clock or a gate, until a time                     | none       | no: it comes due   |
"""

from __future__ import annotations

from dshd.session.fold.receipts import Receipt
from dshd.session.fold.state import State


def cause(found: Receipt) -> str:
    """What a held message was held for."""
    by = found.way[-1].by or {}
    via = by.get("via") if by.get("kind") == "system" else None
    crashed = found.message.on_crash == "hold" and not found.requeues
    return {"repair": "repair", "driver": "crash" if crashed else "failed"}.get(str(via), "asked")


def unasked(state: State) -> list[Receipt]:
    """Those that nobody asked to be held, and that nothing moves on but a person; the first first."""
    held = (state.receipts[m.id] for m in state.queues["held"] if m.due is None)
    return [found for found in held if cause(found) != "asked"]
