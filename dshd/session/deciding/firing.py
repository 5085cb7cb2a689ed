"""What becomes of a schedule's instants. Decisions on a scratch; no IO, but for a zone's file (`when`).

When one is looked at after it was due, this is what becomes of its instants, those up to now:

| the last of them            | it is ``at``, or catches up     | it doesn't catch up              |
|-----------------------------|---------------------------------|----------------------------------|
| less than `GRACE_MS` ago    | is sent                         | is sent                          |
| longer ago                  | is sent, once, with ``late``    | is skipped: nobody was there     |

Those before it are counted as missed: many are sent once, never many times. Sent, unless the one sent before
has not ended: then ``overlap`` says what. All this, with the message, is one batch; its key is the id and the
instant, so that what a crash cut in two is told again, and not sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.errors import DshError, NoSpace
from dshd.session.deciding import sending, when
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.schedules import Schedule
from dshd.session.fold.state import State

By = Mapping[str, Any]
Json = dict[str, Any]

GRACE_MS: Final = 60_000  # later than this is late: the daemon was down, or the machine asleep
SET_BACK_MS: Final = 24 * 3_600_000  # a clock that is set back further was wrong before


@attrs.frozen
class Instant:
    """One that is to be settled now. ``skip``: why nothing is sent, as (word, sentence); ``by``: who asked
    for it, if not the clock."""

    schedule: Schedule
    due: int
    missed: int
    late: int
    next: int | None
    skip: tuple[str, str] | None = None
    by: By | None = None

    @property
    def key(self) -> str:
        if self.by is not None:
            return f"{self.schedule.id}@now:{self.due}"
        return key_of(self.schedule.id, self.due)

    @property
    def source(self) -> Json:
        """Of the message."""
        late = {"late": self.late} if self.late > GRACE_MS else {}
        return {"kind": "schedule", "via": self.schedule.id, "due": self.due, **late}


def key_of(id: str, due: int) -> str:
    """One for each instant of a schedule, for ever."""
    return f"{id}@{due // 1000}"


def cut_off(schedule: Schedule) -> Instant | None:
    """The instant that is due first, alone: what a crash may have kept from being noted."""
    first = schedule.due
    if first is None:
        return None
    return Instant(schedule, first, 0, 0, when.next_after(schedule.when, first))


def due(schedule: Schedule, now: int) -> Instant | None:
    """What is to be settled of this one, if anything is."""
    first = schedule.due
    if first is None or first > now:
        return None
    last, count = when.passed(schedule.when, first, now)
    late = now - last
    skip = None
    if late > GRACE_MS and not schedule.catch_up:
        skip = ("missed", "dshd was not there, or the machine slept")
    return Instant(schedule, last, count - 1, late, when.next_after(schedule.when, now), skip)


def at_once(schedule: Schedule, now: int, by: By) -> Instant:
    """A person wants it now; when it is due next stays."""
    return Instant(schedule, now, 0, 0, schedule.next, by=by)


def was_set_back(schedule: Schedule, now: int) -> bool:
    """Whether the clock was far ahead when it was found when this one is due."""
    return schedule.due is not None and schedule.when.kind != "at" and now < schedule.reckoned - SET_BACK_MS


def settle(s: Scratch, instant: Instant, most: int) -> None:
    """Send to this session, or note why not; ``most`` is what its inbox holds."""
    found = instant.schedule
    skip = instant.skip or (None if instant.by else _overlaps(s.state, found))
    if skip is not None:
        return note(s, instant, skipped=skip[0], detail=skip[1])
    try:
        receipt = sending.decide(s, _message(instant), most)
    except NoSpace:
        raise
    except DshError as refused:
        return note(s, instant, skipped="refused", detail=refused.message, code=refused.code)
    note(s, instant, message=receipt["message"])


def _message(instant: Instant) -> sending.Send:
    found = instant.schedule
    return sending.Send(
        verb="followup",
        queue="next-turn",
        wake=True,
        content=({"type": "text", "text": found.text},),
        source=instant.source,
        key=instant.key,
        tag=found.id,
        supersede=found.overlap == "supersede",
    )


def _overlaps(state: State, found: Schedule) -> tuple[str, str] | None:
    sent = found.sent
    if found.overlap != "skip" or sent is None or sent.message is None or sent.outcome is not None:
        return None
    receipt = state.receipts.get(sent.message)
    if receipt is None or receipt.ended:
        return None
    doing = f"runs (turn {receipt.turn})" if receipt.state == "entered" else "waits"
    parked = f"; the session is parked ({state.parked.by})" if state.parked and doing == "waits" else ""
    return "overlap", f"{sent.message} still {doing}{parked}"


def note(s: Scratch, instant: Instant, **became: Any) -> None:
    """Record what became of an instant; of a schedule that was removed meanwhile, nothing."""
    id = instant.schedule.id
    now = s.state.schedules.get(id)
    if now is None:
        return
    data = {
        "id": id,
        "due": instant.due,
        "key": instant.key,
        "next": now.next if instant.by else instant.next,
    }
    extra = {
        "missed": instant.missed or None,
        "by": None if instant.by is None else dict(instant.by),
        **became,
    }
    s.emit("schedule/fired", data | {name: value for name, value in extra.items() if value is not None})


def tick(s: Scratch, most: int) -> None:
    """All that is due in this session."""
    for id in list(s.state.schedules):
        _note_cut_off(s, id)
        one = s.state.schedules[id]
        if was_set_back(one, s.now):
            reckon(s, id)
        elif (instant := due(one, s.now)) is not None:
            settle(s, instant, most)


def reckon(s: Scratch, id: str) -> None:
    """When it is due next, by the clock as it is now."""
    if (one := s.state.schedules.get(id)) is not None:
        s.emit("schedule/reckoned", {"id": id, "next": when.next_after(one.when, s.now)})


def run_ended(s: Scratch, key: str, outcome: str) -> None:
    """Note how the run of this key has ended; in the log of `schedules.HOME`."""
    one = s.state.schedules.get(key.partition("@")[0])
    for firing in one.firings if one is not None else ():
        if one is not None and firing.key == key and firing.message is not None and firing.outcome != outcome:
            s.emit("schedule/ended", {"id": one.id, "message": firing.message, "outcome": outcome})


def _note_cut_off(s: Scratch, id: str) -> None:
    """Its message is there, and what became of the instant is not: a crash came between the two."""
    instant = cut_off(s.state.schedules[id])
    keyed = s.state.keys.get(instant.key) if instant is not None and instant.due <= s.now else None
    if instant is not None and keyed is not None:
        note(s, instant, message=keyed.message)
