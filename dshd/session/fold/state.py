"""A session's state: a fold over its log, and nothing else changes it.

`apply(state, event)` is the one function that changes a `State`; `_FOLD` says which event does
what. Rebuilding from the log gives the same state (`digest` compares two). The daemon never
folds an event of class *now* before it is durable: it decides on a `layer` and keeps it only
once the batch is on disk (see `scratch`).

Who may do what is not decided here. The fold believes the log; what can't have happened raises
`Nonsense`, which makes the log damaged, not the daemon.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.log.codec import Event
from dshd.session.fold import attachments, counting, inbox, surface, undo
from dshd.session.fold import gap as gaps
from dshd.session.fold.events import QUEUES, Message, Queue, block_bytes
from dshd.session.fold.inbox import Queues
from dshd.session.fold.layer import Rows, Table
from dshd.session.fold.receipts import Receipt, first_receipt
from dshd.session.fold.surface import Entry
from dshd.session.fold.turns import (
    Abort,
    CallState,
    EndedTurn,
    OpenTurn,
    answer_of,
    end,
)
from dshd.session.fold.values import evolve

CRASH_LOOP: Final = 3
# Errors of results that the end of a turn gave, not the tool.
UNFINISHED: Final = frozenset(("SKIPPED", "STOPPED", "NOT_STARTED", "OUTCOME_UNKNOWN"))
_NAMES: Final[dict[str, Queue]] = {queue: queue for queue in QUEUES}  # one string for each, not one a message

_ENDED_BY_CAUSE: Final = {
    "claim": "claimed", "remove": "removed", "clear": "cleared",
    "expire": "expired", "supersede": "superseded",
}  # fmt: skip


class Nonsense(ValueError):
    """An event that can't follow what came before it."""


@attrs.frozen(slots=True)
class Parked:
    """Nothing in the queue runs until a person says so. ``by``: abort, interrupt, error, budget,
    crash-loop or import; ``who`` is the source of who asked for it, if somebody did; ``budget``: the
    limit that was reached (see `budgets`)."""

    by: str
    what: str | None
    at: int
    seq: int
    who: Any = None
    budget: Mapping[str, Any] | None = None


@attrs.frozen(slots=True)
class Keyed:
    message: str
    fingerprint: str


