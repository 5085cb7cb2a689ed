"""Stopping what a session does, and letting it go on: abort, wake, retry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import trio

from dshd import wire
from dshd.driver import opening
from dshd.errors import Conflict, Invalid, NoSpace, Stalled
from dshd.session.deciding import lifecycle, queueing, raising, retrying
from dshd.session.deciding.budget import Now
from dshd.session.deciding.closing import Ending, close_turn
from dshd.session.deciding.scratch import Scratch
from dshd.session.disk.ledger import DEADLINE_S
from dshd.session.disk.proposals import Proposal
from dshd.session.fold.state import State
from dshd.session.fold.turns import Abort, OpenTurn
from dshd.session.fold.who import Peer
from dshd.session.owner.live import Live
from dshd.session.shown import parking

Json = dict[str, Any]


async def abort(session: Live, p: wire.AbortParams, peer: Peer) -> Json:
    ledger = session.guard_person(peer)
    running, doing, beside = session.state.turn, session.activity.doing, _beside(session.state)
    _check_runs(session.state, p.turn)
    asked = Abort("user", p.disposition, peer.source(), p.reason)
    clears = [m.id for items in session.state.queues.values() for m in items]
    clears = clears if p.disposition == "clear" else []
    in_line = running is None and session.driver.in_line
    decide = partial(_abort_in_line, hooked=session.around.services.hooked) if in_line else lifecycle.abort
    proposal = ledger.post(lambda s: decide(s, p.turn, asked))
    kept = running is not None and session.driver.abort(running.number, asked, clears)
    maintained = session.driver.maintains and p.turn is None
    if maintained:
        session.driver.cancel("user")
    with trio.move_on_after(DEADLINE_S):
        await proposal.done.wait()
        answer = _what_was_stopped(proposal, running if kept else None, clears)
        await _ended(session, answer["turn"])
        await _left(session, maintained)
        if p.tree:
            await session.agents.stop_all(peer.source())
        if p.disposition == "clear":
            await session.jobs.stop_all("clear", peer.source())
        await session.jobs.settled()
        return {**_aborted(session, answer, doing, maintained), **_ended_beside(session.state, beside)}
    late = "what it ran has not ended" if proposal.done.is_set() else "the disk has not answered"
    raise Stalled(f"the turn is stopped, but {late} for 10 s.", outcome="unknown")


def _abort_in_line(s: Scratch, number: int | None, asked: Abort, *, hooked: bool) -> Json:
    """Abort a turn that only waits for its place: it opens, and has ended. ``hooked``: hooks are to be told
    of that."""
    opened = opening.open_turn(s) if s.state.turn is None else None
    answer = lifecycle.abort(s, number, asked)
    if opened is not None:
        close_turn(s, Ending(reason="aborted", cause=asked.cause, hooked=hooked))
    return answer


def _check_runs(state: State, turn: int | None) -> None:
    running = state.turn
    if turn is not None and (running is None or running.number != turn):
        now = f"turn {running.number} runs" if running else "no turn runs"
        raise Conflict(f"not aborted: {state.name} doesn't run turn {turn}; {now}.",
                       outcome="not-written")  # fmt: skip


def _what_was_stopped(proposal: Proposal[Json], kept: OpenTurn | None, clears: list[str]) -> Json:
    """On a full disk what was asked is written with the end of the turn that was worked at. A turn that a
    crash has left open is ended by recovery, which knows nothing of it: then it is refused."""
    if isinstance(proposal.error, NoSpace) and kept is not None:
        return {"turn": kept.number, "cleared": clears}
    return proposal.unwrap()


async def _ended(session: Live, turn: int | None) -> None:
    ledger = session.writable()
    while turn is not None and session.state.turn is not None and session.state.turn.number == turn:
        await ledger.changed.wait()
        if session.broken is not None:
            return


async def _left(session: Live, maintained: bool) -> None:
    """Until the maintenance that was aborted is over."""
    ledger = session.writable()
    while maintained and session.driver.maintains and session.broken is None:
        await ledger.changed.wait()


def _aborted(session: Live, answer: Json, doing: str | None, maintained: bool) -> Json:
    """``doing``: what was stopped, a turn's work or maintenance."""
    state = session.state
    ended = state.turns.get(answer["turn"]) if answer["turn"] is not None else None
    return {
        "type": "aborted",
        "exit": 0,
        "session": session.id,
        "name": state.name,
        "turn": answer["turn"],
        "doing": doing if answer["turn"] is not None or maintained else None,
        "outcome": ended.reason if ended else None,
        "started_at": ended.started_at if ended else None,
        "ended_at": ended.ended_at if ended else None,
        "cleared": answer["cleared"],
        "parked": parking.parked(state),
        "survivors": _survivors(session),
    }


