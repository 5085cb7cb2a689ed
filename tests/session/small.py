"""The model that `test_machine` compares a session with: queues, parking, one turn, and fates.

It knows nothing of logs, disks or tasks. It says what must be so once everything that can happen by
itself has happened: the driver is idle, or waits for the model, a tool or a plugin.
"""

from __future__ import annotations

from collections import Counter

import attrs

PLACES = {"followup": "next-turn", "steer": "next-step", "inject": "next-step"}
MOVES = {"first": None, "last": None, "promote": "next-step", "demote": "next-turn"}
Claimed = list[tuple[str, str]]  # (queue, id)


@attrs.define
class Turn:
    """``waits``: for the model, a tool, or a plugin at the gate. ``results``: they wait to be sent."""

    number: int
    waits: str = "gate"
    step: int = 0
    members: list[str] = attrs.field(factory=list)
    claimed: Claimed = attrs.field(factory=list)
    opener: str | None = None
    results: bool = False
    capped: bool = False
    retry: bool = False


@attrs.define
class Small:
    limit: int
    queues: dict[str, list[str]] = attrs.field(factory=lambda: {"next-step": [], "next-turn": [], "held": []})
    fate: dict[str, str] = attrs.field(factory=dict)  # {id: where it is or how it ended}
    wakes: set[str] = attrs.field(factory=set)
    front: set[str] = attrs.field(factory=set)
    due: dict[str, int] = attrs.field(factory=dict)  # {id: the epoch in which it was deferred}
    home: dict[str, str] = attrs.field(factory=dict)
    keys: dict[str, tuple[str, str, str]] = attrs.field(factory=dict)  # {key: (id, verb, text)}
    tied: dict[str, int] = attrs.field(factory=dict)  # {id: the turn it is meant for}
    failed: Counter[str] = attrs.field(factory=Counter)
    keeps: set[str] = attrs.field(factory=set)  # whose turn's end parks
    verdicts: list[str] = attrs.field(factory=list)
    parked: str | None = None
    turn: Turn | None = None
    last: int = 0
    asked: int = 0
    crashes: int = 0
    woken: bool = False
    resume: Turn | None = None
    epoch: int = 0

    # --- questions

    @property
    def runnable(self) -> bool:
        if self.parked:
            return False
        waiting = self.queues["next-step"] + self.queues["next-turn"]
        woken = self.woken and bool(self.queues["next-turn"])
        return self.resume is not None or woken or any(id in self.wakes for id in waiting)

    @property
    def pending(self) -> int:
        return sum(map(len, self.queues.values()))

    def where(self, id: str) -> str | None:
        return next((q for q, ids in self.queues.items() if id in ids), None)

    # --- saying something

    def send(self, id: str, verb: str, wake: bool, person: bool, *, first: bool = False) -> None:
        queue = PLACES[verb]
        if wake:
            self.wakes.add(id)
        unparks = self.parked and wake and (person or self.parked == "error")
        if unparks:
            self.parked, self.crashes = None, 0
            self._put_in_front(id)
        elif first:
            self._put(queue, id, 0)
            self.front.add(id)
        else:
            self._put(queue, id)
        self.go()

    def interrupt(self, id: str, keep: bool) -> None:
        self.wakes.add(id)
        if keep:
            self.keeps.add(id)
        if self.parked:
            self.parked, self.crashes = None, 0
        self._put_in_front(id)
        if self.turn:
            self.end("aborted", "continue")
        self.go()

    def _put_in_front(self, id: str) -> None:
        items = self.queues["next-turn"]
        self._put("next-turn", id, next((i for i, m in enumerate(items) if m not in self.front), len(items)))
        self.front.add(id)

    def _put(self, queue: str, id: str, at: int | None = None) -> None:
        items = self.queues[queue]
        items.insert(len(items) if at is None else at, id)
        self.fate[id] = "held" if queue == "held" else "pending"

    # --- queue commands

    def take_out(self, ids: list[str], fate: str) -> None:
        for items in self.queues.values():
            items[:] = [m for m in items if m not in ids]
        self.fate.update(dict.fromkeys(ids, fate))
        self.woken = self.woken and bool(self.queues["next-turn"])

    def clear(self, queue: str | None) -> None:
        self.take_out([m for q, ids in self.queues.items() if queue in (None, q) for m in ids], "cleared")

    def move(self, how: str, id: str) -> None:
        source = self.where(id)
        assert source
        queue = MOVES[how] or source
        woken = self.woken
        self.take_out([id], "pending")
        self.front.discard(id)
        if queue != "held":
            self.due.pop(id, None)
        if how == "first":
            self.front.add(id)
        self._put(queue, id, 0 if how == "first" else None)
        self.woken = woken and bool(self.queues["next-turn"])
        self.go()

    def release(self, id: str) -> None:
        self.take_out([id], "pending")
        self.due.pop(id, None)
        self.front.discard(id)
        self._put(self.home[id], id)
        self.go()

    def wake(self) -> None:
        waits = self.queues["next-turn"] or any(m in self.wakes for m in self.queues["next-step"])
        if self.parked is None and (self.turn or self.runnable or not waits):
            return
        self.parked, self.crashes, self.woken = None, 0, bool(self.queues["next-turn"])
        self.go()

    def time_passes(self) -> None:
        for queue in ("next-step", "next-turn"):
            back = [m for m in self.queues["held"] if m in self.due and self.home[m] == queue]
            back.sort(key=lambda m: self.due[m])
            self.take_out(back, "pending")
            self.queues[queue][:0] = [m for m in back if m in self.front]
            self.queues[queue] += [m for m in back if m not in self.front]
        self.due.clear()
        self.go()

    # --- turns

    def go(self, *, running: bool = False) -> None:
        """Open a turn if there is none and there is something to do."""
        if self.turn or self.parked:
            return
        if self.runnable or (running and self.queues["next-turn"]):
            self._open()

    def _open(self) -> None:
        self.last += 1
        self.woken = False
        turn = self.turn = Turn(self.last)
        if self.resume is not None:
            turn.members, turn.opener, turn.retry = self.resume.members, self.resume.opener, True
            self.resume = None
            self.fate.update(dict.fromkeys(turn.members, "entered"))
            self._gate([])
            return
        opener = self.queues["next-turn"][:1]
        turn.opener = opener[0] if opener else None
        claimed = [("next-step", m) for m in self.queues["next-step"]] + [("next-turn", m) for m in opener]
        self._gate(claimed)

    def _gate(self, claimed: Claimed) -> None:
        assert self.turn
        self.take_out([m for _, m in claimed], "claimed")
        self.turn.claimed, self.turn.waits = claimed, "gate"
        verdict = self.verdicts.pop(0) if self.verdicts else "pass"
        if verdict != "hang":
            self.judge(verdict)

    def judge(self, verdict: str) -> None:
        """What the plugin said of the step that was about to open."""
        assert self.turn
        turn = self.turn
        ids = [m for _, m in turn.claimed]
        if verdict == "raise":
            self.end("error")
            return
        rejected = ids if verdict == "reject" else ids[:1] if verdict == "reject one" else []
        self.fate.update(dict.fromkeys(rejected, "rejected"))
        turn.claimed = [c for c in turn.claimed if c[1] not in rejected]
        if verdict == "defer":
            self._defer()
        owes = bool(turn.claimed) or turn.results or (turn.retry and turn.step == 0)
        if verdict == "reject" or not owes:
            blocked = verdict == "reject" or bool(rejected)
            self.end("blocked" if blocked else self._by_itself())
            return
        self._enter()

    def _defer(self) -> None:
        assert self.turn
        for queue, id in self.turn.claimed:
            self.home[id] = queue
            self.due[id] = self.epoch
            self.front.add(id)
            self._put("held", id)
        self.turn.claimed = []

    def _enter(self) -> None:
        assert self.turn
        turn = self.turn
        turn.members += [m for _, m in turn.claimed]
        self.fate.update((m, "entered") for _, m in turn.claimed)
        turn.claimed, turn.results, turn.waits = [], False, "model"
        turn.step += 1
        self.asked += 1

    def _by_itself(self) -> str:
        assert self.turn
        return "max-tokens" if self.turn.capped else "completed"

    def answer(self, kind: str) -> None:
        """What the model said: text, the same cut short, a tool call, or a failure for good."""
        assert self.turn
        if kind == "fail":
            self.end("error")
        elif kind == "tool":
            self.turn.waits = "tool"
        else:
            self.turn.capped |= kind == "max-tokens"
            self._after_step()

    def tool_ends(self) -> None:
        assert self.turn
        self.turn.results = True
        self._after_step()

    def _after_step(self) -> None:
        assert self.turn
        claimed = [("next-step", m) for m in self.queues["next-step"]]
        if claimed or self.turn.results:
            self._gate(claimed)
        else:
            self.end(self._by_itself())

    # --- the end of a turn

    def abort(self, disposition: str) -> None:
        if disposition == "clear":
            self.clear(None)
        if self.turn:
            if disposition != "continue":
                self.parked = "abort"
            self.end("aborted", disposition)

    def end(self, reason: str, disposition: str = "", *, go_on: bool = True, resume: bool = False) -> None:
        assert self.turn
        turn = self.turn
        back = self._spared(disposition) if reason == "aborted" else turn.claimed
        lost = [m for c, m in turn.claimed if (c, m) not in back]
        self.fate.update(dict.fromkeys(lost, "cleared" if disposition == "clear" else "aborted"))
        self._return(back, reason == "error")
        expired = [m for m, n in self.tied.items() if n <= turn.number and self.where(m)]
        self.take_out(expired, "expired")
        self.fate.update(dict.fromkeys(turn.members, f"settled {reason}"))
        self.turn, self.resume, self.crashes = None, turn if resume else None, 0
        parks = turn.opener in self.keeps and self.where(turn.opener or "") is None
        if reason == "error":
            self.parked = "error"
        elif parks and not resume:
            self.parked = "interrupt"
        if go_on:
            self.go(running=True)

    def _spared(self, disposition: str) -> Claimed:
        assert self.turn
        turn = self.turn
        if disposition == "clear":
            return []
        if turn.opener or turn.step:
            return [c for c in turn.claimed if c[1] != turn.opener]
        return [c for c in turn.claimed if c[1] not in self.wakes]

    def _return(self, back: Claimed, failed: bool) -> None:
        for queue, id in reversed(back):
            self.failed[id] += failed
            if self.failed[id] < 3 or not failed:
                self._put(queue, id, 0)
        for queue, id in back:
            if failed and self.failed[id] >= 3:
                self.home[id] = queue
                self._put("held", id)

    # --- stops

    def crash(self) -> None:
        self.epoch += 1
        crashes = self.crashes + bool(self.turn)
        if self.turn:
            self.end("interrupted", go_on=False)
        self.crashes = crashes
        if crashes >= 3 and self.parked is None:
            self.parked = "crash-loop"
        self.go()

    def planned_stop(self) -> None:
        """Nothing of what runs reached a boundary in time."""
        self.epoch += 1
        if self.turn:
            at_boundary = self.turn.waits == "gate" and bool(self.turn.members)
            self.end("interrupted", go_on=False, resume=at_boundary)

    def start(self) -> None:
        self.go()
