"""What the fold knows of a turn: the open one in detail, the ended ones in summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dshd.session.fold import spending
from dshd.session.fold.inbox import Claimed
from dshd.session.fold.spending import NOTHING, Spending
from dshd.session.fold.values import evolve

STRICTNESS = ("continue", "keep", "clear")  # of an abort's disposition, laxest first


@attrs.frozen(slots=True)
class Abort:
    """That this turn is to stop. ``disposition``: the strictest asked so far."""

    cause: str
    disposition: str
    by: Any
    reason: str | None = None

    def joined_by(self, other: Abort) -> Abort:
        """First cause wins; strictest disposition wins."""
        strict = max(self.disposition, other.disposition, key=STRICTNESS.index)
        return evolve(self, disposition=strict)


def requested(turn: int, abort: Abort) -> dict[str, Any]:
    """The data of `abort/requested`."""
    data = {"turn": turn, "disposition": abort.disposition, "cause": abort.cause, "by": abort.by}
    return data | ({"reason": abort.reason} if abort.reason else {})


@attrs.frozen(slots=True)
class Wait:
    """What an open step waits for, while nothing of it runs: the provider (``what`` is "provider").

    ``since`` and ``until`` are Unix ms; ``until`` None: until somebody acts. ``code``: how the last attempt
    failed; ``named``: it was the provider who said until when; ``asked``: of several routes, those that named
    a time of their own, ``{route: Unix ms}``.
    """

    what: str
    since: int
    until: int | None = None
    code: str | None = None
    named: bool = False
    asked: Mapping[str, int] = attrs.field(factory=dict)

    def is_over(self, now: int) -> bool:
        """By the wall clock. One that was set back to before the wait began says nothing about its end."""
        return self.until is not None and not self.since <= now < self.until

    def lasted(self, now: int) -> int:
        """ms that it has taken by now, of those that it was to take."""
        end = now if self.until is None else min(now, self.until)
        return max(0, end - self.since)


@attrs.frozen(slots=True)
class CallState:
    """A tool call that has no result yet. ``started``: its `tool/call` is in the log."""

    id: str
    name: str
    arguments: str
    started: bool = False


@attrs.frozen(slots=True)
class OpenTurn:
    """A turn between `turn/start` and `turn/end`.

    ``seq`` is that of its `turn/start`. ``claimed``: taken out of the inbox, neither entered nor
    rejected, with their queues.
    ``calls``: those of the open step without a result, in the model's order.
    ``then_park``: the message at whose turn's end the session parks (``interrupt --keep``).
    ``wait``: what the open step waits for; ``waits``, ``waited``: how often, and how many ms, it has waited
    for its provider; ``attempt``: of its last `request/sent`. ``capped``: an answer was cut for its length.
    ``answered``: the open step has its `assistant/message`; ``overflowed``: it was too large for the window,
    and compacting it has come to an end. ``chunks_from``: seq of the first
    chunk of the attempt that streams, None when nothing streams. ``usage``: of all its calls;
    ``worked``: ms of work, up to its last step's end; ``errors``: tool results in a row that are
    errors. ``before``: what the attempts used that it goes on from, as far as budgets count, and
    ``raised``: by how much its budgets were raised.
    """

    number: int
    started_at: int
    retry_of: int | None = None
    seq: int = 0
    claimed: Claimed = ()
    opener: str | None = None
    members: tuple[str, ...] = ()
    step: int = 0
    step_open: bool = False
    attempt: int = 0
    wait: Wait | None = None
    waits: int = 0
    waited: int = 0
    capped: bool = False
    answered: bool = False
    overflowed: bool = False
    chunks_from: int | None = None
    calls: Mapping[str, CallState] = attrs.field(factory=dict)
    abort: Abort | None = None
    then_park: str | None = None
    answer: str = ""
    model: str | None = None
    tools: int = 0
    usage: Mapping[str, Any] = attrs.field(factory=dict)
    worked: int = 0
    errors: int = 0
    before: Spending = NOTHING
    raised: Mapping[str, float] = attrs.field(factory=dict)
    unknown: tuple[Mapping[str, str], ...] = ()
    results_wait: bool = False

    @property
    def only_waits(self) -> bool:
        """Its open step waits, and nobody has asked it to stop: it outlives the daemon."""
        return self.wait is not None and self.abort is None

    @property
    def spent(self) -> Spending:
        """What counts to its budgets; ``worked`` up to its last step's end."""
        before = self.before
        usage = spending.add(before.usage, self.usage) if before.usage else self.usage
        return Spending(before.steps + self.step, before.worked + self.worked, self.errors, usage)


@attrs.frozen(slots=True)
class EndedTurn:
    """What `answer`, `wait` and `log` say of a turn. Times are Unix ms; ``unknown`` lists the
    calls whose outcome nobody saw. ``budget``: the limit that stopped it (see `budgets`); ``spent``
    and ``raised``: what an attempt takes over that goes on from it."""

    number: int
    started_at: int
    ended_at: int
    reason: str
    cause: str | None
    error: Mapping[str, Any] | None
    answer: str
    model: str | None
    steps: int
    tools: int
    usage: Mapping[str, Any]
    unknown: tuple[Mapping[str, str], ...]
    members: tuple[str, ...]
    resume: bool
    then_park: str | None
    budget: Mapping[str, Any] | None
    spent: Spending
    raised: Mapping[str, float]


def end(turn: OpenTurn, data: Mapping[str, Any], at: int) -> EndedTurn:
    return EndedTurn(
        number=turn.number,
        started_at=turn.started_at,
        ended_at=data.get("ended_at", at),
        reason=data["reason"],
        cause=data.get("cause"),
        error=data.get("error"),
        answer=turn.answer,
        model=turn.model,
        steps=turn.step,
        tools=turn.tools,
        usage=turn.usage,
        unknown=turn.unknown,
        members=turn.members,
        resume=bool(data.get("resume")),
        then_park=turn.then_park,
        budget=data.get("budget"),
        spent=evolve(turn, worked=data.get("worked_ms", turn.worked)).spent,
        raised=turn.raised,
    )


def answer_of(content: list[Mapping[str, Any]]) -> str:
    """The text a person reads of an assistant message."""
    return "".join(str(b.get("text", "")) for b in content if b.get("type") == "text").strip()