@attrs.define(slots=True)
class State:
    """``settings``: mode, model, ask, net, env names, ... as in `session/header`, then changed.
    ``resume``: a turn that a planned stop interrupted at a step boundary, to be gone on with;
    ``retry``: one that somebody wants once more. Both run although the session may be parked.
    ``gap``: the log was repaired (see `gap`); ``doubted``: what was pending at a gap, until an opening
    has held what of it still waits. ``removals``: what can be undone, the newest last. ``spent``: usage
    of all turns, and ``lately``: of the last day (see `spending`). ``raised``: by how much the session's
    own budgets were raised; ``adding``: those of the turn that is to be retried. ``weight``, ``timed``,
    ``waking``: bytes of all that waits, how many of it come due or expire, and how many were sent with
    wake and aren't held. ``files``: attachments that messages refer to."""

    header: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    closed: bool = False
    seq: int = -1
    time: int = 0
    queues: Queues = inbox.EMPTY
    weight: int = 0
    timed: int = 0
    waking: int = 0
    next_message: int = 1
    turn: OpenTurn | None = None
    last_turn: int = 0
    parked: Parked | None = None
    woken: bool = False
    resume: int | None = None
    retry: int | None = None
    crashes: int = 0
    request_header: Mapping[str, Any] | None = None
    request_context: Mapping[str, Any] | None = None
    snapshot: str | None = None
    title: str = ""
    gap: bool = False
    repaired: bool = False
    doubted: tuple[str, ...] = ()
    todo: tuple[Mapping[str, Any], ...] = ()
    removals: undo.Removals = ()
    spent: Mapping[str, Any] = attrs.field(factory=dict)
    lately: Mapping[int, Mapping[str, Any]] = attrs.field(factory=dict)
    raised: Mapping[str, float] = attrs.field(factory=dict)
    adding: Mapping[str, float] | None = None
    receipts: Table[str, Receipt] = attrs.field(factory=Table)
    keys: Table[str, Keyed] = attrs.field(factory=Table)
    turns: Table[int, EndedTurn] = attrs.field(factory=Table)
    files: Table[str, int] = attrs.field(factory=Table)  # {sha256: bytes}
    surface: Rows[Entry] = attrs.field(factory=Rows)

    @property
    def id(self) -> str:
        return str((self.header or {}).get("id", ""))

    @property
    def name(self) -> str:
        return str(self.settings.get("name") or self.id)

    # --- the questions that decide whether the driver works; each is asked and answered at once

    @property
    def runnable(self) -> bool:
        """Not parked, and something waits that was sent with wake (or asked for since); or a turn is
        to be gone on with, or retried."""
        if self.closed:
            return False
        if self.again is not None:
            return True
        if self.parked:
            return False
        if self.woken and self.queues["next-turn"]:
            return True
        return self.waking > 0

    @property
    def again(self) -> int | None:
        """The ended turn that the next one goes on with, or repeats."""
        return self.resume if self.resume is not None else self.retry

    def is_parked(self, id: str) -> bool:
        """Whether a waiting message is kept back by the parking: each is, but for what was said to a
        turn that runs all the same."""
        if self.parked is None:
            return False
        receipt, turn = self.receipts[id], self.turn
        return turn is None or receipt.queue != "next-step" or receipt.arrived < turn.seq

    @property
    def goes_on(self) -> bool:
        """Whether a driver that runs already opens another turn: `runnable`, or anything in
        next-turn at all."""
        return self.runnable or not (self.parked or self.closed or not self.queues["next-turn"])

    @property
    def owes(self) -> bool:
        """Whether an opening has something to write, whatever is asked: a turn to close, or the
        messages from before a repair to hold."""
        return self.turn is not None or self.repaired

    @property
    def active(self) -> bool:
        """Whether the daemon must open this session by itself at its next start."""
        waits = self.queues["held"] or self.timed
        return self.turn is not None or self.runnable or bool(waits)

    @property
    def pending(self) -> int:
        return sum(map(len, self.queues.values()))

    @property
    def pending_outside_held(self) -> int:
        return self.pending - len(self.queues["held"])

    def layer(self) -> State:
        """A scratch copy: what is folded into it leaves this one as it is."""
        return evolve(
            self,
            receipts=self.receipts.layer(),
            keys=self.keys.layer(),
            turns=self.turns.layer(),
            files=self.files.layer(),
            surface=self.surface.layer(),
        )

    def merged_into(self, base: State) -> State:
        """What a layer of ``base`` becomes once its events are durable. Uses ``base`` up."""
        self.receipts, self.keys, self.turns, self.files = (
            self.receipts.merge(), self.keys.merge(), self.turns.merge(), self.files.merge(),
        )  # fmt: skip
        self.surface = self.surface.merge_into(base.surface)
        return self

    def digest(self) -> dict[str, str]:
        """A fingerprint of each part, for `fsck`: two folds of one log agree in all of them."""
        return {part: _digest(value) for part, value in _parts(self).items()}


def fold(events: Iterable[Event], state: State | None = None) -> State:
    state = state or State()
    for event in events:
        apply(state, event)
    return state


def apply(state: State, event: Event) -> None:
    """Fold one event into ``state``, in place. Raises `Nonsense`."""
    try:
        for fitted in gaps.fit(state, event) if state.gap else (event,):
            _apply(state, fitted)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # whatever stands in a log
        if not state.gap:
            raise Nonsense(f"seq {event.seq} ({event.type}): {error}") from error
    last = event.data["last"] if event.type == "log/gap" else event.seq
    state.seq, state.time = last, event.time


def _apply(state: State, event: Event) -> None:
    handler = _FOLD.get(event.type)
    if handler is not None:
        handler(state, event)
    if event.surface is not None:
        surface.place(state.surface, Entry(event.seq, event.type, event.data), event.surface)


def fingerprint(message: Message) -> str:
    """What a key stands for: verb as asked, blocks as first sent, tag; nothing else. A text is the
    same one whether it was attached or not."""
    said = [message.asked or message.verb, [attachments.said(b) for b in message.content], message.tag]
    return hashlib.sha256(json.dumps(said).encode("utf-8", "replace")).hexdigest()


# --- session -------------------------------------------------------------------------------------

_NOT_SETTINGS: Final = ("version", "id", "created", "parent", "seed", "origin", "depth")


def _header(state: State, event: Event) -> None:
    state.header = event.data
    state.settings = {k: v for k, v in event.data.items() if k not in _NOT_SETTINGS}


