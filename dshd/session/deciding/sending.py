"""Where a message goes, decided once, in the same step as its insertion.

The order of the questions is fixed: key, session state, preconditions, limits; then the place:

| the session has                                   | and the message        | it goes                |
|----------------------------------------------------|------------------------|------------------------|
| anything                                            | is due later, or held  | held                   |
| a turn that is being aborted                        | wakes                  | front of next-turn     |
| another turn, though it is parked (a retry)         | is a steer             | where it was sent      |
| no such turn, but is parked and this one unparks it | wakes, from a user     | front of next-turn     |
| neither                                             |                        | where it was sent      |

Sans-IO: decisions on a `Scratch`, called by the session's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd import reasons, wire
from dshd.errors import Conflict, DshError, Full, Invalid
from dshd.plural import age, count
from dshd.session.deciding import agreeing, retrying
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import inbox
from dshd.session.fold.events import Block, Message, Queue, block_bytes, splice
from dshd.session.fold.state import Keyed, State, fingerprint
from dshd.session.shown import views

MAX_PENDING_BYTES: Final = 64 * 1024 * 1024
MAX_LATE_MS: Final = 60_000  # a due time may have passed on the way here, not long before
RETRIED: Final = ("error", "interrupted")  # outcomes; what ends with 75 is an error
LIMITED_KINDS: Final = ("user", "schedule", "agent")


@attrs.frozen(slots=True, kw_only=True)
class Send:
    """A send as asked, its flags by their names in the contract. ``verb`` as asked; ``say`` is
    settled by what the session does at that instant.

    ``settings``: what the session must have (see `agreeing`).
    ``at`` is Unix ms; ``in_ms`` and ``expires_ms`` count from the moment of the decision.
    """

    verb: str
    queue: Queue
    wake: bool
    content: tuple[Block, ...]
    source: Mapping[str, Any]
    key: str | None = None
    retry: bool = False
    tag: str | None = None
    first: bool = False
    if_idle: bool = False
    if_empty: bool = False
    if_turn: int | None = None
    now: bool = False
    at: int | None = None
    in_ms: int | None = None
    expires_ms: int | None = None
    hold: bool = False
    supersede: bool = False
    on_crash: str | None = None
    interrupts: bool = False
    then_park: bool = False
    reason: str | None = None
    settings: Mapping[str, Any] = attrs.field(factory=dict)


def followup(content: tuple[Block, ...], source: Mapping[str, Any], key: str | None, **flags: Any) -> Send:
    """What is said by making a session with it, or by an interrupt: a followup that wakes."""
    return Send(
        verb="followup", queue="next-turn", wake=True, content=content, source=source, key=key, **flags
    )  # fmt: skip


@attrs.frozen(slots=True)
class Place:
    queue: Queue
    before: str | None
    front: bool
    redirected: bool


def of_params(
    p: wire.SendParams, content: tuple[Block, ...], source: Mapping[str, Any], settings: Mapping[str, Any]
) -> Send:
    """What `session.send` asks for, checked before."""
    queue, wake = p.intent()
    return Send(
        verb=p.verb or verb_of(queue, wake),
        queue=queue,  # type: ignore[arg-type]
        wake=wake,
        content=content,
        source=source,
        key=p.key,
        retry=p.retry,
        tag=p.tag,
        first=p.first,
        if_idle=p.if_idle,
        if_empty=p.if_empty,
        if_turn=p.if_turn,
        now=p.now,
        at=p.at,
        in_ms=_ms(p.in_),
        expires_ms=_ms(p.expires),
        hold=p.hold,
        supersede=p.supersede,
        on_crash=p.on_crash,
        settings=settings,
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def decide(s: Scratch, send: Send, max_pending: int, asked_at: int | None = None) -> dict[str, Any]:
    """Emit the send, or find its duplicate; the receipt (LOOK §2 ``receipt``).

    ``asked_at``: when it was asked (Unix ms), if it had to wait for room. Raises `Conflict` (key,
    closed, precondition), `Invalid` (a time) and `Full`; then nothing was emitted.
    """
    message = _message(s, send)
    if (earlier := _by_key(s, message, send.retry)) is not None:
        return earlier
    reopens = _check_open(s.state, message)
    _check_times(send, message, s.now if asked_at is None else asked_at)
    _check_preconditions(s.state, send, s.now)
    old = replaced(s.state, send)
    _check_limits(s.state, send, max_pending)
    place = _place(s.state, send, message, old)
    running = s.state.turn.number if s.state.turn else None
    released = s.state.pending_outside_held if place.queue != "held" and s.state.unparks(message) else 0
    if reopens:
        s.emit("session/reopened", {"by": dict(send.source)})
    _emit(s, send, _placed(message, send, place), place, old)
    return views.receipt(
        s.state, message.id, turn=running, redirected=place.redirected, reopened=reopens, released=released
    )


def would(s: Scratch, send: Send, max_pending: int) -> dict[str, Any]:
    """What `decide` would do now (``would``); nothing is emitted."""
    probe = Scratch(s.state, s.now, -1)
    try:
        receipt = decide(probe, send, max_pending)
    except DshError as error:
        return views.would(s.state, "refused", error=error)
    return views.would(probe.state, _outlook(s.state, probe.state, receipt), receipt=receipt)


def _outlook(before: State, after: State, receipt: Mapping[str, Any]) -> str:
    if receipt["duplicate"]:
        return "start-turn" if receipt["retried"] else "duplicate"
    if before.turn is not None:
        joins = receipt["queue"] == "next-step" and before.turn.abort is None
        return "join-turn" if joins else "wait"
    next_ones = {m.id for _, m in inbox.claimable(after.queues, first_step=True)}
    starts = after.runnable and after.resume is None and receipt["message"] in next_ones
    return "start-turn" if starts else "wait"


def _message(s: Scratch, send: Send) -> Message:
    verb = {"say": "steer" if s.state.turn else "followup"}.get(send.verb, send.verb)
    asked = "interrupt" if send.interrupts else send.verb
    return Message(
        id=s.take_id(),
        content=send.content,
        source=send.source,
        created=s.now,
        wake=send.wake,
        verb=verb,
        key=send.key,
        expires=None if send.expires_ms is None else s.now + send.expires_ms,
        due=_due(send, s.now),
        tag=send.tag,
        on_crash=send.on_crash,
        then_park=send.then_park,
        if_turn=send.if_turn,
        asked=None if asked == verb else asked,
        now=send.now,
    )


def _due(send: Send, now: int) -> int | None:
    """When it is due, if that is later than now."""
    due = send.at if send.in_ms is None else now + send.in_ms
    return due if due is not None and due > now else None


def _by_key(s: Scratch, message: Message, retry: bool) -> dict[str, Any] | None:
    """The first receipt of the same key, or None; with ``retry``, what failed is done again. Raises
    `Conflict` for another content."""
    state = s.state
    keyed = state.keys.get(message.key) if message.key is not None else None
    if keyed is None:
        return None
    if keyed.fingerprint != fingerprint(message):
        raise Conflict(
            f'key "{message.key}" was used at {_first_sent(s, keyed)} {_differently(state, keyed, message)}'
            f" ({keyed.message}).",
            hint=f"dshctl message {keyed.message}",
            outcome="not-written",
            data={"message": keyed.message},
        )
    if not (retry and _failed(state, keyed.message)):
        return views.receipt(state, keyed.message, duplicate=True)
    again = retrying.decide(s, keyed.message, message.source)
    return views.receipt(s.state, keyed.message, turn=again.turn, duplicate=True, retried=True,
                         reopened=again.reopened)  # fmt: skip


def _first_sent(s: Scratch, keyed: Keyed) -> str:
    return reasons.utc(s.now).when(s.state.receipts[keyed.message].message.created)


def _differently(state: State, keyed: Keyed, message: Message) -> str:
    """In what the message of that key is another one: its words are known by their fingerprint alone."""
    first = state.receipts[keyed.message].message
    verb: dict[str, Any] = {"verb": first.verb, "asked": first.asked}
    verb_word, tag_words = f"with another verb, {first.asked or first.verb}", _tagged(first.tag)
    for alike, words in (
        (verb, verb_word),
        ({"tag": first.tag}, tag_words),
        ({**verb, "tag": first.tag}, f"{verb_word}, and {tag_words}"),
    ):
        if fingerprint(attrs.evolve(message, **alike)) == keyed.fingerprint:
            return words
    return "for another text"


def _tagged(tag: str | None) -> str:
    return "without a tag" if tag is None else f'with another tag, "{tag}"'


def _failed(state: State, id: str) -> bool:
    """Whether ``--retry`` does it again."""
    receipt = state.receipts[id]
    return receipt.state == "settled" and receipt.outcome in RETRIED


def _check_open(state: State, message: Message) -> bool:
    """Whether the message reopens a closed session; raises `Conflict` when it may not."""
    if state.closed and message.kind != "user":
        raise Conflict(
            f"not sent: session {state.name} is closed.",
            hint=f"dshctl reopen {state.name}",
            outcome="not-written",
        )
    return state.closed


def _check_preconditions(state: State, send: Send, now: int) -> None:
    agreeing.check(send.settings, state)
    turn = state.turn.number if state.turn else None
    runs = f"runs turn {turn} ({age(now - state.turn.started_at)})" if state.turn else ""
    waits = "has work queued" if state.compaction is None else "is compacting its conversation"
    busy = f"{state.name} {runs or waits}"
    if send.if_idle and (turn is not None or state.compaction is not None or state.runnable):
        raise Conflict(f"not sent: --if-idle, and {busy}.", outcome="not-written")
    if send.if_empty and state.pending:
        raise Conflict(f"not sent: --if-empty, and {state.name} holds {count(state.pending, 'message')}.",
                       hint=f"dshctl queue -s {state.name}", outcome="not-written")  # fmt: skip
    if send.if_turn is not None and turn != send.if_turn:
        other = f"turn {turn} runs" if turn else "no turn runs"
        raise Conflict(f"not sent: --if-turn {send.if_turn}, and {other}.", outcome="not-written")


def _check_times(send: Send, message: Message, asked_at: int) -> None:
    if send.at is not None and send.at < asked_at - MAX_LATE_MS:
        raise Invalid(f"{send.at} ms is in the past @ $.at", outcome="not-written")
    if message.due is not None and message.expires is not None and message.expires <= message.due:
        raise Invalid("it would expire before it is due @ $.expires", outcome="not-written")


def replaced(state: State, send: Send) -> inbox.Claimed:
    """What ``--supersede`` takes out: all that waits with this tag, held too. A tool's messages
    replace only a tool's."""
    if not send.supersede:
        return ()
    mine = str(send.source.get("kind"))
    return tuple(
        (queue, m)
        for queue, items in state.queues.items()
        for m in items
        if m.tag == send.tag and (mine != "agent" or m.kind == "agent")
    )


