"""Schedules: made, listed, paused, removed, fired by hand; what became of each."""

from __future__ import annotations

from typing import Literal

from dshd.errors import Invalid
from dshd.wire.params import InSession, Params
from dshd.wire.sessions import CreateParams


class ScheduleAddParams(InSession, method="schedule.add"):
    """``text`` is said to a session (`InSession`), or to a new one each time, made as ``run`` says.

    When: ``cron`` (five fields, or ``@daily`` and the like), ``every`` (s), or ``at`` (Unix ms): one of them.
    ``typed`` is that as it was written, for people; ``zone`` (``Europe/Berlin``) is the one that a line of
    cron means. ``catch_up`` None: if it is due once a day or more rarely. ``run`` has neither text nor key.
    """

    text: str
    zone: str
    typed: str
    cron: str | None = None
    every: float | None = None
    at: int | None = None
    overlap: Literal["skip", "queue", "supersede"] = "skip"
    catch_up: bool | None = None
    run: CreateParams | None = None

    def check(self) -> None:
        if sum(given is not None for given in (self.cron, self.every, self.at)) != 1:
            raise Invalid("expected one of cron, every and at @ $", outcome="not-written")
        run = self.run
        if run is not None:
            run.check()
            said = (run.text, run.content, run.key) != (None, None, None) or run.tied or run.implicit
            if said or not run.run:
                raise Invalid("a run without text, content and key @ $.run", outcome="not-written")


class ScheduleListParams(Params, method="schedule.list"):
    """``session``, ``cwd`` as in `InSession`, but without both: all of them."""

    session: str | None = None
    cwd: str | None = None


class OfSchedule(Params):
    """Which one, by id; an id says whose it is."""

    schedule: str


class ScheduleLogParams(OfSchedule, method="schedule.log"):
    pass


class ScheduleRmParams(OfSchedule, method="schedule.rm"):
    pass


class SchedulePauseParams(OfSchedule, method="schedule.pause"):
    pass


class ScheduleResumeParams(OfSchedule, method="schedule.resume"):
    pass


class ScheduleRunParams(OfSchedule, method="schedule.run"):
    """Fire it now, whatever else it does."""
