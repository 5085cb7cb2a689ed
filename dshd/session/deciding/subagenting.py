"""Subagents are started, spend, end, and are told of. Decisions on a scratch; no IO.

| who                                      | ends a subagent by                                            |
|------------------------------------------|---------------------------------------------------------------|
| itself                                   | the end of its turn, when nothing is left that it goes on with |
| the model, a person (`dshctl agents stop`) | an abort of what it does                                    |
| an abort of its parent, ``--tree``       | the same, for all of them                                     |
| an interrupt of its parent               | the same, for those that the turn it stops has started        |
| ``close --clear``, ``rm --force``        | the same; and they are closed, or removed, with their parent  |

Its end wakes the parent (at most `jobbing.MOST_WAKES` in a row with nobody saying anything between), unless a
call waits for it: then it is that call's result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dshd.errors import Conflict, Full, NotFound
from dshd.plural import count
from dshd.session.deciding.jobbing import MOST_WAKES
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.events import Message, splice, text_block
from dshd.session.fold.state import State
from dshd.session.fold.subagents import Subagent

DEEPEST: Final = 2  # a subagent may have subagents, and they none
MOST: Final = 8  # of a session that run at once
LONGEST: Final = 16_000  # characters of an answer that are told


def start(s: Scratch, id: str, call: str, prompt: str, context: str) -> None:
    """Raises `Conflict` (the turn is being stopped, or it is too deep), `Full`."""
    turn, depth = s.state.turn, depth_of(s.state)
    if turn is None or turn.abort is not None:
        raise Conflict("no subagent was started: the turn is being stopped.", outcome="not-written")
    if depth >= DEEPEST:
        raise Conflict("a subagent of a subagent has no subagents: do it yourself.", outcome="not-written")
    if len(s.state.running_agents) >= MOST:
        raise Full(f"no subagent was started: {count(MOST, 'runs', 'run')} already. Wait for one.",
                   outcome="not-written")  # fmt: skip
    data = {"id": id, "turn": turn.number, "step": turn.step, "call": call}
    s.emit("subagent/started", {**data, "prompt": prompt, "context": context})


def depth_of(state: State) -> int:
    return int((state.header or {}).get("depth") or 0) if state.settings.get("agent") else 0


def spent(s: Scratch, id: str, usage: Mapping[str, Any]) -> None:
    """``usage``: all that it has spent so far."""
    found = s.state.agents.get(id)
    if found is not None and dict(found.spent) != dict(usage):
        s.emit("subagent/spent", {"id": id, "usage": dict(usage)})


def end(
    s: Scratch, id: str, outcome: str, text: str, usage: Mapping[str, Any], *, quiet: bool = False
) -> None:
    """That it has ended. ``quiet``: who stopped it knows, and nobody needs to be told."""
    found = s.state.agents.get(id)
    if found is None or not found.runs:
        return
    spent(s, id, usage)
    s.emit("subagent/ended", {"id": id, "outcome": outcome, "text": cut(text)})
    if quiet:
        s.emit("subagent/told", {"id": id, "by": "abort"})


def tell(s: Scratch, id: str) -> None:
    """By a message, if nobody was told yet."""
    found = s.state.agents.get(id)
    if found is None or found.runs or found.told:
        return
    s.emit("subagent/told", {"id": id, "by": "message"})
    if s.state.closed:
        return
    source = {"kind": "agent", "via": id}
    message = Message(
        id=s.take_id(), content=(text_block(said(found)),), source=source, created=s.now,
        wake=s.state.wakes < MOST_WAKES, verb="steer",
    )  # fmt: skip
    data = {"cause": "send", "by": source, "ops": [splice("next-step", insert=[message])]}
    s.emit("inbox/spliced", data)


def said(one: Subagent) -> str:
    """Its result, as the model is told it."""
    assert one.end is not None
    head = f"Subagent {one.id} has ended: {one.end.outcome}."
    return f"{head}\n{one.end.text}" if one.end.text else f"{head} It said nothing."


def cut(text: str) -> str:
    text = text.strip()
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def of(state: State, id: str) -> Subagent:
    """Raises `NotFound`."""
    found = state.agents.get(id)
    if found is None:
        raise NotFound(f"{state.name} has no subagent {id}", hint="dshctl agents", outcome="not-written")
    return found


def is_over(state: State) -> bool:
    """Whether a subagent's session has done what it was made for: nothing of it goes on by itself."""
    waits = state.pending_outside_held > 0 and state.parked is None
    busy = state.turn is not None or state.runnable or waits
    return state.last_turn > 0 and not busy and not any(not a.told for a in state.agents.values())


def result(state: State) -> tuple[str, str]:
    """How a subagent that is over has ended: (outcome, its answer or why)."""
    last = state.turns.get(state.last_turn)
    if last is None:
        return "interrupted", ""
    why = str((last.error or {}).get("message") or last.cause or "") if last.reason != "completed" else ""
    return last.reason, "\n".join(filter(None, (f"({why})" if why else "", last.answer)))
