"""How long a deferred batch is held. Sans-IO.

A gate that defers the same batch again and again is asked less and less often, for each time it is asked
the log grows by a turn in which nothing is done. It is held for what the gate wants, and at least for a
share of the time for which that gate has put it off already:

| the gate                       | is asked first after | share | so that                           |
|--------------------------------|----------------------|-------|-----------------------------------|
| named a time of more than 1 s  | that                 | 1/10  | its own time holds ten times over |
| named none, or less than that  | 30 s; or 1 s         | 1     | the time doubles                  |

The share adds up to 5 min, and not beyond.
"""

from __future__ import annotations

from typing import Final

import attrs

from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.events import splice
from dshd.session.fold.receipts import Receipt

LEAST_S: Final = 1.0
MOST_S: Final = 366 * 86400.0
UNNAMED_S: Final = 30.0
LONGEST_SHARE_MS: Final = 300_000
_BETWEEN: Final = frozenset(("pending", "claimed"))  # on the way from one deferral to the next


def hold(s: Scratch, by: str, reason: str, seconds: float | None) -> None:
    """Hold what is claimed until its time; then it is back at the front of where it was."""
    turn = s.state.turn
    assert turn is not None
    put_off = min((_put_off(s.state.receipts[m.id], by, s.now) for _, m in turn.claimed), default=0)
    until = s.now + wait(seconds, put_off)
    held = [attrs.evolve(m, due=until, home=q, front=True, now=False) for q, m in turn.claimed]
    if held:
        s.emit("inbox/spliced", {
            "cause": "hold",
            "by": {"kind": "plugin", "via": by, "reason": reason},
            "turn": turn.number,
            "ops": [splice("held", insert=held)],
        })  # fmt: skip


def wait(seconds: float | None, put_off: int) -> int:
    """For how many ms; ``put_off``: ms for which the gate has done so already."""
    asked = UNNAMED_S if seconds is None else min(max(LEAST_S, seconds), MOST_S)
    named = seconds is not None and seconds > LEAST_S
    share = put_off // 10 if named else put_off
    return max(round(asked * 1000), min(share, LONGEST_SHARE_MS))


def _put_off(found: Receipt, by: str, now: int) -> int:
    """Since when this gate, and nobody else, has had a word in what becomes of it; ms."""
    since = now
    for stop in reversed(found.way):
        if stop.state == "held" and (stop.by or {}).get("kind") == "plugin" and stop.by.get("via") == by:
            since = stop.at
        elif stop.state not in _BETWEEN or stop.cause not in (None, "due"):
            break
    return max(0, now - since)
