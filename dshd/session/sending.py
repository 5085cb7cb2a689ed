"""Where a message goes, decided once, in the same step as its insertion.

The order of the questions is fixed: key, session state, preconditions, limits; then the place:

| the session has                                   | and the message        | it goes                |
|----------------------------------------------------|------------------------|------------------------|
| a turn that is being aborted                        | wakes                  | front of next-turn     |
| no such turn, but is parked and this one unparks it | wakes, from a user     | front of next-turn     |
| neither                                             |                        | where it was sent      |

Sans-IO: decisions on a `Scratch`, called by the session's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd import wire
from dshd.errors import Conflict, Full, Invalid
from dshd.session import inbox, views
from dshd.session.events import Message, Queue, splice, text_block
from dshd.session.scratch import Scratch
from dshd.session.state import State, fingerprint, unparks

MAX_PENDING_BYTES: Final = 64 * 1024 * 1024
MAX_TEXT_BYTES: Final = 8 * 1024 * 1024
LIMITED_KINDS: Final = ("user", "schedule", "agent")


@attrs.frozen(slots=True, kw_only=True)
class Send:
    """A send as asked, its flags by their names in the contract. ``verb`` as asked; ``say`` is
    settled by what the session does at that instant."""

    verb: str
    queue: Queue
    wake: bool
    content: tuple[Mapping[str, Any], ...]
    source: Mapping[str, Any]
    key: str | None = None
    tag: str | None = None
    first: bool = False
    if_idle: bool = False
    if_empty: bool = False
    if_turn: int | None = None
    interrupts: bool = False
    then_park: bool = False


@attrs.frozen(slots=True)
class Place:
    queue: Queue
    before: str | None
    front: bool
    redirected: bool


def content_of(text: str | None, content: list[dict[str, Any]] | None) -> tuple[dict[str, Any], ...]:
    """The blocks of a message given as text or as blocks. Raises `Invalid` when empty or too large."""
    if (text is None) == (content is None):
        raise Invalid("give either text or content @ $.text")
    blocks = tuple(content) if content is not None else (text_block(text or ""),)
    for i, block in enumerate(blocks):
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise Invalid(f"expected a text block @ $.content[{i}]")
    size = sum(len(b["text"].encode("utf-8", "replace")) for b in blocks)
    if not any(b["text"].strip() for b in blocks):
        raise Invalid("the message is empty", hint="dshctl followup 'TEXT'")
    if size > MAX_TEXT_BYTES:
        raise Full(f"not sent: the text has {size} bytes, the most is {MAX_TEXT_BYTES}.",
                   hint="dshctl followup --ref FILE", outcome="not-written")  # fmt: skip
    return blocks


def decide(s: Scratch, send: Send, max_pending: int) -> dict[str, Any]:
    """Emit the send, or find its duplicate; the receipt (LOOK §2 ``receipt``).

    Raises `Conflict` (key, closed, precondition) and `Full`; then nothing was emitted.
    """
    if send.verb == "say":
        send = _say(s.state, send)
    message = _message(s, send)
    if (earlier := _by_key(s.state, message)) is not None:
        return earlier
    reopens = _check_open(s.state, message)
    _check_preconditions(s.state, send)
    _check_limits(s.state, message, max_pending)
    place = _place(s.state, send, message)
    was_running = s.state.turn.number if s.state.turn else None
    if reopens:
        s.emit("session/reopened", {"by": dict(send.source)})
    _emit(s, send, attrs.evolve(message, front=place.front), place)
    return views.receipt(s.state, message.id, turn=was_running, redirected=place.redirected, reopened=reopens)


def _say(state: State, send: Send) -> Send:
    queue: Queue = "next-step" if state.turn else "next-turn"
    return attrs.evolve(send, verb="steer" if state.turn else "followup", queue=queue, wake=True)


def _message(s: Scratch, send: Send) -> Message:
    return Message(
        id=s.take_id(),
        content=send.content,
        source=send.source,
        created=s.now,
        wake=send.wake,
        verb=send.verb,
        key=send.key,
        tag=send.tag,
        then_park=send.then_park,
        if_turn=send.if_turn,
    )


def _by_key(state: State, message: Message) -> dict[str, Any] | None:
    """The first receipt of the same key, or None. Raises `Conflict` for another content."""
    keyed = state.keys.get(message.key) if message.key is not None else None
    if keyed is None:
        return None
    if keyed.fingerprint != fingerprint(message):
        raise Conflict(
            f'key "{message.key}" was used for another text ({keyed.message}).',
            hint=f"dshctl message {keyed.message}",
            outcome="not-written",
            data={"message": keyed.message},
        )
    return views.receipt(state, keyed.message, duplicate=True)


def _check_open(state: State, message: Message) -> bool:
    """Whether the message reopens a closed session; raises `Conflict` when it may not."""
    if state.closed and message.kind != "user":
        raise Conflict(
            f"not sent: session {state.name} is closed.",
            hint=f"dshctl reopen {state.name}",
            outcome="not-written",
        )
    return state.closed


def _check_preconditions(state: State, send: Send) -> None:
    turn = state.turn.number if state.turn else None
    busy = f"{state.name} runs turn {turn}" if turn else f"{state.name} has work queued"
    if send.if_idle and (turn is not None or state.runnable):
        raise Conflict(f"not sent: --if-idle, and {busy}.", outcome="not-written")
    if send.if_empty and state.pending:
        raise Conflict(f"not sent: --if-empty, and {state.name} holds {state.pending} messages.",
                       hint="dshctl queue", outcome="not-written")  # fmt: skip
    if send.if_turn is not None and turn != send.if_turn:
        now = f"turn {turn} runs" if turn else "no turn runs"
        raise Conflict(f"not sent: --if-turn {send.if_turn}, and {now}.", outcome="not-written")


def _check_limits(state: State, message: Message, max_pending: int) -> None:
    if message.kind not in LIMITED_KINDS:
        return
    if state.pending >= max_pending:
        raise Full(
            f"not sent: {state.name} holds {state.pending} pending messages, the most it may.",
            hint=f"dshctl queue -s {state.name}",
            outcome="not-written",
        )
    held = sum(m.bytes for items in state.queues.values() for m in items)
    if held + message.bytes > MAX_PENDING_BYTES:
        raise Full(f"not sent: {state.name} holds {held} bytes of pending messages.",
                   hint=f"dshctl queue -s {state.name}", outcome="not-written")  # fmt: skip


def _place(state: State, send: Send, message: Message) -> Place:
    dying = message.wake and state.turn is not None and state.turn.abort is not None
    if dying or send.interrupts or unparks(state, message):
        redirected = (dying and not send.interrupts) or send.queue != "next-turn"
        return Place("next-turn", inbox.behind_front(state.queues["next-turn"]), True, redirected)
    before = inbox.head(state.queues[send.queue]) if send.first else None
    return Place(send.queue, before, send.first, False)


def _emit(s: Scratch, send: Send, message: Message, place: Place) -> None:
    op = splice(place.queue, insert=[message], before=place.before)
    data: dict[str, Any] = {"cause": "send", "by": dict(send.source), "ops": [op]}
    if send.interrupts and s.state.turn is not None:
        data["interrupts"] = s.state.turn.number
    s.emit("inbox/spliced", data)


def verb_of(queue: str, wake: bool) -> str:
    """The verb that a send by queue and wake amounts to."""
    for verb, preset in wire.VERBS.items():
        if preset == (queue, wake):
            return verb
    return "followup"
