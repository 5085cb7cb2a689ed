"""Folding what comes after a gap: a repaired log lacks events that later ones build on.

What follows a gap was true when it was written, but what it refers to may be gone. So before each
event the state is brought to where the event makes sense, by events that the gap may have held:

| the event speaks of                           | and the state has             | then                       |
|-----------------------------------------------|-------------------------------|----------------------------|
| another turn                                  | one open                      | that one was interrupted   |
| a turn                                        | it not open and not ended     | it has begun               |
| a message that enters or is rejected          | it waiting                    | it was claimed             |
| a message that enters                         | it ended by a decision        | it came back               |
| a message that leaves a queue                 | it in another one             | it had moved               |
| a message that comes                          | it in a queue                 | it had left that           |

and what can't be brought about is ignored: a second entering (G2), what happens in a turn that has
ended, calls that nobody asked for, answers to lost questions, messages that were lost with their send. What
was pending at the gap and still waits is *doubted*: the next opening keeps it for a person.

Sans-IO. `fit` is a generator: what it yields is folded before it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import attrs

from dshd.log.codec import Event
from dshd.session.fold import inbox
from dshd.session.fold.approvals import Approval
from dshd.session.fold.events import QUEUES, Message, splice
from dshd.session.fold.layer import Table
from dshd.session.fold.receipts import ENDED_BY_DECISION, Receipt
from dshd.session.fold.turns import EndedTurn, OpenTurn

_IN_A_TURN: Final = ("turn/", "step/", "assistant/", "tool/")
_ALSO: Final = ("user/message", "request/sent", "llm/retry", "abort/requested", "approval/asked")
_LOST: Final = {"kind": "system", "via": "repair"}


class State(Protocol):
    """What is looked at of a `dshd.session.fold.state.State`."""

    @property
    def queues(self) -> inbox.Queues: ...

    @property
    def turn(self) -> OpenTurn | None: ...

    @property
    def turns(self) -> Table[int, EndedTurn]: ...

    @property
    def receipts(self) -> Table[str, Receipt]: ...

    @property
    def approvals(self) -> Mapping[str, Approval]: ...


def doubted(state: State) -> tuple[str, ...]:
    """Ids of what is pending now, claimed ones too."""
    waiting = [m.id for queue in QUEUES if queue != "held" for m in state.queues[queue]]
    return (*waiting, *(m.id for _, m in (state.turn.claimed if state.turn else ())))


def fit(state: State, event: Event) -> Iterator[Event]:
    """``event`` as far as it fits, after what must have come before it."""
    if event.surface is not None and event.surface != "append":
        yield event  # what stands for others hides those of them that are there
        return
    number = _turn_of(event)
    if number is not None:
        yield from _bring_turn(state, event, number)
        here = state.turn is not None and state.turn.number == number
        if here == (event.type == "turn/start"):
            return
    yield from _FIT.get(event.type, _as_it_is)(state, event)


def _turn_of(event: Event) -> int | None:
    claims = event.type == "inbox/spliced" and event.data["cause"] == "claim"
    inside = event.type.startswith(_IN_A_TURN) or event.type in _ALSO or claims
    number = event.data.get("turn") if inside else None
    return int(number) if number is not None else None


# --- turns ---------------------------------------------------------------------------------------


def _bring_turn(state: State, event: Event, number: int) -> Iterator[Event]:
    """Let this turn be open, or about to be; not if it has ended already."""
    if state.turn is not None and state.turn.number != number:
        yield from _lose_turn(state, event)
    if state.turn is None and event.type != "turn/start" and number not in state.turns:
        yield _like(event, "turn/start", {"turn": number})


def _lose_turn(state: State, event: Event) -> Iterator[Event]:
    turn = state.turn
    assert turn is not None
    if turn.claimed:
        ops = inbox.return_ops(state.queues, turn.claimed)
        yield _like(event, "inbox/spliced", {"cause": "requeue", "by": _LOST, "ops": ops})
    end = {"turn": turn.number, "reason": "interrupted", "cause": "gap", "usage": dict(turn.usage)}
    yield _like(event, "turn/end", end)


def _like(event: Event, type: str, data: dict[str, Any]) -> Event:
    return Event(event.seq, event.time, type, data)


# --- messages ------------------------------------------------------------------------------------


def _enters(state: State, event: Event) -> Iterator[Event]:
    id = event.data["id"]
    receipt = state.receipts.get(id)
    if receipt is not None and receipt.state in ENDED_BY_DECISION:
        back = [splice("next-turn", insert=[receipt.message])]
        yield _like(event, "inbox/spliced", {"cause": "requeue", "by": _LOST, "ops": back})
    yield from _claims(state, event, [id])
    if receipt is None or state.receipts[id].state == "claimed":
        yield event


def _rejects(state: State, event: Event) -> Iterator[Event]:
    ids = event.data["messages"]
    yield from _claims(state, event, ids)
    known = [id for id in ids if (r := state.receipts.get(id)) is not None and r.state == "claimed"]
    yield attrs.evolve(event, data={**event.data, "messages": known})


def _claims(state: State, event: Event, ids: list[str]) -> Iterator[Event]:
    """Let those of them that wait be claimed by the open turn."""
    waiting = tuple(found for id in ids if (found := inbox.find(state.queues, id)) is not None)
    if waiting:
        data = {"cause": "claim", "by": _LOST, "turn": event.data["turn"], "ops": inbox.claim_ops(waiting)}
        yield _like(event, "inbox/spliced", data)


def _moves(state: State, event: Event) -> Iterator[Event]:
    """A splice, op by op, with what it can't do left out."""
    queues, ops = state.queues, []
    for op in event.data["ops"]:
        for one in _op(state, queues, op):
            queues = inbox.apply(queues, [one])
            ops.append(one)
    if ops:
        yield attrs.evolve(event, data={**event.data, "ops": ops})


def _op(state: State, queues: inbox.Queues, op: dict[str, Any]) -> Iterator[dict[str, Any]]:
    comes = [m for m in op["insert"] if _may_wait(state, m["id"])]
    leaves = [*op["remove"], *(m["id"] for m in comes)]
    found = tuple(f for id in dict.fromkeys(leaves) if (f := inbox.find(queues, id)) is not None)
    yield from inbox.remove_ops(found)
    if comes:
        gone = {m.id for _, m in found}
        there = {m.id for m in queues[op["queue"]]} - gone
        before = op["before"] if op["before"] in there else None
        yield splice(op["queue"], insert=[Message.from_json(m) for m in comes], before=before)


def _may_wait(state: State, id: str) -> bool:
    receipt = state.receipts.get(id)
    return receipt is None or receipt.state not in ("entered", "settled")


# --- calls ---------------------------------------------------------------------------------------


def _of_call(state: State, event: Event) -> Iterator[Event]:
    if state.turn is not None and event.data["call"] in state.turn.calls:
        yield event


def _answers(state: State, event: Event) -> Iterator[Event]:
    asked = state.approvals.get(event.data["id"])
    if asked is not None and asked.open:
        yield event


def _as_it_is(state: State, event: Event) -> Iterator[Event]:
    yield event


_FIT: Final[dict[str, Callable[[State, Event], Iterator[Event]]]] = {
    "user/message": _enters,
    "step/rejected": _rejects,
    "inbox/spliced": _moves,
    "tool/call": _of_call,
    "tool/result": _of_call,
    "approval/asked": _of_call,
    "approval/answered": _answers,
}
