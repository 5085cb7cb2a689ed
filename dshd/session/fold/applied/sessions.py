"""Events that concern the session as a whole: its settings, its life, what it sends along, repairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dshd.log.codec import Event
from dshd.session.fold import gap as gaps
from dshd.session.fold.applied import schedules
from dshd.session.fold.applied.shared import Appliers
from dshd.session.fold.state import TOLD_APART, Parked, State

_NOT_SETTINGS: Final = ("version", "id", "created", "parent", "seed", "origin", "depth")


def _header(state: State, event: Event) -> None:
    state.header = event.data
    state.settings = {k: v for k, v in event.data.items() if k not in _NOT_SETTINGS}


def _changed(state: State, event: Event) -> None:
    new = event.data["set"]
    state.settings = {**state.settings, **new, **_said(state, new)}
    state.raised = {name: by for name, by in state.raised.items() if name not in new}


def _said(state: State, new: Mapping[str, Any]) -> dict[str, Any]:
    """Whose word the changed settings are now: see `TOLD_APART`."""
    told, names = state.settings.get("origins"), [name for name in TOLD_APART if name in new]
    if not names or not isinstance(told, Mapping):
        return {}
    return {"origins": {**told, **{name: "default" if new[name] is None else "session" for name in names}}}


def _closed(state: State, event: Event) -> None:
    """Nothing goes on behind it, not even when it is opened again: what had ended so far has ended so."""
    state.closed = True
    state.resume = state.retry = state.adding = None


def _reopened(state: State, event: Event) -> None:
    state.closed = False


def _opened(state: State, event: Event) -> None:
    if state.repaired:
        state.repaired, state.doubted = False, ()


def _forked(state: State, event: Event) -> None:
    """Behind what was copied: it is history here, and owes, costs and holds back nothing."""
    if state.turn is not None or state.pending:
        raise KeyError("a fork that is neither idle nor empty")
    state.title, state.crashes, state.begun = event.data["title"], 0, False
    state.ends = {}
    state.spent, state.lately, state.raised = {}, {}, {}
    state.parked = state.resume = state.retry = state.adding = None
    state.approvals, state.allowed, state.jobs, state.agents, state.wakes = {}, (), {}, {}, 0
    state.compaction = state.asked = None


def _imported(state: State, event: Event) -> None:
    """Nothing that was on its way elsewhere goes on here before somebody says so."""
    if state.turn is not None:
        raise KeyError(f"turn {state.turn.number} is still open")
    state.ends = {}
    state.parked = Parked("import", None, event.time, event.seq, event.data.get("by"))
    state.lately = {}  # of another day, or place
    state.approvals, state.allowed, state.jobs, state.agents, state.wakes = {}, (), {}, {}, 0
    state.resume = state.retry = state.adding = None
    state.woken, state.crashes = False, 0
    schedules.imported(state, event)


def _request_header(state: State, event: Event) -> None:
    state.request_header = event.data


def _request_context(state: State, event: Event) -> None:
    state.request_context = event.data


def _todo(state: State, event: Event) -> None:
    state.todo = tuple(event.data["items"])


def _gap(state: State, event: Event) -> None:
    """A repaired log: from here on, what refers into the gap is made to fit, or ignored."""
    state.gap, state.retry, state.adding = True, None, None
    state.doubted = (*state.doubted, *gaps.doubted(state))
    lost = event.data["last"] - event.data["first"] + 1
    state.next_message += lost  # each may have brought one; a number is given once
    state.lost_turns += (lost + 1) // 2


def _repaired(state: State, event: Event) -> None:
    state.repaired = True


TABLE: Final[Appliers] = {
    "session/header": _header,
    "session/changed": _changed,
    "session/closed": _closed,
    "session/reopened": _reopened,
    "session/opened": _opened,
    "session/forked": _forked,
    "session/imported": _imported,
    "request/header": _request_header,
    "request/context": _request_context,
    "todo/write": _todo,
    "log/gap": _gap,
    "log/repaired": _repaired,
}
