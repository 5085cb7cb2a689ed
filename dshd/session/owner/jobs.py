"""The jobs of one session, as long as they run: begun, watched to their end, stopped, kept.

Each has a task in the session nursery. Before its command begins, `job/started` is on disk; when it has
ended, `job/ended` with the notice is written, as soon as the disk takes it. So one that a crash cut off is
found in the log, and the next opening says what became of it.

A job that a person asks to keep is written down three times, in this order: in `Shelf` (so that the next
daemon, which ends all that earlier ones left, spares it), in the log (with the pid and start time of its
supervisor), and then the supervisor is told. From there on it is watched from outside, by this daemon as by
the next: there is no other way of looking at one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
import trio

from dshd.driver.port import ROOM_POLL_S, Owner, Services
from dshd.errors import Conflict, DshError, Full, NoSpace, one_line
from dshd.log.codec import Event
from dshd.plural import count
from dshd.session.deciding import jobbing
from dshd.session.deciding.jobbing import End
from dshd.session.fold.who import SYSTEM
from dshd.session.shown import jobs as shown
from dshd.spawn import kept
from dshd.spawn.client import Completed, Kept, Passage, SpawnFailed
from dshd.spawn.tree import look
from dshd.tools.jobs import NOTICED, Spec, end_of
from dshd.tools.threads import reading

log = logging.getLogger(__name__)
Json = dict[str, Any]

STOP_LIMIT_S: Final = 6.0  # for a kept job to end when it is told to; then its supervisor is killed
SWEEP_S: Final = 5.0  # between looks at what the sandbox can't prevent
KEEP_LIMIT_S: Final = 5.0  # for a supervisor to say that it stays


class Shelf(Protocol):
    """Where what outlives the daemon is noted, for the next one's start (`registry.kept_jobs`)."""

    async def put(self, job: str, session: str, pid: int, start: int) -> Path:
        """Where its supervisor is to leave word of the end. Durability: on disk."""
        ...

    async def drop(self, job: str) -> None: ...

    async def end_strays(self) -> None:
        """End what kept jobs have left whose supervisor was killed, and which no process of ours inherits."""
        ...

    def word(self, job: str) -> Mapping[str, Any] | None:
        """How one has ended that nobody watched (`spawn.protocol.Done`); None if nobody knows."""
        ...


@attrs.define(eq=False)
class _Running:
    """``cause`` and ``by``: why it was stopped, once it was; the first wins. ``keeping``: it is known by its
    supervisor alone. ``undone``: what the sandbox could not prevent, taken away while it ran."""

    id: str
    spec: Spec | None
    passage: Passage = attrs.field(factory=Passage)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    settled: trio.Event = attrs.field(factory=trio.Event)  # it has ended, or is kept
    done: trio.Event = attrs.field(factory=trio.Event)
    cause: str | None = None
    by: Any = None
    keeping: tuple[int, int] | None = None
    failed: Exception | None = None
    undone: list[Path] = attrs.field(factory=list)


