"""What a person may ask to have done to a session besides its work: its conversation is compacted."""

from __future__ import annotations

from typing import Any

from dshd.driver.wishes import Outcome, Wish
from dshd.errors import Conflict, Unavailable
from dshd.session.fold.who import Peer
from dshd.session.owner.live import Live
from dshd.session.shown import ends

Json = dict[str, Any]

EXITS = {"done": 0, "nothing": 0, "failed": 10, "aborted": 12}


async def compact(session: Live, peer: Peer) -> Json:
    """Compact the conversation: at once when nothing runs, else at the next step boundary; answers when it
    is done. Who asks meanwhile gets the same answer.

    Raises `Conflict` (it is closed, or a limit is used up), `Unavailable` (the daemon stops). Cancellation:
    at any time; what was asked for is done all the same. Durability: what is answered is on disk.
    """
    session.guard_person(peer)
    _check(session)
    outcome = await _over(session, session.driver.ask_compaction(peer.source()))
    return _answer(session, outcome)


def _check(session: Live) -> None:
    if session.state.closed:
        raise Conflict(f"not compacted: {session.name} is closed.",
                       hint=f"dshctl reopen {session.name}", outcome="not-written")  # fmt: skip
    if session.driver.draining:
        raise Unavailable("not compacted: the daemon is being stopped.", outcome="not-written")
    stop = session.driver.stops(session.state) if session.state.turn is None else None
    if stop is not None and stop.what in ("session_cost", "day_cost"):
        spent = f"{stop.what} ({stop.spent:g} of {stop.limit:g})"
        raise Conflict(f"not compacted: {session.name} has used up its {spent}.",
                       hint=f"dshctl show {session.name}", outcome="not-written")  # fmt: skip


async def _over(session: Live, wish: Wish) -> Outcome:
    while wish.outcome is None:
        if session.broken is not None:
            raise session.broken.refusal()
        if session.driver.draining and session.driver.phase.name == "idle":
            raise Unavailable("not compacted: the daemon is being stopped.", outcome="not-written")
        await session.next_change()
    return wish.outcome


def _answer(session: Live, outcome: Outcome) -> Json:
    exit = EXITS[outcome.reason]
    if outcome.reason == "failed":
        exit = ends.exit_of("error", outcome.error)
    return {
        "type": "compacted",
        "exit": exit,
        "session": session.id,
        "name": session.name,
        "outcome": outcome.reason,
        "compaction": outcome.number,
        "turn": outcome.turn,
        "before": outcome.before,
        "after": outcome.after,
        "window": outcome.window,
        "hidden": outcome.hidden,
        "pruned": outcome.pruned,
        "error": dict(outcome.error) if outcome.error else None,
    }
