from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
from trio.testing import Sequencer, wait_all_tasks_blocked

from dshd.errors import Faulted
from dshd.tools.scheduler import groups, run_group
from dshd.tools.tool import Call, ToolOutput, text_output


def calls(names: str) -> list[Call]:
    return [Call(f"{name}{n}", name, "{}") for n, name in enumerate(names)]


def grouped(names: str) -> list[str]:
    found = groups(calls(names), lambda call: call.name == "r")
    return ["".join(call.name for call in group) for group in found]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", []),
        ("r", ["r"]),
        ("w", ["w"]),
        ("rrr", ["rrr"]),
        ("www", ["w", "w", "w"]),
        ("rwr", ["r", "w", "r"]),
        ("rrwrr", ["rr", "w", "rr"]),
        ("r" * 8, ["r" * 8]),
        ("r" * 9, ["r" * 8, "r"]),
        ("r" * 17 + "w", ["r" * 8, "r" * 8, "r", "w"]),
        ("wr" + "r" * 8, ["w", "r" * 8, "r"]),
    ],
)
def test_runs_of_read_only_calls_are_groups_of_at_most_eight_and_others_are_barriers(
    names: str, expected: list[str]
) -> None:
    assert grouped(names) == expected


def test_groups_hold_every_call_once_in_order() -> None:
    given = calls("rrrwrrwwr")
    found = groups(given, lambda call: call.name == "r")
    assert [call for group in found for call in group] == given


class Deliveries(list[str]):
    """What was handed over, as ``id=text``."""

    async def __call__(self, call: Call, output: ToolOutput) -> None:
        await trio.lowlevel.checkpoint()
        self.append(f"{call.id}={output.text}")


async def test_all_calls_of_a_group_are_running_before_any_has_ended() -> None:
    started: list[str] = []
    go = trio.Event()

    async def execute(call: Call) -> ToolOutput:
        started.append(call.id)
        await go.wait()
        return text_output("done")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            delivered = Deliveries()
            nursery.start_soon(run_group, calls("rrrrrrrr"), execute, delivered)
            await wait_all_tasks_blocked()
            assert len(started) == 8
            assert delivered == []
            go.set()
    assert len(delivered) == 8


def in_order(order: Sequence[int]) -> Callable[[Call], Awaitable[ToolOutput]]:
    """A body for calls r0, r1, ... that end in this order."""
    turn = Sequencer()

    async def execute(call: Call) -> ToolOutput:
        async with turn(order.index(int(call.id[1:]))):
            return text_output("done")

    return execute


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
async def test_outputs_are_delivered_in_the_models_order_whichever_ends_first(order: tuple[int, ...]) -> None:
    delivered = Deliveries()
    with trio.fail_after(5):
        await run_group(calls("rrr"), in_order(order), delivered)
    assert delivered == ["r0=done", "r1=done", "r2=done"]


async def test_an_output_is_delivered_as_soon_as_those_before_it_were() -> None:
    last = trio.Event()

    async def execute(call: Call) -> ToolOutput:
        if call.id == "r2":
            await last.wait()
        else:
            await trio.lowlevel.checkpoint()
        return text_output("done")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            delivered = Deliveries()
            nursery.start_soon(run_group, calls("rrr"), execute, delivered)
            await wait_all_tasks_blocked()
            assert delivered == ["r0=done", "r1=done"]
            last.set()


async def test_a_body_that_raises_gives_an_error_output_and_its_neighbours_go_on() -> None:
    async def execute(call: Call) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        if call.id == "r1":
            raise RuntimeError("broken inside")
        return text_output("done")

    delivered = Deliveries()
    with trio.fail_after(5):
        await run_group(calls("rrr"), execute, delivered)
    assert delivered[0] == "r0=done"
    assert "broken inside" in delivered[1]
    assert delivered[2] == "r2=done"


async def test_cancelling_keeps_what_had_ended_and_was_not_yet_delivered() -> None:
    async def execute(call: Call) -> ToolOutput:
        if call.id == "r1":
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return text_output("done")

    delivered = Deliveries()
    undelivered: dict[str, ToolOutput] = {}
    with trio.fail_after(5), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_group, calls("rrr"), execute, delivered, undelivered)
            await wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert delivered == ["r0=done"]
    assert {id: output.text for id, output in undelivered.items()} == {"r2": "done"}


async def test_a_delivery_that_was_cancelled_leaves_its_output_undelivered() -> None:
    async def execute(call: Call) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        return text_output("done")

    async def deliver(call: Call, output: ToolOutput) -> None:
        await trio.sleep_forever()

    undelivered: dict[str, ToolOutput] = {}
    with trio.fail_after(5), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_group, calls("rr"), execute, deliver, undelivered)
            await wait_all_tasks_blocked()
            scope.cancel()
    assert sorted(undelivered) == ["r0", "r1"]


async def test_a_group_that_is_cancelled_before_it_starts_runs_no_body_past_a_checkpoint() -> None:
    done: list[str] = []

    async def execute(call: Call) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        done.append(call.id)
        return text_output("done")

    with trio.fail_after(5), trio.CancelScope() as scope:
        scope.cancel()
        await run_group(calls("rrr"), execute, Deliveries())
    assert done == []


async def test_an_error_of_the_log_is_not_a_tools_error_and_comes_out_bare() -> None:
    async def execute(call: Call) -> ToolOutput:
        if call.id == "r0":
            raise Faulted("the disk failed")
        await trio.sleep_forever()
        raise AssertionError

    with trio.fail_after(5), pytest.raises(Faulted, match="the disk failed"):
        await run_group(calls("rr"), execute, Deliveries())


async def test_an_error_in_a_delivery_ends_the_group_and_comes_out_bare() -> None:
    async def execute(call: Call) -> ToolOutput:
        if call.id == "r1":
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return text_output("done")

    async def deliver(call: Call, output: ToolOutput) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no room")

    with trio.fail_after(5), pytest.raises(ValueError, match="no room"):
        await run_group(calls("rr"), execute, deliver)
