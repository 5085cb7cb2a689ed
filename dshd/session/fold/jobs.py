"""What the fold knows of jobs: commands that go on behind the call that began them.

`job/started` is in the log before the command runs, and each job ends with exactly one `job/ended`: whoever
stopped it, however it went, or, if nobody was there to see that, because the daemon died. One that a person
asked to keep (`job/kept`) outlives the daemon: its supervisor is known by ``pid`` and ``start``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

KEPT: Final = 50  # ended ones that the fold remembers; the log has all


@attrs.frozen(slots=True)
class Keeping:
    """``start``: when the supervisor ``pid`` began, in clock ticks since boot; ``by``: who asked for it."""

    at: int
    pid: int
    start: int
    by: Any = None


@attrs.frozen(slots=True)
class JobEnd:
    """``how``: exit, signal, timeout, stopped, failed (it was never begun) or lost (nobody saw the end).
    ``code``: its exit status; ``signal``: what killed it; ``cause``: why it was stopped; ``bytes``: of its
    output; ``ms``: that it took."""

    at: int
    how: str
    code: int | None = None
    signal: int | None = None
    cause: str | None = None
    detail: str | None = None
    bytes: int | None = None
    ms: int | None = None
    by: Any = None


@attrs.frozen(slots=True)
class Job:
    """``file``: the name of its output in the session's ``spill``; ``call``: the call that began it."""

    id: str
    turn: int
    step: int
    call: str
    command: str
    dir: str
    file: str
    at: int
    kept: Keeping | None = None
    end: JobEnd | None = None

    @property
    def runs(self) -> bool:
        return self.end is None


Jobs = Mapping[str, Job]


def without_old(jobs: Jobs) -> dict[str, Job]:
    """Those that run, and the newest of the others."""
    ended = [id for id, job in jobs.items() if not job.runs]
    old = set(ended[: max(0, len(ended) - KEPT)])
    return {id: job for id, job in jobs.items() if id not in old}
