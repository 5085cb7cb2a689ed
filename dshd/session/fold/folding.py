"""The fold: `apply(state, event)` is the one function that changes a `State`; the tables in `applied` say
which event does what.

Rebuilding from the log gives the same state (`State.digest` compares two). The daemon never folds an event of
class *now* before it is durable: it decides on a `layer` and keeps it only once the batch is on disk (see
`dshd.session.deciding.scratch`).

Who may do what is not decided here. The fold believes the log; what can't have happened raises `Nonsense`,
which makes the log damaged, not the daemon.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dshd.log.codec import Event
from dshd.session.fold import gap as gaps
from dshd.session.fold import surface
from dshd.session.fold.applied import (
    approvals,
    compactions,
    hooks,
    jobs,
    messages,
    schedules,
    sessions,
    steps,
    subagents,
    turns,
)
from dshd.session.fold.applied.shared import Appliers
from dshd.session.fold.state import State
from dshd.session.fold.surface import Entry

# An event that is in no table changes nothing but the state's seq, its time and, if it says so, the surface.
APPLIERS: Final[Appliers] = {
    **sessions.TABLE,
    **messages.TABLE,
    **turns.TABLE,
    **steps.TABLE,
    **compactions.TABLE,
    **schedules.TABLE,
    **hooks.TABLE,
    **approvals.TABLE,
    **jobs.TABLE,
    **subagents.TABLE,
}


class Nonsense(ValueError):
    """An event that can't follow what came before it."""


def fold(events: Iterable[Event], state: State | None = None) -> State:
    state = state or State()
    for event in events:
        apply(state, event)
    return state


def apply(state: State, event: Event) -> None:
    """Fold one event into ``state``, in place. Raises `Nonsense`."""
    try:
        for fitted in gaps.fit(state, event) if state.gap else (event,):
            _apply(state, fitted)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # whatever stands in a log
        if not state.gap:
            raise Nonsense(f"seq {event.seq} ({event.type}): {error}") from error
    last = event.data["last"] if event.type == "log/gap" else event.seq
    state.seq, state.time = last, event.time


def _apply(state: State, event: Event) -> None:
    stands_for_others = event.surface is not None and event.surface != "append"
    handler = compactions.replaced if stands_for_others else APPLIERS.get(event.type)
    if handler is not None:
        handler(state, event)
    if event.surface is not None:
        sources = event.sources if state.gap else None
        surface.place(state.surface, Entry(event.seq, event.type, event.data), event.surface, sources)
