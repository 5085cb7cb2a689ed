"""The table of a call's life: every state can be reached, and every one ends."""

from __future__ import annotations

import pytest

from dshd.spawn.lifecycle import TABLE, Illegal, State, step


def reachable(start: State) -> set[State]:
    seen: set[State] = {start}
    queue: list[State] = [start]
    while queue:
        for target in TABLE[queue.pop()].values():
            if target not in seen:
                seen.add(target)
                queue.append(target)
    return seen


def test_every_state_can_be_reached() -> None:
    assert reachable("running") == set(TABLE)


@pytest.mark.parametrize("state", [state for state in TABLE if TABLE[state]])
def test_every_state_takes_a_stop_and_has_a_deadline_that_leads_on(state: State) -> None:
    assert "stop" in TABLE[state]
    assert TABLE[state]["deadline"] != state
    assert "done" in reachable(state)


def test_deadlines_alone_lead_from_running_to_done() -> None:
    state: State = "running"
    way = [state]
    while state != "done":
        state = step(state, "deadline")
        way.append(state)
    assert way == ["running", "ending", "killing", "draining", "done"]


def test_a_main_process_that_ends_with_children_left_does_not_end_the_call() -> None:
    assert step("running", "main-exited") == "ending"
    assert step("running", "alone") == "draining"


def test_an_event_without_an_exit_raises() -> None:
    with pytest.raises(Illegal, match="drained while running"):
        step("running", "drained")
    with pytest.raises(Illegal):
        step("done", "stop")