def _changed(state: State, event: Event) -> None:
    new = event.data["set"]
    state.settings = {**state.settings, **new}
    state.raised = {name: by for name, by in state.raised.items() if name not in new}


def _closed(state: State, event: Event) -> None:
    """Nothing goes on behind it, not even when it is opened again: what had ended so far has ended so."""
    state.closed = True
    state.resume = state.retry = state.adding = None


def _reopened(state: State, event: Event) -> None:
    state.closed = False


def _opened(state: State, event: Event) -> None:
    if state.repaired:
        state.repaired, state.doubted = False, ()


def _forked(state: State, event: Event) -> None:
    """Behind what was copied: it is history here, and owes, costs and holds back nothing."""
    if state.turn is not None or state.pending:
        raise KeyError("a fork that is neither idle nor empty")
    state.title, state.crashes = event.data["title"], 0
    state.spent, state.lately, state.raised = {}, {}, {}
    state.parked = state.resume = state.retry = state.adding = None


def _imported(state: State, event: Event) -> None:
    """Nothing that was on its way elsewhere goes on here before somebody says so."""
    if state.turn is not None:
        raise KeyError(f"turn {state.turn.number} is still open")
    state.parked = Parked("import", None, event.time, event.seq, event.data.get("by"))
    state.lately = {}  # of another day, or place
    state.resume = state.retry = state.adding = None
    state.woken, state.crashes = False, 0


# --- inbox ---------------------------------------------------------------------------------------


def _spliced(state: State, event: Event) -> None:
    data, before = event.data, state.queues
    gone = {id: op["queue"] for op in data["ops"] for id in op["remove"]}
    came = [(_NAMES[op["queue"]], Message.from_json(m)) for op in data["ops"] for m in op["insert"]]
    state.queues = inbox.apply(before, data["ops"], {m.id: m for _, m in came})
    _weigh(state, bool(gone), came)
    moved = {m.id for _, m in came}
    if len(moved) != len(came):
        raise KeyError("a message is inserted twice")
    out = gone.keys() - moved
    left = tuple(m.id for queue in QUEUES for m in before[queue] if m.id in out) if out else ()
    by = data.get("by")
    if data["cause"] == "send" and not gone:
        for queue, message in came:
            _came(state, event, queue, message, moved=False)
        return _interrupted(state, data)
    if data["cause"] == "supersede":  # who did it is the message that came instead
        by = {**(by or {}), "by": next(iter(moved - set(gone)), None)}
    for id in left:
        _left(state, event, id, by)
    for queue, message in came:
        _came(state, event, queue, message, moved=message.id in gone)
        if data["cause"] == "supersede" and message.id not in gone:
            state.receipts[message.id] = evolve(state.receipts[message.id], superseded=left)
    if data["cause"] in undo.CAUSES:
        _removed(state, event, data["cause"], left)
    elif data["cause"] == "undo":
        state.removals = undo.undone(state.removals, data["of"])
    if data["cause"] == "claim":
        _claimed(state, tuple(inbox.find(before, id) or _no(id) for id in gone))
    state.woken = state.woken and bool(state.queues["next-turn"])
    _interrupted(state, data)


def _interrupted(state: State, data: Mapping[str, Any]) -> None:
    if "interrupts" in data and state.turn and state.turn.number == data["interrupts"]:
        _abort(state, Abort("interrupt", "continue", data.get("by"), data.get("reason")))


def _weigh(state: State, moves: bool, came: Sequence[tuple[Queue, Message]]) -> None:
    """Keep ``weight``, ``timed``, ``waking``: a plain insertion adds, all else counts anew."""
    if moves:
        standing = ((queue, m) for queue in QUEUES for m in state.queues[queue])
        state.weight, state.timed, state.waking = inbox.burden(standing)
    else:
        weight, timed, waking = inbox.burden(came)
        state.weight += weight
        state.timed += timed
        state.waking += waking


def _no(id: str) -> tuple[Queue, Message]:
    raise KeyError(id)


def _left(state: State, event: Event, id: str, by: Any) -> None:
    data = event.data
    receipt = state.receipts[id]
    turn = data.get("turn") if data["cause"] == "claim" else None
    state.receipts[id] = receipt.to(
        _ENDED_BY_CAUSE[data["cause"]], at=event.time, seq=event.seq, by=by, turn=turn
    )


