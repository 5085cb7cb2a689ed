"""A session's state: what its log is folded to, and the questions that are asked of it.

Nothing changes a `State` but the fold (`folding.apply`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.session.fold import attachments, inbox, schedules, undo
from dshd.session.fold.approvals import Allowed, Approval
from dshd.session.fold.compactions import Compaction
from dshd.session.fold.events import Message
from dshd.session.fold.inbox import Queues
from dshd.session.fold.jobs import Job, Jobs
from dshd.session.fold.layer import Rows, Table
from dshd.session.fold.receipts import Receipt
from dshd.session.fold.subagents import Subagent, Subagents
from dshd.session.fold.surface import Entry
from dshd.session.fold.turns import EndedTurn, OpenTurn
from dshd.session.fold.values import evolve


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


# Settings of which is kept whose word they are, in ``settings["origins"]``: see `shown.origins`.
TOLD_APART: Final = ("mode", "net", "ask", "patience")

# What a mapping of a new state is; one for all states, of which thousands may be loaded.
NONE: Final[Mapping[Any, Any]] = {}


@attrs.define(slots=True)
class State:
    """``settings``: mode, model, ask, net, env names, ... as in `session/header`, then changed.
    ``resume``: a turn that a planned stop interrupted at a step boundary, to be gone on with;
    ``retry``: one that somebody wants once more. Both run although the session may be parked.
    ``gap``: the log was repaired (see `gap`); ``doubted``: what was pending at a gap, until an opening
    has held what of it still waits. ``lost_turns``: how many numbers after
    ``last_turn`` a gap may have given. ``removals``: what can be undone, the newest last. ``spent``: usage
    of all turns, and ``lately``: of the last day (see `spending`). ``raised``: by how much the session's
    own budgets were raised; ``adding``: those of the turn that is to be retried. ``weight``, ``timed``,
    ``waking``: bytes of all that waits, how many of it come due or expire, and how many were sent with
    wake and aren't held. ``files``: attachments that messages refer to.
    ``begun``: a step was opened since it was made. ``ends``: {turn: tries} of ended turns that hooks are to
    be told of. ``schedules``: `{id: ...}` (see `schedules`).
    ``approvals``: those of the open step, and the newest that were answered, by id;
    ``allowed``: what was allowed for the session. ``snapshot``: the runtime context that the model saw last,
    and ``snapshot_seq`` of it. ``compaction``: the one that is open; ``compactions``: the number of the
    newest. ``context``: tokens of the conversation as it was sent last, with its answer, or as a compaction
    left it; ``asked``: of the request that runs, uncorrected; ``factors``: see `compactions`. ``jobs``: those
    that run, and the newest that have ended; ``agents``: its subagents, by id, likewise; ``wakes``: how many
    ends of both in a row have woken it, with nobody saying anything between."""

    header: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = NONE
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
    lost_turns: int = 0
    parked: Parked | None = None
    woken: bool = False
    resume: int | None = None
    retry: int | None = None
    crashes: int = 0
    request_header: Mapping[str, Any] | None = None
    request_context: Mapping[str, Any] | None = None
    snapshot: str | None = None
    snapshot_seq: int = -1
    compaction: Compaction | None = None
    compactions: int = 0
    context: int | None = None
    asked: int | None = None
    factors: Mapping[str, float] = NONE
    title: str = ""
    gap: bool = False
    repaired: bool = False
    doubted: tuple[str, ...] = ()
    begun: bool = False
    ends: Mapping[int, int] = NONE
    todo: tuple[Mapping[str, Any], ...] = ()
    removals: undo.Removals = ()
    spent: Mapping[str, Any] = NONE
    lately: Mapping[int, Mapping[str, Any]] = NONE
    raised: Mapping[str, float] = NONE
    adding: Mapping[str, float] | None = None
    schedules: schedules.Schedules = NONE
    approvals: Mapping[str, Approval] = NONE
    allowed: tuple[Allowed, ...] = ()
    jobs: Jobs = NONE
    agents: Subagents = NONE
    wakes: int = 0
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

    @property
    def next_turn(self) -> int:
        """The number of the turn that is opened next: one that none had."""
        return self.last_turn + self.lost_turns + 1

    @property
    def asks(self) -> tuple[Approval, ...]:
        """The questions that wait for a person's answer, the oldest first."""
        if not self.approvals:
            return ()
        return tuple(one for one in self.approvals.values() if one.open)

    def is_parked(self, id: str) -> bool:
        """Whether a waiting message is kept back by the parking: each is, but for what was said to a
        turn that runs all the same."""
        if self.parked is None:
            return False
        receipt, turn = self.receipts[id], self.turn
        return turn is None or receipt.queue != "next-step" or receipt.arrived < turn.seq

    def unparks(self, message: Message) -> bool:
        """Whether this message, sent now, ends the parking."""
        if self.parked is None or not message.wake:
            return False
        return message.kind == "user" or self.parked.by == "error"

    @property
    def goes_on(self) -> bool:
        """Whether a driver that runs already opens another turn: `runnable`, or anything in
        next-turn at all."""
        return self.runnable or not (self.parked or self.closed or not self.queues["next-turn"])

    @property
    def owes(self) -> bool:
        """Whether an opening has something to write, whatever is asked: a turn or a compaction to close, the
        messages from before a repair to hold, jobs to look after. A turn that only waits is owed nothing."""
        closes = self.turn is not None and not self.turn.only_waits
        return closes or self.compaction is not None or self.repaired or bool(self.running_jobs)

    @property
    def active(self) -> bool:
        """Whether the daemon must open this session by itself at its next start."""
        waits = self.queues["held"] or self.timed or self.scheduled
        works = self.turn is not None or self.compaction is not None or bool(self.running_jobs)
        works = works or any(not one.told for one in self.agents.values())
        return works or self.runnable or bool(waits or self.ends)

    @property
    def running_jobs(self) -> tuple[Job, ...]:
        """The oldest first."""
        return tuple(job for job in self.jobs.values() if job.runs) if self.jobs else ()

    @property
    def running_agents(self) -> tuple[Subagent, ...]:
        """The oldest first."""
        return tuple(one for one in self.agents.values() if one.runs) if self.agents else ()

    @property
    def untold_agents(self) -> tuple[Subagent, ...]:
        """Those that have ended, and of whom nobody has been told."""
        return tuple(a for a in self.agents.values() if not a.runs and not a.told) if self.agents else ()

    @property
    def scheduled(self) -> bool:
        """Whether it has schedules that may still be due."""
        return bool(self.schedules and schedules.standing(self.schedules))

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


def fingerprint(message: Message) -> str:
    """What a key stands for: verb as asked, blocks as first sent, tag; nothing else. A text is the
    same one whether it was attached or not."""
    said = [message.asked or message.verb, [attachments.said(b) for b in message.content], message.tag]
    return hashlib.sha256(json.dumps(said).encode("utf-8", "replace")).hexdigest()


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
