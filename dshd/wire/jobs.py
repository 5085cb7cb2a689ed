"""Jobs: which run, what they print, stopping them, and having them outlive the daemon."""

from __future__ import annotations

from dshd.wire.params import Params


class JobListParams(Params, method="job.list"):
    """Those that run, or ``all`` that are known; of one session, or (both None) of every."""

    session: str | None = None
    cwd: str | None = None
    all: bool = False


class OfJob(Params):
    """Which one, by id; an id says whose it is."""

    job: str


class JobOutputParams(OfJob, method="job.output"):
    """A piece of what it has printed: from ``offset`` (bytes), else the last ``most`` bytes. ``wait``: s to
    wait for more, if there is none and it runs."""

    offset: int | None = None
    most: int = 65536
    wait: float = 0.0


class JobStopParams(OfJob, method="job.stop"):
    """End it, and all that it started."""


class JobKeepParams(OfJob, method="job.keep"):
    """Have it outlive the daemon."""