def _beside(state: State) -> tuple[list[str], list[str]]:
    """The subagents and the jobs that go on beside its turn."""
    return [one.id for one in state.running_agents], [job.id for job in state.running_jobs]


def _ended_beside(state: State, before: tuple[list[str], list[str]]) -> Json:
    """What of it has ended, and what goes on."""
    now = _beside(state)
    ended = [[id for id in was if id not in runs] for was, runs in zip(before, now, strict=True)]
    return {"agents": ended[0], "jobs": ended[1], "goes_on": [*now[0], *now[1]]}


def _survivors(session: Live) -> list[int]:
    """The pids of what its tools ran and nobody could end."""
    spawner = session.around.services.spawner
    return spawner.survivors(session.id) if spawner is not None else []


async def wake(session: Live, p: wire.WakeParams, peer: Peer) -> Json:
    _check_wake(p)
    ledger, by = session.guard_person(peer), peer.source()
    if p.message is not None:
        id = p.message
        await ledger.propose(lambda s: queueing.release(s, id, by))
        return woken(session, released=[id], unparked=None)
    services = session.around.services
    config, was = services.config(), parking.parked(session.state)
    waited = lifecycle.waits_for_provider(session.state)
    await services.days.known(config)
    now = Now(today=services.days.counted(config, services.now()))
    if p.add:
        await ledger.propose(lambda s: raising.decide(s, p.add, by, config, now))
        return woken(session, released=[], unparked=was)
    did = await ledger.propose(lambda s: _wake(s, by, config, now))
    return woken(session, released=[], unparked=was if did else None, tries=did and waited)


def _wake(s: Scratch, by: Mapping[str, Any], config: Any, now: Now) -> bool:
    if s.state.parked is not None:
        raising.check_wake(s.state, config, now)
    return lifecycle.wake(s, by)


def _check_wake(p: wire.WakeParams) -> None:
    if p.add and p.message is not None:
        raise Invalid("what is added is added to a session, not to a message @ $.add", outcome="not-written")
    raising.check(p.add)


def woken(session: Live, **what: Any) -> Json:
    """With what runs now."""
    state = session.state
    runs = state.turn is not None or state.runnable
    return {
        "type": "woken",
        "exit": 0,
        "session": session.id,
        "name": state.name,
        "runs": runs,
        "turn": state.turn.number if state.turn else (state.last_turn + 1 if runs else None),
        "pending": {queue: len(state.queues[queue]) for queue in state.queues},
        "tries": False,
        **what,
    }


async def retry(session: Live, p: wire.RetryParams, peer: Peer) -> Json:
    ledger, by = session.guard_person(peer), peer.source()
    again = await ledger.propose(lambda s: retrying.decide(s, p.message, by))
    state = session.state
    return {
        "type": "retrying",
        "exit": 0,
        "session": session.id,
        "name": state.name,
        "message": again.message,
        "retry_of": again.of.number,
        "outcome": again.of.reason,
        "turn": again.turn,
        "attempts": list(state.receipts[again.message].attempts),
        "seq": again.seq,
        "reopened": again.reopened,
        "parked": parking.parked(state),
        "warning": "stopping" if session.driver.draining else None,
    }
