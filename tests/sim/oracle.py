"""What a session's log may say: the contract told a second time, event by event.

`Oracle` follows a log with its own small state, written from the contract and not from the fold, and
raises `Violation` at the first event that can't be so: a message lost or doubled, a claim that takes the
wrong ones, a message in the wrong place, a turn while parked, a step after an abort, a call that ran
unannounced. At rest it says what must have gone on by itself (`must_run`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import attrs

from tests.sim.clockwork import MOST_INLINE
from tests.sim.surface import Surface

QUEUES = ("next-turn", "next-step", "held")
ENDS = {"remove": "removed", "clear": "cleared", "expire": "expired", "supersede": "superseded"}
WAITING = ("pending", "held", "claimed")
FAILED = ("error", "interrupted", "budget", "max-tokens", "aborted")
ENDED = (*ENDS.values(), "rejected", "aborted")
HOME = {"followup": "next-turn", "steer": "next-step", "inject": "next-step"}


class Violation(AssertionError):
    """The log says what the contract forbids."""


@attrs.define(eq=False)
class Turn:
    number: int
    seq: int
    retry_of: int | None
    members: list[str]
    claimed: list[tuple[str, str]] = attrs.field(factory=list)  # (queue, id)
    claims: int = 0
    opener: str | None = None
    keeper: str | None = None
    step: int = 0
    step_open: bool = False
    attempt: int = 0
    waits: bool = False
    abort: str | None = None
    calls: dict[str, bool] = attrs.field(factory=dict)  # {unanswered call: started}
    entered: list[str] = attrs.field(factory=list)  # in the open step, claimed ones only
    asked: dict[str, str] = attrs.field(factory=dict)  # {call: approval}
    let_down: bool = False  # a question was withdrawn while the step did nothing but wait for its answer

    @property
    def rests(self) -> bool:
        """It waits for an answer, and no call is unfinished."""
        first = next(iter(self.calls), None)
        return first in self.asked and not any(self.calls.values())


class Oracle:
    """``since``: the seq at which the daemon that lives now has started."""

    def __init__(self, since: int = 0) -> None:
        self.since = since
        self.queues: dict[str, list[str]] = {q: [] for q in QUEUES}
        self.messages: dict[str, Any] = {}
        self.state: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.turn: Turn | None = None
        self.ended: dict[int, Any] = {}
        self.members: dict[int, tuple[list[str], str | None]] = {}
        self.last = 0
        self.parked: str | None = None
        self.crashes = 0
        self.resume: int | None = None
        self.retry: int | None = None
        self.given_up: set[int] = set()  # turns that were to come, but for a closing
        self.put: dict[str, int] = {}  # {message: the seq at which it came to where it is}
        self.attached: dict[str, int] = {}  # {sha256: bytes}
        self.name: str | None = None
        self.closed = False
        self.woken = False
        self.going_on = False
        self.next_message = 1
        self.header: Any = None
        self.at: Any = None
        self.started: set[str] = set()
        self.not_started: set[str] = set()
        self.sent: set[str] = set()
        self.edits: set[str] = set()
        self.moves: list[tuple[str, ...]] = []
        self.aborts: set[int] = set()
        self.texts: dict[str, str] = {}  # {text: id} of what was ever inserted or edited in
        self.changes: list[Any] = []
        self.undone: set[str] = set()
        self.types: set[str] = set()
        self.history = False  # what is copied into a fork: its turns, and nothing of its inbox
        self.imported = False
        self.asked: set[str] = set()
        self.answers: dict[str, str] = {}
        self.due: dict[int, int] = {}  # {turn whose end a hook is still to be told of: tries}
        self.told: dict[int, int] = {}  # {turn whose end was told, or given up: tries}
        self.surface = Surface(self.need)

    def follow(self, events: Iterable[Any]) -> Oracle:
        for event in events:
            self.at = event
            self.types.add(event.type)
            handler = HANDLERS.get(event.type)
            if self.surface.take(event, self.turn, history=self.history):
                self.compacted(event, event.data)
            elif handler is not None:
                handler(self, event, event.data)
        return self

    def need(self, holds: Any, why: str) -> None:
        if not holds:
            raise Violation(f"seq {self.at.seq} {self.at.type}: {why}")

    # --- questions

    def front(self, id: str) -> bool:
        return bool(self.messages[id].get("front"))

    @property
    def copied(self) -> bool:
        """Whether it was another session's."""
        return self.imported or self.header.get("origin") == "fork"

    @property
    def again(self) -> int | None:
        return self.resume if self.resume is not None else self.retry

    @property
    def must_run(self) -> str | None:
        """Why an idle, healthy daemon should be working on this, if it should."""
        if self.closed:
            return None
        if self.again is not None:
            return f"turn {self.again} is to be gone on with, or retried"
        if self.parked:
            return None
        for queue in ("next-step", "next-turn"):
            for id in self.queues[queue]:
                if self.messages[id]["wake"]:
                    return f"{id} waits in {queue} and wakes"
        if self.queues["next-turn"] and (self.woken or self.going_on):
            return f"{self.queues['next-turn'][0]} waits in next-turn and the driver was running or woken"
        return None

    @property
    def must_open(self) -> bool:
        """Whether the daemon must open this by itself at its start."""
        timed = any(self.messages[id].get("expires") for q in QUEUES for id in self.queues[q])
        return bool(self.turn or self.queues["held"] or timed or self.must_run or self.due)

    # --- inbox

    def spliced(self, event: Any, data: Any) -> None:
        cause = data["cause"]
        before = {q: list(ids) for q, ids in self.queues.items()}
        gone = [(op["queue"], id) for op in data["ops"] for id in op["remove"]]
        came = [(op["queue"], m) for op in data["ops"] for m in op["insert"]]
        for op in data["ops"]:
            self.splice(op)
        new = {m["id"] for _, m in came}
        rest = {q: [id for id in ids if (q, id) not in gone or id in new] for q, ids in before.items()}
        self.need(len(new) == len(came), "inserts an id twice")
        if cause == "claim":
            self.need(not came, "a claim inserts")
            self.claim(before, gone, data)
        lost = [id for _, id in gone if id not in new]
        self.need(cause == "claim" or cause in ENDS or not lost, f"{cause} drops {lost}")
        for id in lost if cause != "claim" else ():
            self.state[id] = ENDS[cause]
        if cause == "expire":
            self.need(all(self.may_expire(id, event, data) for id in lost), f"{lost} need not expire")
        back = [m["id"] for _, m in came if m["id"] in self.state and self.state[m["id"]] == "claimed"]
        if back:
            self.returned(back, before, cause)
        for queue, m in came:
            self.came(queue, m, cause, rest, data)
        if cause == "move":
            self.moves.append(tuple(sorted(m["id"] for _, m in came)))
            strange = [m["id"] for q, m in came if q == "held" and m["id"] not in before["held"]]
            self.need(not strange, f"{strange} are moved to held")
        if self.turn and data.get("interrupts") == self.turn.number:
            self.turn.abort = self.turn.abort or "continue"
            self.aborts.add(self.turn.number)
        self.woken = self.woken and bool(self.queues["next-turn"])
        self.going_on = self.going_on and bool(self.queues["next-turn"])
        everywhere = [id for q in QUEUES for id in self.queues[q]]
        self.need(len(everywhere) == len(set(everywhere)), "an id stands twice")

    def splice(self, op: Any) -> None:
        ids = self.queues[op["queue"]]
        for id in op["remove"]:
            self.need(id in ids, f"{op['queue']} doesn't hold {id}")
            ids.remove(id)
        at = len(ids)
        if op.get("before") is not None:
            self.need(op["before"] in ids, f"no {op['before']} to insert before")
            at = ids.index(op["before"])
        ids[at:at] = [m["id"] for m in op["insert"]]

    def may_expire(self, id: str, event: Any, data: Any) -> bool:
        m = self.messages[id]
        timed = m.get("expires") is not None and m["expires"] <= event.time
        return timed or (m.get("if_turn") is not None and m["if_turn"] <= self.last)

    def claim(self, before: Any, gone: list[tuple[str, str]], data: Any) -> None:
        turn = self.turn
        self.need(turn is not None and data["turn"] == turn.number, "a claim outside its turn")
        assert turn is not None
        self.need(not turn.step_open, "a claim inside a step")
        first = turn.claims == 0 and turn.step == 0 and turn.retry_of is None
        wanted = [("next-step", id) for id in before["next-step"]]
        if first:
            wanted += [("next-turn", id) for id in before["next-turn"][:1]]
        if self.parked:  # a retry: what is parked stays so, but for what is said to this turn
            wanted = [(q, id) for q, id in wanted if q == "next-step" and self.put[id] > turn.seq]
        self.need(gone == wanted, f"claims {gone}, not {wanted}")
        self.need(turn.abort is None, "a claim after the abort")
        turn.claims += 1
        turn.claimed += gone
        for queue, id in gone:
            self.state[id] = "claimed"
            if queue == "next-turn":
                turn.opener = id
                turn.keeper = id if self.messages[id].get("then_park") else turn.keeper

    def returned(self, back: list[str], before: Any, cause: str) -> None:
        turn = self.turn
        self.need(turn is not None, f"{back} come back outside a turn")
        assert turn is not None
        self.need(cause in ("requeue", "recover", "hold"), f"claimed {back} come back by {cause}")
        for queue in ("next-turn", "next-step"):
            mine = [id for q, id in turn.claimed if q == queue and id in back]
            if cause != "hold" and any(id in self.queues[queue] for id in mine):
                mine = [id for id in mine if id in self.queues[queue]]
                self.need(self.queues[queue] == mine + before[queue], f"{mine} are not back at the front")
        turn.claimed = [(q, id) for q, id in turn.claimed if id not in back]

    def came(self, queue: str, m: Any, cause: str, before: Any, data: Any) -> None:
        id = m["id"]
        known = id in self.messages
        old: Any = self.messages.get(id)
        self.messages[id], self.put[id] = m, self.at.seq
        self.texts[text_of(m)] = id
        self.attached.update(attachments_of(m))
        if known:
            was = self.state[id]
            self.need(
                was in (ENDED if cause == "undo" else WAITING), f"{id} was {was} and is back by {cause}"
            )
            if cause == "undo":
                self.undone.add(id)
            if cause == "edit":
                self.edits.add(text_of(m))
                self.need(self.queues[queue] == before[queue], "an edit moves")
                self.need(m.get("version", 1) == old.get("version", 1) + 1, "an edit without a version")
            if cause == "due":
                self.need(old.get("due") is not None and old["due"] <= self.at.time, f"{id} is not due")
        else:
            self.new(queue, m, cause, before, data)
        self.state[id] = "held" if queue == "held" else "pending"

    def new(self, queue: str, m: Any, cause: str, before: Any, data: Any) -> None:
        id, turn = m["id"], self.turn
        self.need(cause in ("send", "supersede"), f"a new message by {cause}")
        self.need(int(id.rpartition(".")[2]) == self.next_message, f"{id}, not number {self.next_message}")
        self.next_message += 1
        if m.get("key") is not None:
            self.need(m["key"] not in self.keys, f"key {m['key']} is used twice")
            self.keys[m["key"]] = id
        if queue == "held":
            return
        self.need(not self.closed, "a message in a closed session")
        dying = m["wake"] and turn is not None and turn.abort is not None
        unparks = (
            self.parked is not None
            and m["wake"]
            and (m["source"]["kind"] == "user" or self.parked == "error")
        )
        joins = turn is not None and HOME[m["verb"]] == "next-step"
        rest, at = before[queue], self.queues[queue].index(id)
        if dying or (unparks and not joins) or m.get("then_park") or "interrupts" in data:
            self.need(queue == "next-turn", f"{id} should be redirected to next-turn")
            ahead = next((i for i, other in enumerate(rest) if not self.front(other)), len(rest))
            self.need(at == ahead, f"{id} stands at {at}, not {ahead}, behind earlier ones of its kind")
        elif m.get("front"):
            self.need(at in (0, sum(1 for o in rest if self.front(o))), f"{id} is not at the front")
        else:
            self.need(queue == HOME[m["verb"]], f"{m['verb']} {id} in {queue}")
            self.need(at == len(rest), f"{id} is not behind those acknowledged before")
        if unparks:
            self.parked, self.crashes = None, 0

    # --- stopping, parking, going on

    def abort(self, event: Any, data: Any) -> None:
        if self.turn is None or self.turn.number != data["turn"]:
            return
        self.aborts.add(data["turn"])
        strict = ("continue", "keep", "clear")
        asked = data["disposition"]
        self.turn.abort = max(self.turn.abort or "continue", asked, key=strict.index)
        if asked != "continue":
            self.parked = "abort"

    def woke(self, event: Any, data: Any) -> None:
        if data.get("try"):
            self.need(self.turn is not None and self.turn.waits, "a step that doesn't wait is to try at once")
            return
        self.crashes = 0
        if "retry" in data:
            self.wished(data["retry"])
            return
        self.parked = None
        self.woken = bool(self.queues["next-turn"])

    def wished(self, turn: int) -> None:
        """The last turn once more: it failed, and its message had entered."""
        self.need(self.turn is None, "a retry while a turn runs")
        self.need(turn == self.last, f"turn {turn} is retried, and {self.last} came after it")
        self.need(self.ended[turn]["reason"] in FAILED, f"turn {turn} didn't fail")
        self.need(self.members[turn][0], f"turn {turn} ended before its message entered")
        self.retry = turn

    def close(self, event: Any, data: Any) -> None:
        self.need(self.turn is None, "closed while a turn runs")
        self.need(not any(self.queues.values()), "closed while messages wait")
        if self.again is not None:
            self.given_up.add(self.last + 1)
        self.closed, self.resume, self.retry = True, None, None

    def reopen(self, event: Any, data: Any) -> None:
        self.closed = False

    # --- turns and steps

    def turn_start(self, event: Any, data: Any) -> None:
        self.need(self.turn is None, "a turn inside a turn")
        self.need(data["turn"] == self.last + 1, f"turn {data['turn']} after {self.last}")
        retry, again = data.get("retry_of"), self.again
        if not self.history:
            self.need(retry == again, f"a turn that repeats {retry}, and {again} is to be repeated")
            self.need(retry or self.parked is None, f"a turn while parked ({self.parked})")
            self.need(not self.closed, "a turn while closed")
        members, keeper = self.members.get(retry, ([], None)) if retry else ([], None)
        self.turn = Turn(data["turn"], event.seq, retry, list(members), keeper=keeper)
        for id in members:
            self.state[id] = "entered"
        self.last, self.resume, self.retry = data["turn"], None, None
        self.woken = self.going_on = False

    def open_turn(self, data: Any) -> Turn:
        self.need(self.turn is not None and self.turn.number == data["turn"], "outside its turn")
        assert self.turn is not None
        return self.turn

    def turn_end(self, event: Any, data: Any) -> None:
        turn, reason = self.open_turn(data), data["reason"]
        self.need(not (turn.waits and self.closes_alive(data)), f"a turn that only waits is closed: {data}")
        self.need(not (turn.let_down and self.closes_alive(data)), f"a turn that waits is closed: {data}")
        unanswered = turn.asked.values() - self.answers.keys()
        self.need(not unanswered, f"a turn ends, and {unanswered} are still asked")
        self.need(not turn.step_open, "a turn ends inside a step")
        self.need(not turn.calls, f"calls without a result: {turn.calls}")
        if not self.history:
            self.need((reason == "aborted") == (turn.abort is not None), f"{reason}, and abort={turn.abort}")
        for id in [id for _, id in turn.claimed]:
            self.need(turn.abort is not None, f"{id} was claimed, and the turn ended {reason}")
            self.need(self.dies_by_abort(turn, id), f"{id} should go back, not end")
            self.state[id] = "cleared" if turn.abort == "clear" else "aborted"
        for id in turn.members:
            self.state[id] = "settled"
        self.ended[turn.number] = data
        self.members[turn.number] = (turn.members, turn.keeper)
        self.turn, self.resume = None, turn.number if data.get("resume") else None
        self.crashes = self.crashes + 1 if data.get("recovery") else 0
        self.park_at_end(turn, data)
        # a driver that runs goes on with whatever is there; one that was stopped or killed doesn't
        lives = event.seq >= self.since and not data.get("recovery")
        self.going_on = lives and not self.parked and bool(self.queues["next-turn"])

    def closes_alive(self, data: Any) -> bool:
        """Whether a stop or an opening ended it, and not what came of its work."""
        stopped = data.get("recovery") or data.get("cause") == "shutdown"
        return bool(stopped) and data["reason"] == "interrupted" and data.get("cause") != "import"

    def dies_by_abort(self, turn: Turn, id: str) -> bool:
        if turn.abort == "clear" or id == turn.opener:
            return True
        return turn.opener is None and not turn.step and bool(self.messages[id]["wake"])

    def park_at_end(self, turn: Turn, data: Any) -> None:
        keeper = turn.keeper
        if self.crashes >= 3:
            self.parked = "crash-loop"
        if data["reason"] in ("error", "budget"):
            if self.parked in (None, "error"):  # else a retry failed: what waits for a person still does
                self.parked = data["reason"]
        elif keeper and not data.get("resume") and self.state[keeper] not in ("pending", "held"):
            self.parked = "interrupt"

    def step_start(self, event: Any, data: Any) -> None:
        turn = self.open_turn(data)
        self.need(not turn.step_open, "a step inside a step")
        self.need(data["step"] == turn.step + 1, f"step {data['step']} after {turn.step}")
        self.need(turn.abort is None, "a step after the abort")
        self.need(not turn.calls, "a step while calls have no result")
        turn.step, turn.step_open, turn.entered = data["step"], True, []
        turn.attempt, turn.waits = 0, False

    def step_end(self, event: Any, data: Any) -> None:
        turn = self.open_turn(data)
        self.need(turn.step_open and data["step"] == turn.step, "not the open step")
        turn.step_open = False

    def rejected(self, event: Any, data: Any) -> None:
        turn = self.turn
        self.need(turn is not None, "outside a turn")
        assert turn is not None
        for id in data["messages"]:
            self.need(id in [c for _, c in turn.claimed], f"{id} is rejected and was not claimed")
            self.state[id] = "rejected"
        turn.claimed = [(q, id) for q, id in turn.claimed if id not in data["messages"]]

    def user(self, event: Any, data: Any) -> None:
        turn, id = self.open_turn(data), data["id"]
        self.need(turn.step_open, "a message enters outside a step")
        if id in self.state:
            waiting = [c for _, c in turn.claimed]
            self.need(id in waiting, f"{id} enters and is {self.state[id]}")
            self.need(waiting[0] == id, f"{id} enters before {waiting[0]}")
            turn.claimed = [(q, c) for q, c in turn.claimed if c != id]
        else:
            number = int(id.rpartition(".")[2])
            self.need(self.history or number == self.next_message, f"{id}: not the next number")
            self.next_message = max(self.next_message, number + 1)
            self.messages[id] = data
            self.attached.update(attachments_of(data))
        turn.members.append(id)
        self.state[id] = "entered"

    def assistant(self, event: Any, data: Any) -> None:
        turn = self.open_turn(data)
        self.need(turn.step_open, "an answer outside a step")
        self.need(not turn.claimed, "an answer, and what was claimed has not entered")
        turn.calls = {b["id"]: False for b in data["content"] if b["type"] == "tool-call"}

    def compacted(self, event: Any, data: Any) -> None:
        """A compaction's own request, message or result."""
        if event.type == "request/sent":
            self.sent.add(data["sha256"])
            self.need(self.turn is None or self.turn.abort is None, "a request after the abort")
        elif event.type == "user/message":
            number = int(data["id"].rpartition(".")[2])
            self.need(self.history or number == self.next_message, f"{data['id']}: not the next number")
            self.next_message = max(self.next_message, number + 1)

    def request(self, event: Any, data: Any) -> None:
        turn = self.open_turn(data)
        self.need(turn.step_open, "a request outside a step")
        self.need(data["attempt"] == turn.attempt + 1, f"attempt {data['attempt']} after {turn.attempt}")
        self.need(turn.abort is None, "a request after the abort")
        turn.attempt, turn.waits = data["attempt"], False
        self.sent.add(data["sha256"])

    def failed(self, event: Any, data: Any) -> None:
        turn = self.open_turn(data)
        self.need(turn.step_open and data["attempt"] == turn.attempt + 1, "not an attempt of the open step")
        turn.waits = bool(data.get("waits"))
        self.need(not (turn.waits and turn.abort is not None), "a wait after the abort")

    def call(self, event: Any, data: Any) -> None:
        turn, id = self.open_turn(data), data["call"]
        self.need(turn.calls.get(id) is False, f"{id} was not asked for, or has begun")
        self.need(turn.abort is None, "a call begins after the abort")
        if id in turn.asked:
            answer = self.answers.get(turn.asked[id])
            self.need(answer == "allow", f"{id} begins, and {turn.asked[id]} is {answer}")
        turn.calls[id] = True
        self.started.add(id)

    def result(self, event: Any, data: Any) -> None:
        turn, id = self.open_turn(data), data["call"]
        self.need(id in turn.calls, f"{id} has a result already, or was never asked")
        code = (data.get("error") or {}).get("code")
        denied = self.answers.get(turn.asked.get(id, "")) == "deny"
        if not self.history:  # a fork has no questions of its parent's, nor their answers
            self.need(denied == (code == "DENIED"), f"{id}: {code}, and denied is {denied}")
        if code in ("NOT_STARTED", "SKIPPED"):
            self.not_started.add(id)
        elif code in ("OUTCOME_UNKNOWN", "STOPPED"):
            self.need(turn.calls[id], f"{id} never began")
        del turn.calls[id]

    def asks(self, event: Any, data: Any) -> None:
        turn, id = self.open_turn(data), data["id"]
        self.need(turn.calls.get(data["call"]) is False, f"{data['call']} was not asked for, or has begun")
        self.need(id not in self.asked, f"{id} is asked twice")
        self.need(turn.abort is None, "a question after the abort")
        self.asked.add(id)
        turn.asked[data["call"]] = id

    def answered(self, event: Any, data: Any) -> None:
        id, turn = data["id"], self.turn
        self.need(id in self.asked and id not in self.answers, f"{id} is not asked, or answered already")
        self.need(turn is not None and id in turn.asked.values(), f"{id} is answered outside of its turn")
        if turn is not None and data["answer"] == "withdrawn" and turn.rests and turn.abort is None:
            turn.let_down = True
        self.answers[id] = data["answer"]

    def hook_due(self, event: Any, data: Any) -> None:
        self.need(self.turn is not None and data["turn"] == self.turn.number, "owed for another turn")
        self.due[data["turn"]] = 0

    def hook_begun(self, event: Any, data: Any) -> None:
        first = min(self.due, default=None)
        self.need(data["turn"] == first, f"{data['turn']} is to be told, and {first} is due")
        self.need(data["turn"] in self.ended, "it has not ended")
        self.due[data["turn"]] += 1

    def hook_done(self, event: Any, data: Any) -> None:
        self.need(data["turn"] in self.due, "it is not due")
        self.told[data["turn"]] = self.due.pop(data["turn"])

    def head(self, event: Any, data: Any) -> None:
        self.header, self.name = data, data.get("name") or data["id"]
        self.history = data.get("origin") == "fork"

    def forked(self, event: Any, data: Any) -> None:
        self.need(self.history, "a fork's beginning in another session's log")
        self.need(self.turn is None, "forked inside a turn")
        self.history, self.parked, self.resume, self.retry, self.crashes = False, None, None, None, 0
        self.going_on = False

    def came_from_elsewhere(self, event: Any, data: Any) -> None:
        self.need(self.turn is None, "imported inside a turn")
        self.imported, self.parked, self.resume, self.retry, self.crashes = True, "import", None, None, 0
        self.woken = self.going_on = False
        self.due = {}

    def changed(self, event: Any, data: Any) -> None:
        self.changes += list(data["set"].values())
        self.name = data["set"].get("name", self.name)


