"""What is asked of a session as a whole: abort, wake, close, reopen. Decisions on a scratch; no IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshd.errors import Conflict
from dshd.plural import count
from dshd.session.deciding import queueing, scheduling
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.schedules import standing
from dshd.session.fold.state import State
from dshd.session.fold.turns import Abort, requested
from dshd.session.shown import parking

By = Mapping[str, Any]


def abort(s: Scratch, number: int | None, asked: Abort) -> dict[str, Any]:
    """Emit what was asked of the running turn (``number``: which it must be) and, if it was, the
    clearing of the queues: ``{turn, cleared}``."""
    turn = s.state.turn
    if turn is not None and number is not None and turn.number != number:
        raise Conflict(f"not aborted: turn {turn.number} runs now.", outcome="not-written")
    if turn is not None:
        s.emit("abort/requested", requested(turn.number, asked))
    cleared = queueing.clear(s, None, asked.by) if asked.disposition == "clear" else []
    return {"turn": turn.number if turn else None, "cleared": cleared}


def wake(s: Scratch, by: By) -> bool:
    """Emit `driver/woken` if that changes anything: a waiting step tries at once, too."""
    state = s.state
    waits = bool(state.queues["next-turn"]) or any(m.wake for m in state.queues["next-step"])
    idle = state.parked is None and (state.turn is not None or state.runnable or not waits)
    if idle and not waits_for_provider(state):
        return False
    s.emit("driver/woken", {"by": dict(by)})
    return True


def waits_for_provider(state: State) -> bool:
    """Whether the open step waits for its provider, and would try at once if it were woken."""
    turn = state.turn
    return turn is not None and turn.only_waits and turn.wait is not None and turn.wait.what == "provider"


def try_now(s: Scratch, by: By) -> None:
    """Have a waiting step try at once, and change nothing else."""
    if waits_for_provider(s.state):
        s.emit("driver/woken", {"by": dict(by), "try": True})


def close(s: Scratch, by: By) -> None:
    """Raises `Conflict` while it runs, is about to go on with a turn, or holds messages."""
    state = s.state
    if state.closed:
        return
    if (why := _not_over(state)) is not None:
        raise Conflict(f"not closed: {state.name} {why}.",
                       hint=f"dshctl close --clear {state.name}", outcome="not-written")  # fmt: skip
    s.emit("session/closed", {"by": dict(by)})


def _not_over(state: State) -> str | None:
    if state.turn is not None:
        return f"runs turn {state.turn.number}"
    if state.pending:
        return f"holds {count(state.pending, 'message')}"
    return going_on(state) or has_schedules(state) or has_jobs(state) or has_agents(state)


def has_agents(state: State) -> str | None:
    """In words, which others work for it."""
    ids = [one.id for one in state.running_agents]
    return f"has {count(len(ids), 'subagent')} at work ({', '.join(ids[:5])})" if ids else None


def has_jobs(state: State) -> str | None:
    """In words, what of it runs still."""
    ids = [job.id for job in state.running_jobs]
    more = ", ..." if ids[5:] else ""
    return f"runs {count(len(ids), 'job')} ({', '.join(ids[:5])}{more})" if ids else None


def going_on(state: State) -> str | None:
    """In words, what of its work hasn't ended: maintenance, or a turn that it goes on with by itself."""
    if state.compaction is not None:
        return "is compacting its conversation"
    return f"is about to go on with turn {state.again}" if state.again is not None else None


def has_schedules(state: State) -> str | None:
    """In words, what is still to be sent to it by the clock."""
    ids = [one.id for one in standing(state.schedules)]
    return (
        f"has {count(len(ids), 'schedule')} ({', '.join(ids[:5])}{', ...' if ids[5:] else ''})"
        if ids
        else None
    )


def clear_and_close(s: Scratch, by: By) -> bool:
    """Close it with all that waits, and give up what it was to go on with. False, and nothing, while a
    turn, maintenance, a job or a subagent runs: that is stopped first."""
    works = s.state.turn is not None or s.state.compaction is not None
    if works or s.state.running_jobs or s.state.running_agents:
        return False
    queueing.clear(s, None, by)
    scheduling.clear(s, by)
    if not s.state.closed:
        s.emit("session/closed", {"by": dict(by)})
    return True


def reopen(s: Scratch, by: By) -> None:
    if s.state.closed:
        s.emit("session/reopened", {"by": dict(by)})


def run_is_over(state: State) -> bool:
    """Whether it is done, and none of its jobs is left."""
    return run_is_done(state) and not state.running_jobs


def run_is_done(state: State) -> bool:
    """Whether a session that `dshctl run` made has done what it was made for, and isn't closed yet. One that
    was stopped and can go on has not: it stays where it is seen until somebody has dealt with it. A
    subagent's has, however it ended: that is told to the session that it works for, which deals with it."""
    works = state.turn is not None or state.compaction is not None
    if state.closed or works or not state.settings.get("run"):
        return False
    over = state.last_turn > 0 and not state.pending and state.again is None and not state.scheduled
    over = over and all(one.told for one in state.agents.values())
    return over and (bool(state.settings.get("agent")) or not parking.is_cut_off(state))


def close_run(s: Scratch) -> None:
    if run_is_over(s.state):
        s.emit("session/closed", {"by": {"kind": "system", "via": "run"}})