class Jobs:
    """``start`` runs a coroutine function in the session nursery; ``spill`` is where output goes."""

    def __init__(
        self, owner: Owner, id: str, services: Services, start: Callable[..., None], shelf: Shelf,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._id = id
        self._services = services
        self._start = start
        self._shelf = shelf
        self._running: dict[str, _Running] = {}
        self._beginning = 0

    @property
    def busy(self) -> bool:
        return bool(self._running or self._beginning)

    # --- looking

    def rows(self) -> list[Json]:
        return [shown.job(self._owner.state, one) for one in self._owner.state.jobs.values()]

    def row(self, id: str) -> Json:
        return shown.job(self._owner.state, jobbing.of(self._owner.state, id))

    def output(self, id: str) -> Path:
        return self._spill / jobbing.of(self._owner.state, id).file

    @property
    def _spill(self) -> Path:
        readable = self._services.readable
        return (readable[0] / self._id if readable else Path("/nonexistent")) / "spill"

    # --- beginning

    async def start(self, spec: Spec) -> str:
        """See `tools.jobs.House`. Cancellation: before it is written down; after that it runs, and ends as
        jobs of this turn end. What runs of it already is ended if it does not come to be a job."""
        self._beginning += 1
        try:
            running = await self._noted(spec)
        except BaseException:
            with trio.move_on_after(STOP_LIMIT_S, shield=True):
                await spec.end()
            raise
        finally:
            self._beginning -= 1
        await running.passage.begun.wait()
        if running.failed is not None:
            raise running.failed
        if self._services.config().jobs.keep and not running.done.is_set():
            with contextlib.suppress(Conflict):  # it has ended by now
                await self.keep(running.id, {**SYSTEM, "via": "config"})
        return running.id

    async def _noted(self, spec: Spec) -> _Running:
        most = self._services.config().jobs.max
        if len(self._owner.state.running_jobs) >= most:
            raise Full(f"not started: {count(most, 'job runs', 'jobs run')} already, the most that this"
                       " session may have.", outcome="not-written")  # fmt: skip
        (id,) = await self._services.numbers.take("j", 1, self._id)
        command, dir, file = spec.command, str(spec.dir), spec.file.name
        await self._owner.record(lambda s: jobbing.start(s, id, spec.call, command, dir, file))
        running = self._running[id] = _Running(id, spec)
        turn = self._owner.state.turn
        if turn is None or turn.abort is not None:  # an abort came right behind it
            self._tell(running, "abort", None)
        self._start(self._run, running)
        return running

    # --- its life

    async def _run(self, running: _Running) -> None:
        try:
            end = await self._to_its_end(running)
            await self._write_end(running, end)
        finally:
            self._running.pop(running.id, None)
            for event in (running.passage.begun, running.settled, running.done):
                event.set()
            self._owner.rested()

    async def _to_its_end(self, running: _Running) -> End:
        spec = running.spec
        if spec is None or running.keeping is not None:
            return await self._watch(running)
        try:
            with running.scope:
                self._start(self._sweep, running)
                return _end_of(*await spec.work(running.passage))
            return End(how="stopped")
        except Kept:
            running.settled.set()
            return await self._watch(running)
        except SpawnFailed as failed:
            begun = running.passage.begun.is_set()
            running.failed = None if begun else failed
            return End(how="failed", cause=None if begun else "begin", detail=str(failed))
        except Exception as error:
            log.exception("job %s failed", running.id)
            return End(how="failed", detail=one_line(error))

    async def _sweep(self, running: _Running) -> None:
        """What must not come into being goes while the job runs, not hours later."""
        while not running.done.is_set():
            with trio.move_on_after(SWEEP_S):
                await running.done.wait()
                return
            await self._sweep_once(running)

    async def _sweep_once(self, running: _Running) -> None:
        if running.spec is not None:
            running.undone += [path for path in await running.spec.after() if path not in running.undone]

    async def _watch(self, running: _Running) -> End:
        """One that is known by its supervisor alone. Cancellation: it runs on."""
        assert running.keeping is not None
        pid, start = running.keeping
        self._services.spawner.adopt(pid, self._id)
        await kept.wait(pid, start)
        self._services.spawner.forget(pid)
        await self._sweep_once(running)
        found = self._shelf.word(running.id)
        if found is None:
            await self._shelf.end_strays()
            return End(how="lost", cause="killed")
        return of_word(found)

    async def _write_end(self, running: _Running, end: End) -> None:
        """Durability: on return it is on disk, unless the log can't be written any more."""
        if running.cause is not None and end.how in ("stopped", "lost", "signal"):
            end = attrs.evolve(end, how="stopped", cause=running.cause, by=running.by, code=None, signal=None)
        job = self._owner.state.jobs.get(running.id)
        path = self._spill / job.file if job is not None else None
        tail, size = await reading(end_of, path, NOTICED) if path is not None else ("", 0)
        shelf = bool(job is not None and job.kept)
        total = size if end.bytes is None else end.bytes
        notes = (*_notes(running.undone), *(note for note in end.notes if note not in _notes(running.undone)))
        end = attrs.evolve(end, tail=tail, path=str(path or ""), bytes=total, kept=size, notes=notes)
        wakes = self._services.config().jobs.notify == "wake"
        while self._owner.usable:
            try:
                await self._owner.record(lambda s: jobbing.end(s, running.id, end, wakes=wakes))
                break
            except NoSpace:
                if not self._services.reserve():
                    await trio.sleep(ROOM_POLL_S)
            except DshError as error:
                log.warning("that %s has ended is not written: %s", running.id, error)
                return
        if shelf:
            await self._shelf.drop(running.id)

    # --- stopping

    async def stop(self, id: str, cause: str = "agent", by: Any = None) -> Json:
        """End it, and all it started; how it has ended. Raises `NotFound`, `Conflict`."""
        jobbing.running(self._owner.state, id)
        await self._stopped(id, cause, by)
        return self.row(id)

    async def stop_all(self, cause: str, by: Any = None, *, kept: bool = False) -> None:
        """End all, but for those that are to be kept (``kept``: those, too)."""
        async with trio.open_nursery() as nursery:
            for job in self._owner.state.running_jobs:
                if kept or job.kept is None:
                    nursery.start_soon(self._stopped, job.id, cause, by)

    def heed(self, events: list[Event]) -> None:
        """What was decided may end some of them: at once."""
        for event in events:
            if event.type == "abort/requested":
                clears = event.data["disposition"] == "clear"
                self._doom(None if clears else event.data["turn"], "clear" if clears else "abort", event)
            elif event.type == "inbox/spliced" and "interrupts" in event.data:
                self._doom(event.data["interrupts"], "abort", event)

    def _doom(self, turn: int | None, cause: str, event: Event) -> None:
        for job in self._owner.state.running_jobs:
            running = self._running.get(job.id)
            if running is not None and job.kept is None and turn in (None, job.turn):
                self._tell(running, cause, event.data.get("by"))

    async def _stopped(self, id: str, cause: str, by: Any) -> None:
        running = self._running.get(id)
        if running is None:
            return
        self._tell(running, cause, by)
        if running.keeping is not None:
            with trio.move_on_after(STOP_LIMIT_S):
                await running.done.wait()
            if not running.done.is_set():
                kept.send(*running.keeping, signal.SIGKILL)
        await running.done.wait()

    def _tell(self, running: _Running, cause: str, by: Any) -> None:
        if running.cause is None:
            running.cause, running.by = cause, by
        if running.keeping is not None:
            kept.send(*running.keeping, signal.SIGTERM)
        if not running.settled.is_set():
            running.scope.cancel()

    async def settled(self) -> None:
        """Returns when those that were told to end have ended."""
        for running in [one for one in self._running.values() if one.cause is not None]:
            await running.done.wait()

    # --- keeping

    async def keep(self, id: str, by: Mapping[str, Any]) -> Json:
        """Have it outlive the daemon. Raises `NotFound`, `Conflict` if it has ended.

        Durability: on return it is on disk, and so it is with the job.
        """
        job, running = jobbing.running(self._owner.state, id), self._running.get(id)
        pid = running.passage.pid if running is not None else None
        process = look(pid) if pid is not None else None
        if job.kept is not None:
            return self.row(id)
        if running is None or pid is None or process is None or running.cause is not None:
            hint = f"dshctl jobs output {id}"
            raise Conflict(f"not kept: {id} is ending.", hint=hint, outcome="not-written")
        word = await self._shelf.put(id, self._id, pid, process.start)
        start = process.start
        await self._owner.record(lambda s: jobbing.keep(s, id, pid, start, by))
        running.keeping = (pid, start)
        running.passage.keep(word)
        with trio.move_on_after(KEEP_LIMIT_S):
            await running.settled.wait()
        return self.row(id)

    # --- those of a daemon before

    def found(self) -> tuple[Collection[str], Mapping[str, End]]:
        """Those that were kept and are there, and how others of them have ended."""
        alive, ends = set(self._running), {}
        for job in self._owner.state.running_jobs:
            if job.id in alive or job.kept is None:
                continue
            if kept.is_there(job.kept.pid, job.kept.start):
                alive.add(job.id)
            elif (word := self._shelf.word(job.id)) is not None:
                ends[job.id] = attrs.evolve(of_word(word), path=str(self._spill / job.file))
        return alive, ends

    def resume(self) -> None:
        """Watch those again that an earlier daemon has kept; note how it is with those that are over."""
        for job in self._owner.state.running_jobs:
            if job.id not in self._running and job.kept is not None:
                running = _Running(job.id, None, keeping=(job.kept.pid, job.kept.start))
                running.settled.set()
                self._running[job.id] = running
                self._start(self._run, running)


def _end_of(done: Completed, undone: Any) -> End:
    how = "timeout" if done.timed_out else "exit" if done.returncode is not None else "signal"
    ms = round(done.duration_s * 1000)
    notes = _notes(undone)
    if done.spill_error:
        notes = (*notes, f"not all of its output was kept: {done.spill_error}")
    return End(how=how, code=done.returncode, signal=done.signal, bytes=done.total, ms=ms, notes=notes)


def _notes(undone: Any) -> tuple[str, ...]:
    return tuple(f"{path} is protected here, so what the job did to it was undone" for path in undone)


def of_word(done: Mapping[str, Any]) -> End:
    """What a supervisor has left."""
    status = done.get("status")
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    how = {"timeout": "timeout", "stop": "stopped"}.get(str(done.get("cause"))) or (
        "exit" if code is not None and code >= 0 else "signal"
    )
    stopped = how == "stopped"
    return End(
        how=how,
        code=code if code is not None and code >= 0 and not stopped else None,
        signal=-code if code is not None and code < 0 and not stopped else None,
        cause="outside" if stopped else None,
        bytes=done.get("total"),
        ms=round(float(done.get("duration") or 0) * 1000),
    )
