"""Jobs begin, are kept, end; and what the model is told of an end. Decisions on a scratch; no IO.

A job belongs to its session. What ends it:

| what                                             | which jobs                    | cause       |
|--------------------------------------------------|-------------------------------|-------------|
| its command ends, or its own time limit          | this one                      |             |
| the model, a person (`dshctl jobs stop`)         | this one, kept or not         | agent, user |
| an abort or interrupt of the turn that began it  | its jobs, but for kept ones   | abort       |
| ``abort --clear``                                | all of it, but for kept ones  | clear       |
| ``close --clear``, ``rm --force``                | all of it                     | close, rm   |
| a run is over (`lifecycle.run_is_done`)          | all of it, but for kept ones  | run         |
| the disk fails under the session                 | all of it, but for kept ones  | fault       |
| the daemon's stop, its death                     | all, but for kept ones        | shutdown    |

Its end is a message in ``next-step``, which wakes nobody unless the config says so; none, if the model
itself has stopped it, or if nobody is left to read it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs

from dshd import reasons
from dshd.errors import Conflict, NotFound
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.events import Message, splice, text_block
from dshd.session.fold.jobs import Job
from dshd.session.fold.state import State

Json = dict[str, Any]
By = Mapping[str, Any]

MOST_WAKES: Final = 20  # by ends of jobs, in a row, without a person
LONGEST_COMMAND: Final = 200  # characters of it in a notice
UNTOLD: Final = frozenset(("agent", "begin", "clear", "close", "rm", "run"))  # of these causes it is not told


@attrs.frozen(slots=True, kw_only=True)
class End:
    """How it ended, as `fold.jobs.JobEnd` has it, with what a notice says besides: the ``tail`` of the
    output, the ``path`` to it, how many bytes of it are there (``kept``), and ``notes``."""

    how: str
    code: int | None = None
    signal: int | None = None
    cause: str | None = None
    detail: str | None = None
    bytes: int | None = None
    ms: int | None = None
    by: Any = None
    tail: str = ""
    path: str = ""
    kept: int | None = None
    notes: tuple[str, ...] = ()

    def fields(self) -> Json:
        names = ("how", "code", "signal", "cause", "detail", "bytes", "ms", "by")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def start(s: Scratch, id: str, call: str, command: str, dir: str, file: str) -> None:
    """Raises `Conflict` if the turn that it is of doesn't go on: then nothing is begun."""
    turn = s.state.turn
    if turn is None or turn.abort is not None:
        raise Conflict("the job was not started: the turn is being stopped.", outcome="not-written")
    data = {"id": id, "turn": turn.number, "step": turn.step, "call": call, "command": command, "dir": dir}
    s.emit("job/started", {**data, "file": file})


def keep(s: Scratch, id: str, pid: int, start: int, by: By) -> None:
    """``pid`` and ``start`` name its supervisor. Raises `Conflict` if it has ended."""
    job = running(s.state, id)
    if job.kept is None:
        s.emit("job/kept", {"id": id, "pid": pid, "start": start, "by": dict(by)})


def running(state: State, id: str) -> Job:
    """Raises `NotFound`, and `Conflict` if it has ended."""
    job = of(state, id)
    if not job.runs:
        raise Conflict(f"{id} has ended.", hint=f"dshctl jobs output {id}", outcome="not-written")
    return job


def of(state: State, id: str) -> Job:
    """Raises `NotFound`."""
    job = state.jobs.get(id)
    if job is None:
        raise NotFound(f"no job {id}", hint="dshctl jobs --all", outcome="not-written")
    return job


def end(s: Scratch, id: str, ended: End, *, wakes: bool = False) -> None:
    """That it has ended, and the notice, in one batch. One that has ended already stays as it did."""
    job = s.state.jobs.get(id)
    if job is None or not job.runs:
        return
    s.emit("job/ended", {"id": id, **ended.fields()})
    over = s.state.closed or (s.state.settings.get("run") and s.state.turn is None and not wakes)
    if ended.cause not in UNTOLD and not over:
        _notify(s, id, _notice(job, ended, s.now), wakes and s.state.wakes < MOST_WAKES)


def _notify(s: Scratch, id: str, text: str, wakes: bool) -> None:
    source = {"kind": "job", "via": id}
    message = Message(
        id=s.take_id(), content=(text_block(text),), source=source, created=s.now, wake=wakes, verb="inject"
    )
    data = {"cause": "send", "by": source, "ops": [splice("next-step", insert=[message])]}
    s.emit("inbox/spliced", data)


def _notice(job: Job, ended: End, now: int) -> str:
    facts = {**ended.fields(), "ms": ended.ms if ended.ms is not None else max(0, now - job.at)}
    lines = [f"Job {job.id} ({brief(job.command)}) has ended: {reasons.job_end(facts)}."]
    lines += [f"[{note}]" for note in ended.notes]
    cut = ended.kept is not None and ended.kept < (ended.bytes or 0)
    if cut:
        lines.append(f"[only the first {ended.kept} of the {ended.bytes} bytes that it printed were kept]")
    if ended.tail:
        lines += [f"The end of what {'was kept' if cut else 'it printed'}:", ended.tail.rstrip("\n")]
    elif ended.bytes == 0:
        lines.append("It printed nothing.")
    if ended.path and ended.bytes != 0:
        lines.append(f"{'What was kept' if cut else 'All of it'}: {ended.path}")
    return "\n".join(lines)


def brief(command: str) -> str:
    """A command in one line."""
    line = " ".join(command.split())
    return line if len(line) <= LONGEST_COMMAND else f"{line[:LONGEST_COMMAND]}..."


def recover(s: Scratch, alive: Collection[str], words: Mapping[str, End]) -> None:
    """What became of the jobs of a daemon before: those that aren't ``alive`` have ended, as the ``words``
    say that they left, or as nobody saw."""
    lost = End(how="lost", cause="crash")
    for job in s.state.running_jobs:
        if job.id not in alive:
            end(s, job.id, words.get(job.id, lost))
