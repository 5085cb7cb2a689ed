"""Which calls run together, and how their outputs come back in the order the model asked.

The rules: neighbouring read-only calls form a group of at most eight and run side by side; every other
call is a group of one, a barrier: what stands before it has ended, what stands behind has not begun.
Outputs are handed over in the model's order, whichever body ends first, each as soon as all before it
were. The order decides what the next request looks like, so it may not depend on timing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence

import attrs
import trio

from dshd.errors import DshError
from dshd.tools.registry import contained
from dshd.tools.tool import Call, ToolOutput

MOST_TOGETHER = 8

Execute = Callable[[Call], Awaitable[ToolOutput]]
Deliver = Callable[[Call, ToolOutput], Awaitable[None]]


def groups(calls: Sequence[Call], read_only: Callable[[Call], bool]) -> list[list[Call]]:
    """Calls of one assistant message as groups, in order. ``read_only`` is `Registry.read_only`."""
    found: list[list[Call]] = []
    room = 0  # how many more may join the last group
    for call in calls:
        if read_only(call):
            if room:
                found[-1].append(call)
                room -= 1
                continue
            room = MOST_TOGETHER - 1
        else:
            room = 0
        found.append([call])
    return found


@attrs.define(slots=True, eq=False)
class _Slot:
    call: Call
    output: ToolOutput | None = None
    done: trio.Event = attrs.field(factory=trio.Event)


async def run_group(
    group: Sequence[Call],
    execute: Execute,
    deliver: Deliver,
    undelivered: MutableMapping[str, ToolOutput] | None = None,
) -> None:
    """Run one group's calls together and deliver their outputs in the group's order.

    ``undelivered`` ({call id: output}) holds what has finished and is not yet handed over: an output
    is put there the moment its body ends, and taken out when ``deliver`` has returned for it.

    An exception of a body becomes an error output. A `DshError` from ``execute`` and any exception
    from ``deliver`` is the owner's: the rest of the group is cancelled and it is raised, bare.

    Cancellation: bodies are cancelled and Cancelled is raised; what is left in ``undelivered`` was
    finished before, and the caller still has to deliver it. ``deliver`` is not shielded: it either
    shields its own bounded bookkeeping or may be called again for the same call.
    """
    waiting = {} if undelivered is None else undelivered
    if len(group) == 1:
        return await _alone(group[0], execute, deliver, waiting)
    slots = [_Slot(call) for call in group]
    failed: list[Exception] = []

    async def body(slot: _Slot) -> None:
        try:
            slot.output = waiting[slot.call.id] = await _contain(slot.call, execute)
        except DshError as error:
            failed.append(error)
            nursery.cancel_scope.cancel()
        slot.done.set()

    async with trio.open_nursery() as nursery:
        for slot in slots:
            nursery.start_soon(body, slot)
        try:
            await _deliver_in_order(slots, deliver, waiting)
        except Exception as error:
            failed.append(error)
            nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]


async def _alone(
    call: Call, execute: Execute, deliver: Deliver, waiting: MutableMapping[str, ToolOutput]
) -> None:
    """A group of one needs no tasks beside this one."""
    output = waiting[call.id] = await _contain(call, execute)
    await deliver(call, output)
    waiting.pop(call.id, None)


async def _deliver_in_order(
    slots: Sequence[_Slot], deliver: Deliver, waiting: MutableMapping[str, ToolOutput]
) -> None:
    for slot in slots:
        await slot.done.wait()
        if slot.output is None:
            return
        await deliver(slot.call, slot.output)
        waiting.pop(slot.call.id, None)


async def _contain(call: Call, execute: Execute) -> ToolOutput:
    try:
        return await execute(call)
    except DshError:
        raise
    except Exception as error:
        return contained(call.name, error)
