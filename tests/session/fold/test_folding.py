"""The tables of the fold: each event is in one of them."""

from __future__ import annotations

from dshd.session.fold.applied import approvals, hooks, messages, schedules, sessions, steps, turns
from dshd.session.fold.events import KNOWN_TYPES
from dshd.session.fold.folding import APPLIERS


def test_no_event_is_in_two_tables_and_each_is_of_the_vocabulary() -> None:
    tables = (sessions, messages, turns, steps, schedules, hooks, approvals)
    assert len(APPLIERS) == sum(len(module.TABLE) for module in tables)
    assert APPLIERS.keys() <= KNOWN_TYPES
