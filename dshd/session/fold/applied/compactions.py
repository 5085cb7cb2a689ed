"""Events that make the conversation smaller, and what tells how large it is (see `fold.compactions`)."""

from __future__ import annotations

from typing import Final

from dshd.log.codec import Event
from dshd.session.fold import counting
from dshd.session.fold.applied.shared import Appliers
from dshd.session.fold.compactions import Compaction, correction, model_of
from dshd.session.fold.state import State
from dshd.session.fold.values import evolve


def _start(state: State, event: Event) -> None:
    if state.compaction is not None:
        raise KeyError(f"compaction {state.compaction.number} is still open")
    data = event.data
    state.compaction = Compaction(data["compaction"], data.get("turn"), data["cause"], event.time)
    state.compactions = data["compaction"]


def _summary(state: State, event: Event) -> None:
    _spend(state, event)


def _end(state: State, event: Event) -> None:
    if state.compaction is None:
        raise KeyError("no compaction is open")
    turn, overflow = state.turn, state.compaction.cause == "overflow"
    if turn is not None and overflow and event.data.get("reason") != "interrupted":
        state.turn = evolve(turn, overflowed=True)
    state.compaction = None
    _spend(state, event)
    if event.data.get("after") is not None:
        state.context = event.data["after"]


def _spend(state: State, event: Event) -> None:
    if state.turn is not None:
        state.turn = counting.spend(state, state.turn, event)
    else:
        counting.count(state, event)


def replaced(state: State, event: Event) -> None:
    """An event that stands for others: what is remembered of these goes."""
    if event.type == "user/message":
        state.next_message = max(state.next_message, int(event.data["id"].rpartition(".")[2]) + 1)
    if state.snapshot_seq in (event.sources or ()):
        state.snapshot, state.snapshot_seq = None, -1


def sent(state: State, event: Event) -> None:
    """How large a request is estimated to be, uncorrected; one that asks for a summary is not the
    conversation's."""
    tokens = event.data.get("tokens")
    state.asked = None if event.data.get("compaction") is not None else tokens
    if state.asked is not None:
        state.context = correction(state.factors, state.request_context).apply(state.asked)


def answered(state: State, event: Event) -> None:
    """Learn from what the provider says that the request was."""
    usage, asked = event.data.get("usage") or {}, state.asked
    state.asked = None
    reported = int(usage.get("input", 0) + usage.get("cached", 0))
    if asked is None or event.data.get("interrupted") or not reported:
        return
    learned = correction(state.factors, state.request_context).learn(asked, reported)
    state.factors = {**state.factors, model_of(state.request_context): learned.factor}
    state.context = learned.apply(asked) + int(usage.get("output", 0))


TABLE: Final[Appliers] = {
    "compaction/start": _start,
    "compaction/summary": _summary,
    "compaction/end": _end,
}
