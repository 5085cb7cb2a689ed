"""``steer --now``: what a step does is cut short, and the turn goes straight to its next one.

That somebody is in a hurry is in the log and nowhere else: a message that waits in ``next-step`` says so
(`Message.now`). So it is asked anew after each change and wherever a step begins something that takes time:
nothing is armed that could go off later, and after a crash the message is one like any other.

| the step               | is cut short                                                                      |
|------------------------|-----------------------------------------------------------------------------------|
| asks the model         | what has streamed is kept as an interrupted answer; no call of it is made         |
| waits for its provider | it waits no longer                                                                |
| runs calls             | a running `bash` goes on as a job, others are stopped, those behind are skipped   |
| waits for a person     | the question is withdrawn, and its call skipped                                   |
| is not open yet        | the gates and a compaction are passed; the step that opens is cut short at once   |

What ended before stays as it is. Every call has a result that says what became of it.
"""

from __future__ import annotations

import trio

from dshd.driver.asking import asking
from dshd.driver.requests.request import Prepared
from dshd.driver.run import Run
from dshd.driver.waiting import waits
from dshd.model.blocks import Assembled
from dshd.session.deciding.closing import Ending, keep_partial
from dshd.session.fold.state import State


def wanted(state: State, now: int) -> bool:
    """Whether a message waits that is for the step that runs now."""
    turn = state.turn
    if turn is None or turn.abort is not None:
        return False
    hasty = [m for m in state.queues["next-step"] if m.now and (m.expires is None or m.expires > now)]
    return any(not state.is_parked(m.id) for m in hasty)


def scope(run: Run) -> trio.CancelScope:
    """A scope, to be entered at once, that is cancelled when somebody is in a hurry; already, if so."""
    run.work.cut = cut = trio.CancelScope()
    if wanted(run.state, run.services.now()):
        cut.cancel()
    return cut


async def ask(run: Run, prepared: Prepared | None) -> Assembled | None:
    """As `asking.ask`; None if that was cut short. Then what has streamed is written down."""
    with scope(run):
        return await asking.ask(run, prepared)
    model = run.call.route if run.call is not None else None
    partial = Ending(reason="interrupted", partial=run.partial(), model=model)
    await run.owner.record(lambda s: keep_partial(s, partial))
    run.give_up()
    await waits.take_place(run)
    return None