def _removed(state: State, event: Event, cause: str, ids: tuple[str, ...], by: Any = None) -> None:
    """Note what can be undone. What an abort clears is one removal with what it clears at its end."""
    turn = state.turn
    clears = cause == "clear" and turn is not None and turn.abort is not None
    of_turn = turn.number if clears and turn and turn.abort and turn.abort.disposition == "clear" else None
    removal = undo.Removal(event.seq, cause, event.time, by or event.data.get("by"), ids, of_turn)
    state.removals = undo.noted(state.removals, removal)


def _came(state: State, event: Event, queue: Queue, message: Message, *, moved: bool) -> None:
    """A message is in a queue now: a new one, one that moved or was edited, or one that is back."""
    by, cause = event.data.get("by"), event.data["cause"]
    receipt = state.receipts.get(message.id)
    if receipt is None:
        state.receipts[message.id] = first_receipt(message, queue, at=event.time, seq=event.seq, by=by)
        _said(state, event, queue, message)
        return
    if receipt.state in ("pending", "held") and not moved:
        raise KeyError(f"{message.id} stands in two places")
    target = "held" if queue == "held" else "pending"
    anew = {"turn": None, "step": None, "outcome": None} if cause == "undo" else {}
    failed = cause in ("requeue", "hold") and not moved and event.data.get("failed", False)
    state.receipts[message.id] = receipt.to(
        target, at=event.time, seq=event.seq, by=by, cause=cause, message=message, queue=queue,
        requeues=receipt.requeues + failed, **anew,
    )  # fmt: skip
    _attached(state, message)
    if state.turn is not None and not moved:
        kept = tuple((q, m) for q, m in state.turn.claimed if m.id != message.id)
        state.turn = evolve(state.turn, claimed=kept)


def _said(state: State, event: Event, queue: Queue, message: Message) -> None:
    """A new message: it takes its number and its key, and may unpark."""
    state.next_message = max(state.next_message, int(message.id.rpartition(".")[2]) + 1)
    _attached(state, message)
    if message.key is not None:
        state.keys[message.key] = Keyed(message.id, fingerprint(message))
    if not state.title and message.kind == "user":
        state.title = message.text.strip().partition("\n")[0][:200]
    if queue != "held" and unparks(state, message):
        state.parked, state.crashes = None, 0


def _attached(state: State, message: Message) -> None:
    for block in message.content:
        if block.get("type") == "file":
            state.files[block["sha256"]] = block_bytes(block)


def unparks(state: State, message: Message) -> bool:
    """Whether this message, sent now, ends the session's parking."""
    if state.parked is None or not message.wake:
        return False
    return message.kind == "user" or state.parked.by == "error"


def _claimed(state: State, claimed: inbox.Claimed) -> None:
    if state.turn is None:
        raise KeyError("a claim outside a turn")
    opener = next((m for q, m in claimed if q == "next-turn"), None)
    state.turn = evolve(
        state.turn,
        claimed=(*state.turn.claimed, *claimed),
        opener=opener.id if opener else state.turn.opener,
        then_park=opener.id if opener and opener.then_park else state.turn.then_park,
    )


def _woken(state: State, event: Event) -> None:
    """Unparks; a wish to retry alone does not, one that comes with a raised budget (``add``) does."""
    state.crashes = 0
    retry, add = event.data.get("retry"), event.data.get("add")
    if retry is not None:
        state.retry, state.adding = retry, None
    if add is not None:
        counting.raised(state, event, add)
    if retry is None or add is not None:
        state.parked = None
        state.woken = bool(state.queues["next-turn"])


# --- turns and steps -----------------------------------------------------------------------------


def _open(state: State) -> OpenTurn:
    if state.turn is None:
        raise KeyError("no turn is open")
    return state.turn


def _turn_start(state: State, event: Event) -> None:
    if state.turn is not None:
        raise KeyError(f"turn {state.turn.number} is still open")
    number, retry_of = event.data["turn"], event.data.get("retry_of")
    state.turn = OpenTurn(number, event.time, retry_of=retry_of, seq=event.seq)
    if retry_of is not None and (ended := state.turns.get(retry_of)) is not None:
        for id in ended.members:
            _attempt_again(state, event, id, number)
        turn = evolve(state.turn, members=ended.members, then_park=ended.then_park)
        state.turn = counting.take_over(state, turn, ended)
    state.last_turn, state.woken, state.resume, state.retry = number, False, None, None
    state.adding = None


