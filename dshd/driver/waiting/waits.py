"""An open step that waits, and its turn with it, for as long as it takes.

What a step waits for is in the log before anybody is told (`turns.Wait`, `OpenTurn.wait`), and while it
waits nothing of it runs. So such a turn outlives the daemon: neither a planned stop nor an opening closes it
(`OpenTurn.only_waits`), and the next daemon's driver opens it and waits on (`turn` says how it goes on).

| it waits for | until                            | ends earlier by                 | then             |
|--------------|----------------------------------|---------------------------------|------------------|
| the provider | the time that it named, or ours  | `driver/woken`: wake, a reload  | another attempt  |
| an answer    | a person gives it, or it expires |                                 | see `approvals`  |

An abort ends any wait at once, as it does all work. Waiting counts to no budget. What is said meanwhile
waits for the turn's next step.
"""

from __future__ import annotations

from typing import Final

import trio

from dshd.driver.places import since
from dshd.driver.run import Run, route_of
from dshd.session.fold.turns import Wait
from dshd.session.shown.activities import of_wait

LOOK_S: Final = 10.0  # how long a wall clock that jumps can go unnoticed


def of(run: Run) -> Wait | None:
    """What the open step waits for, as the log says."""
    turn = run.state.turn
    return turn.wait if turn is not None and turn.number == run.turn else None


async def rest(run: Run) -> None:
    """Return when what the open step waits for has come, with a place to go on in; meanwhile the turn has
    none. What follows must end the wait in the log before it has any effect.

    The wall clock decides, however it jumps, and after every change the log is asked again.

    Cancellation: at any time; the step waits on. With a stop of the daemon ahead it doesn't return.
    """
    while (wait := of(run)) is not None:
        if run.work.stop_at_boundary:
            run.work.cancel("shutdown")  # which leaves it open, for the next daemon
        elif wait.is_over(run.services.now()):
            break
        run.seat.leave()
        run.work.shows(of_wait(wait))
        left = LOOK_S if wait.until is None else (wait.until - run.services.now()) / 1000
        with trio.move_on_after(min(max(left, 0.0), LOOK_S)):
            await run.owner.next_change()
    await take_place(run)


async def take_place(run: Run) -> None:
    """Have a place to go on in. Cancellation: while it stands in line."""
    if not run.seat.taken:
        run.says(run.seat.words, waits="place")
    await run.seat.take(route_of(run.state), since(run.state))