def attachments_of(message: Any) -> dict[str, int]:
    return {block["sha256"]: block["bytes"] for block in message["content"] if block["type"] == "file"}


def as_logged(text: str) -> str:
    """What the log says of a text that is attached."""
    raw = text.encode()
    return text if len(raw) <= MOST_INLINE else f"file {hashlib.sha256(raw).hexdigest()}"


def text_of(message: Any) -> str:
    return "\n".join(b["text"] if b["type"] == "text" else f"file {b['sha256']}" for b in message["content"])


HANDLERS: dict[str, Any] = {
    "hook/due": Oracle.hook_due,
    "hook/begun": Oracle.hook_begun,
    "hook/done": Oracle.hook_done,
    "session/header": Oracle.head,
    "session/changed": Oracle.changed,
    "session/forked": Oracle.forked,
    "session/imported": Oracle.came_from_elsewhere,
    "session/closed": Oracle.close,
    "session/reopened": Oracle.reopen,
    "inbox/spliced": Oracle.spliced,
    "abort/requested": Oracle.abort,
    "driver/woken": Oracle.woke,
    "turn/start": Oracle.turn_start,
    "turn/end": Oracle.turn_end,
    "step/start": Oracle.step_start,
    "step/end": Oracle.step_end,
    "step/rejected": Oracle.rejected,
    "user/message": Oracle.user,
    "assistant/message": Oracle.assistant,
    "request/sent": Oracle.request,
    "llm/retry": Oracle.failed,
    "approval/asked": Oracle.asks,
    "approval/answered": Oracle.answered,
    "tool/call": Oracle.call,
    "tool/result": Oracle.result,
}