def _attempt_again(state: State, event: Event, id: str, turn: int) -> None:
    receipt = state.receipts[id]
    state.receipts[id] = receipt.to(
        "entered", at=event.time, seq=event.seq, turn=turn, step=receipt.step, outcome=None,
        attempts=(*receipt.attempts, turn),
    )  # fmt: skip


def _abort_requested(state: State, event: Event) -> None:
    data = event.data
    if state.turn is None or state.turn.number != data["turn"]:
        return
    _abort(state, Abort(data.get("cause", "user"), data["disposition"], data.get("by"), data.get("reason")))
    if data["disposition"] != "continue":
        state.parked = Parked("abort", data.get("reason"), event.time, event.seq, data.get("by"))


def _abort(state: State, abort: Abort) -> None:
    turn = _open(state)
    both = abort if turn.abort is None else turn.abort.joined_by(abort)
    state.turn = evolve(turn, abort=both)


def _step_start(state: State, event: Event) -> None:
    state.turn = evolve(
        _open(state), step=event.data["step"], step_open=True, answered=False, chunks_from=None,
        calls={}, results_wait=False,
    )  # fmt: skip


def _step_end(state: State, event: Event) -> None:
    turn = _open(state)
    worked = event.data.get("worked_ms", turn.worked)
    ended = evolve(turn, step_open=False, chunks_from=None, worked=worked)
    state.turn = counting.spend(state, ended, event)


def _retried(state: State, event: Event) -> None:
    if state.turn is not None:
        state.turn = counting.spend(state, state.turn, event)


def _step_rejected(state: State, event: Event) -> None:
    turn, data = _open(state), event.data
    ids = tuple(dict.fromkeys(data["messages"]))
    for id in ids:
        receipt = state.receipts[id]
        state.receipts[id] = receipt.to(
            "rejected", at=event.time, seq=event.seq, turn=turn.number, outcome="rejected",
            by={"by": data.get("by"), "reason": data.get("reason")},
        )  # fmt: skip
    state.turn = evolve(turn, claimed=tuple(c for c in turn.claimed if c[1].id not in ids))
    _removed(state, event, "reject", ids, {"kind": "plugin", "via": data.get("by")})


def _user_message(state: State, event: Event) -> None:
    turn, data = _open(state), event.data
    message = Message.from_json(data)
    state.next_message = max(state.next_message, int(message.id.rpartition(".")[2]) + 1)
    receipt = state.receipts.get(message.id) or Receipt(message, "new", None, event.seq)
    state.receipts[message.id] = receipt.to(
        "entered", at=event.time, seq=event.seq, turn=data["turn"], step=data["step"],
        message=message, attempts=(*receipt.attempts, data["turn"]),
    )  # fmt: skip
    _attached(state, message)
    if message.source.get("via") == "context":
        state.snapshot = message.text
    state.turn = evolve(
        turn,
        claimed=tuple(c for c in turn.claimed if c[1].id != message.id),
        members=(*turn.members, message.id),
    )


def _chunk(state: State, event: Event) -> None:
    turn = _open(state)
    if turn.chunks_from is None:
        state.turn = evolve(turn, chunks_from=event.seq)


def _request_sent(state: State, event: Event) -> None:
    """A new attempt: what an earlier one streamed is no part of the answer."""
    state.turn = evolve(_open(state), chunks_from=None)


def _assistant(state: State, event: Event) -> None:
    turn, data = _open(state), event.data
    calls = {
        b["id"]: CallState(b["id"], b["name"], b["arguments"])
        for b in data["content"]
        if b["type"] == "tool-call"
    }
    answered = evolve(
        turn,
        answered=True,
        chunks_from=None,
        calls=calls,
        tools=turn.tools + len(calls),
        answer=answer_of(data["content"]) or turn.answer,
        model=data.get("model"),
    )
    state.turn = counting.spend(state, answered, event)


def _tool_call(state: State, event: Event) -> None:
    turn, id = _open(state), event.data["call"]
    started = evolve(turn.calls[id], started=True)
    state.turn = evolve(turn, calls={**turn.calls, id: started})


def _tool_result(state: State, event: Event) -> None:
    turn, data = _open(state), event.data
    call = turn.calls[data["call"]]
    unknown, code = turn.unknown, (data.get("error") or {}).get("code")
    if code == "OUTCOME_UNKNOWN":
        unknown = (*unknown, {"tool": call.name, "what": str(data["error"].get("what", ""))})
    rest = {id: c for id, c in turn.calls.items() if id != call.id}
    errors = turn.errors
    if code not in UNFINISHED:
        errors = errors + 1 if data.get("is_error") else 0
    state.turn = evolve(turn, calls=rest, unknown=unknown, results_wait=True, errors=errors)