def fullness(state: State, send: Send, max_pending: int) -> str | None:
    """Why there is no room for it now, None if there is."""
    if str(send.source.get("kind", "user")) not in LIMITED_KINDS:
        return None
    old, pending = replaced(state, send), state.pending
    if pending - len(old) >= max_pending:
        return f"{state.name} holds {pending} pending messages, the most it may"
    held = state.weight - sum(m.bytes for _, m in old)
    if held + sum(map(block_bytes, send.content)) > MAX_PENDING_BYTES:
        return f"{state.name} holds {held} bytes of pending messages"
    return None


def _check_limits(state: State, send: Send, max_pending: int) -> None:
    full = fullness(state, send, max_pending)
    if full is not None:
        raise Full(
            f"not sent: {full}.",
            hint=f"dshctl queue -s {state.name}        or: --when-full wait",
            outcome="not-written",
            data={"room": "wait"},
        )


def _without(queues: inbox.Queues, old: inbox.Claimed) -> inbox.Queues:
    if not old:
        return queues
    gone = {m.id for _, m in old}
    return {q: tuple(m for m in items if m.id not in gone) for q, items in queues.items()}


def _place(state: State, send: Send, message: Message, old: inbox.Claimed) -> Place:
    if send.hold or message.due is not None:
        return Place("held", None, False, False)
    queue: Queue = "next-step" if send.verb == "say" and state.turn else send.queue
    rest = _without(state.queues, old)
    dying = message.wake and state.turn is not None and state.turn.abort is not None
    joins = state.turn is not None and queue == "next-step"
    if dying or send.interrupts or (state.unparks(message) and not joins):
        redirected = (dying and not send.interrupts) or queue != "next-turn"
        return Place("next-turn", inbox.behind_front(rest["next-turn"]), True, redirected)
    before = inbox.head(rest[queue]) if send.first else None
    return Place(queue, before, send.first, False)


def _placed(message: Message, send: Send, place: Place) -> Message:
    """The message as it stands there; a held one knows where it goes from there."""
    home: Queue | None = None
    if place.queue != "held" and not place.front:
        return message
    if place.queue == "held":
        home = "next-step" if send.verb == "say" and message.verb == "steer" else send.queue
    return attrs.evolve(message, front=place.front, home=home)


def _emit(s: Scratch, send: Send, message: Message, place: Place, old: inbox.Claimed) -> None:
    ops = [*inbox.remove_ops(old), splice(place.queue, insert=[message], before=place.before)]
    data: dict[str, Any] = {"cause": "supersede" if old else "send", "by": send.source, "ops": ops}
    if send.interrupts and s.state.turn is not None:
        data["interrupts"] = s.state.turn.number
    if send.reason:
        data["reason"] = send.reason
    s.emit("inbox/spliced", data)


def verb_of(queue: str, wake: bool) -> str:
    """The verb that a send by queue and wake amounts to."""
    for verb, preset in wire.VERBS.items():
        if preset == (queue, wake):
            return verb
    return "followup"
