"""Waiting for a message to end, or for a session to come to rest.

After every change it is asked again: has it ended; and if not, can it still, by itself?
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import trio

from dshd.session.fold.state import State
from dshd.session.fold.turns import EndedTurn
from dshd.session.owner.live import Live
from dshd.session.shown import ends, questions

Json = dict[str, Any]


async def for_message(session: Live, id: str, *, stay: bool, asked: Collection[str] | None = None) -> Json:
    let_go = await session.recall(("m", id))
    try:
        return await _for_message(session, id, stay, asked)
    finally:
        let_go()


async def _for_message(session: Live, id: str, stay: bool, asked: Collection[str] | None) -> Json:
    began = trio.current_time()
    await session.go_on_if_owed()
    while True:
        session.check_message(id)
        waited = _ms_since(began)
        result = ends.settled(session.state, id, waited)
        if result is None:
            result = _asks(session, id, waited, stay, asked) or _stuck(session, id, waited, stay)
        if result is not None:
            return result
        await session.next_change()


async def for_rest(session: Live, *, stay: bool, asked: Collection[str] | None = None) -> Json:
    began = trio.current_time()
    await session.go_on_if_owed()
    while True:
        if session.broken is not None:
            raise session.broken.refusal()
        asks = [*questions.approvals(session.state), *session.agents.asks(all=True)]
        if _unknown(asks, asked, stay):
            return ends.asks(session.state, None, asks, _ms_since(began))
        if session.quiet:
            state = session.state
            waiting = state.pending - len(state.queues["held"])
            code = 18 if state.parked and waiting else 0
            if code == 0 or not stay:
                last = state.turns.get(state.last_turn)
                return ends.result(state, message=None, turn=last, exit=code, waited_ms=_ms_since(began))
        await session.next_change()


def _ms_since(began: float) -> int:
    return round((trio.current_time() - began) * 1000)


def _unknown(asks: list[Json], asked: Collection[str] | None, stay: bool) -> bool:
    """Whether an approval waits that who waits wants to be told of."""
    if asked is None:
        return bool(asks) and not stay
    return any(one["id"] not in asked for one in asks)


def _asks(session: Live, id: str, waited: int, stay: bool, asked: Collection[str] | None) -> Json | None:
    """The result of a message that can't end before a person has answered something: its turn asks, or a
    subagent that it waits for, or the turn that it waits behind."""
    state = session.state
    found = state.receipts[id]
    concerns = found.state != "held" and not (found.state == "pending" and state.is_parked(id))
    if session.broken is not None or not concerns:
        return None
    asks = [*questions.approvals(state), *session.agents.asks()]
    return ends.asks(state, id, asks, waited) if _unknown(asks, asked, stay) else None


def _stuck(session: Live, id: str, waited: int, stay: bool) -> Json | None:
    """The result of a message that can't end by itself any more."""
    state = session.state
    if session.broken is not None:
        return ends.result(state, message=id, turn=None, exit=7, waited_ms=waited)
    found = state.receipts[id]
    if stay or found.state not in ("pending", "held"):
        return None
    person = found.queue == "held" and found.message.due is None
    if person or state.is_parked(id) or (session.quiet and found.queue != "held"):
        unconfigured = None if person else _unconfigured(state)
        code = 9 if unconfigured else 18
        return ends.result(state, message=id, turn=unconfigured, exit=code, waited_ms=waited)
    return None


def _unconfigured(state: State) -> EndedTurn | None:
    """The turn that parked the session because no model can be reached as things are set up."""
    last = state.turns.get(state.last_turn) if state.parked and state.parked.by == "error" else None
    code = (last.error or {}).get("code") if last is not None else None
    return last if code in ("NO_ADAPTER", "MISSING_CREDENTIAL") else None