def _turn_end(state: State, event: Event) -> None:
    turn, data = _open(state), event.data
    reason = data["reason"]
    for _, message in turn.claimed:
        _never_entered(state, event, turn, message)
    if turn.claimed:
        cleared = turn.abort is not None and turn.abort.disposition == "clear"
        by = turn.abort.by if turn.abort else None
        _removed(state, event, "clear" if cleared else "abort", tuple(m.id for _, m in turn.claimed), by)
    for id in turn.members:
        receipt = state.receipts[id]
        state.receipts[id] = receipt.to("settled", at=event.time, seq=event.seq, outcome=reason)
    state.turns[turn.number] = end(turn, data, event.time)
    state.turn = None
    state.resume = turn.number if data.get("resume") else None
    _count_crash(state, event)
    _park_at_end(state, event, turn)


def _never_entered(state: State, event: Event, turn: OpenTurn, message: Message) -> None:
    cleared = turn.abort is not None and turn.abort.disposition == "clear"
    word = "cleared" if cleared else "aborted"
    by = turn.abort.by if turn.abort else None
    receipt = state.receipts[message.id]
    state.receipts[message.id] = receipt.to(word, at=event.time, seq=event.seq, by=by, outcome=word)


def _count_crash(state: State, event: Event) -> None:
    if not event.data.get("recovery"):
        state.crashes = 0
        return
    state.crashes += 1
    if state.crashes >= CRASH_LOOP:
        state.parked = Parked("crash-loop", None, event.time, event.seq)


def _park_at_end(state: State, event: Event, turn: OpenTurn) -> None:
    reason = event.data["reason"]
    error = event.data.get("error") or {}
    if reason in ("error", "budget"):
        if state.parked is not None and state.parked.by not in ("error", reason):
            return  # a retry that failed: what waits for a person still does
        what = error.get("message") if reason == "error" else event.data.get("cause")
        state.parked = Parked(reason, what, event.time, event.seq, budget=event.data.get("budget"))
    elif turn.then_park and not event.data.get("resume") and state.receipts[turn.then_park].ended:
        who = state.receipts[turn.then_park].message.source
        state.parked = Parked("interrupt", None, event.time, event.seq, dict(who))


# --- the rest ------------------------------------------------------------------------------------


def _request_header(state: State, event: Event) -> None:
    state.request_header = event.data


def _request_context(state: State, event: Event) -> None:
    state.request_context = event.data


def _todo(state: State, event: Event) -> None:
    state.todo = tuple(event.data["items"])


def _gap(state: State, event: Event) -> None:
    """A repaired log: from here on, what refers into the gap is made to fit, or ignored."""
    state.gap, state.retry, state.adding = True, None, None
    state.doubted = (*state.doubted, *gaps.doubted(state))


def _repaired(state: State, event: Event) -> None:
    state.repaired = True


_FOLD: Final[dict[str, Callable[[State, Event], None]]] = {
    "session/header": _header,
    "session/changed": _changed,
    "session/closed": _closed,
    "session/reopened": _reopened,
    "session/opened": _opened,
    "session/forked": _forked,
    "session/imported": _imported,
    "inbox/spliced": _spliced,
    "driver/woken": _woken,
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "step/start": _step_start,
    "step/end": _step_end,
    "step/rejected": _step_rejected,
    "user/message": _user_message,
    "assistant/chunk": _chunk,
    "assistant/message": _assistant,
    "llm/retry": _retried,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
    "request/header": _request_header,
    "request/context": _request_context,
    "request/sent": _request_sent,
    "abort/requested": _abort_requested,
    "todo/write": _todo,
    "log/gap": _gap,
    "log/repaired": _repaired,
}


def _parts(state: State) -> dict[str, Any]:
    names = [a.name for a in attrs.fields(State) if a.name not in _CONTAINERS]
    parts: dict[str, Any] = {name: getattr(state, name) for name in names}
    for name in _CONTAINERS[:-1]:
        parts[name] = sorted(getattr(state, name).items(), key=lambda kv: kv[0])
    parts["surface"] = [(e.seq, e.type) for e in state.surface]
    return parts


_CONTAINERS: Final = ("receipts", "keys", "turns", "files", "surface")


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
