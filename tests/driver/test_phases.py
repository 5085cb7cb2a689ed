"""The tables of states: complete, closed, and with a way out for an abort."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dshd.driver.phases import PHASES, PUBLIC, IllegalPhase, Phase, Work
from dshd.session.fold.events import Message
from dshd.session.fold.receipts import ENDED_BY_DECISION, TRANSITIONS, IllegalTransition, Receipt


def reachable(start: str, exits: Mapping[str, set[str]]) -> set[str]:
    seen, todo = set(), [start]
    while todo:
        state = todo.pop()
        if state not in seen:
            seen.add(state)
            todo.extend(exits[state])
    return seen


def test_every_phase_is_reachable_and_leads_to_a_phase() -> None:
    exits = {phase: set(events.values()) for phase, events in PHASES.items()}
    assert reachable("idle", exits) == set(PHASES)


def test_every_phase_that_is_not_terminal_has_an_exit_for_abort() -> None:
    assert [phase for phase, events in PHASES.items() if events and "abort" not in events] == []


def test_from_every_phase_that_is_not_terminal_the_driver_comes_to_idle() -> None:
    for phase, events in PHASES.items():
        if events:
            exits = {name: set(to.values()) for name, to in PHASES.items()}
            assert "idle" in reachable(phase, exits), phase


def test_a_wake_changes_a_phase_only_when_it_is_idle() -> None:
    changed = {phase: events["wake"] for phase, events in PHASES.items() if "wake" in events}
    assert {phase: to for phase, to in changed.items() if phase != to} == {"idle": "running"}


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_phase_has_no_exit_for_raises_and_changes_nothing(phase: str) -> None:
    events = {event for exits in PHASES.values() for event in exits}
    for event in events - PHASES[phase].keys():
        machine = Phase()
        machine.name = phase
        with pytest.raises(IllegalPhase):
            machine.on(event)
        assert machine.name == phase


def test_three_phases_are_shown() -> None:
    assert {PUBLIC.get(phase, phase) for phase in PHASES} == {"idle", "running", "maintenance"}


def test_the_first_cause_of_a_cancellation_wins() -> None:
    work = Work(1)
    assert work.cancel("user")
    assert not work.cancel("shutdown")
    assert (work.cause, work.scope.cancel_called) == ("user", True)


# --- receipts -------------------------------------------------------------------------------------------


def test_every_state_of_a_receipt_is_reachable_and_known() -> None:
    assert reachable("new", TRANSITIONS) == set(TRANSITIONS)


def test_from_every_state_of_a_receipt_a_message_can_end() -> None:
    ends = {"settled", *ENDED_BY_DECISION}
    for state in TRANSITIONS:
        assert reachable(state, TRANSITIONS) & ends, state


def test_an_abort_ends_what_waits_or_is_claimed_and_nothing_that_has_entered() -> None:
    for state in ("pending", "held"):
        assert "cleared" in TRANSITIONS[state]
    assert {"aborted", "cleared"} <= TRANSITIONS["claimed"]
    assert TRANSITIONS["entered"] == {"settled"}


def test_what_has_entered_never_waits_again() -> None:
    assert not reachable("entered", TRANSITIONS) & {"pending", "held", "claimed"}


@pytest.mark.parametrize("state", TRANSITIONS)
def test_a_receipt_takes_no_step_that_is_not_in_the_table(state: str) -> None:
    message = Message("s0000000.1", (), {}, 0, True, "followup")
    receipt = Receipt(message, state, None, 0)
    for other in set(TRANSITIONS) - TRANSITIONS[state]:
        with pytest.raises(IllegalTransition):
            receipt.to(other, at=1, seq=1)
