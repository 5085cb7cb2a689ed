"""Jobs of all sessions: which run, what they print, and what nobody looks after any more.

A session with a job that runs is in memory, so those are there without asking a disk; of what has ended
only sessions that are loaded say anything, and one that is asked for by name.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import trio

from dshd.errors import Invalid, NotFound
from dshd.log.store import Store
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry.hops import Hops
from dshd.session.registry.kept_jobs import KeptJobs
from dshd.session.registry.loader import Loader
from dshd.session.registry.numbers import Numbers
from dshd.spawn import kept
from dshd.tools.text import whole_end

log = logging.getLogger(__name__)
Json = dict[str, Any]

LOOK_S: Final = 0.2  # between looks at a file that somebody reads along
MOST: Final = 256 * 1024  # bytes of output in one answer


class AllJobs:
    def __init__(
        self, store: Store, hops: Hops, loaded: Mapping[str, Session], loader: Loader, kept_jobs: KeptJobs,
        numbers: Numbers,
    ) -> None:  # fmt: skip
        self._store = store
        self._hops = hops
        self._loaded = loaded
        self._loader = loader
        self._kept = kept_jobs
        self._numbers = numbers

    # --- looking

    async def rows(self, session: str | None, all: bool) -> list[Json]:
        """``job`` objects, the oldest first: those that run, or ``all`` that are known; of one session, or
        of every."""
        sessions = [await self._loader.get(session)] if session is not None else list(self._loaded.values())
        rows = [row for one in sessions for row in one.jobs.rows() if all or row["state"] == "running"]
        return sorted(rows, key=lambda row: int(row["id"][1:]))

    async def session_of(self, id: str) -> Session:
        """The session that has this job. Raises `NotFound`."""
        if not id.startswith("j") or not id[1:].isdecimal():
            raise Invalid(f'"{id}" is not the id of a job', hint="dshctl jobs")
        there = next((one for one in self._loaded.values() if id in one.state.jobs), None)
        owner = there.id if there is not None else await self._numbers.session_of(id)
        if owner is None or not await self._hops.read(lambda: self._store.exists(owner)):
            raise NotFound(f"no job {id}", hint="dshctl jobs --all")
        session = await self._loader.get(owner)
        if id not in session.state.jobs:
            raise NotFound(f"no job {id}", hint="dshctl jobs --all")
        return session

    async def output(self, id: str, offset: int | None, most: int, wait: float) -> Json:
        """A piece of what it has printed: from ``offset`` (bytes), else the last ``most``; the ``next`` piece
        begins there. ``wait``: s to wait for something to be there, if it still runs."""
        session = await self.session_of(id)
        path, most = session.jobs.output(id), max(1, min(most, MOST))
        with trio.move_on_after(wait):
            while offset is not None and await self._goes_on(session, id, path, offset):  # noqa: ASYNC110
                await trio.sleep(LOOK_S)  # nobody tells us when a file grows
        row = session.jobs.row(id)  # before the file is read: what is there after the end is all
        start, text, size = await self._hops.read(lambda: piece(path, offset, most))
        if row["state"] == "running" or start + len(text) < size:
            text = whole_end(text)
        return {
            "type": "job-output", "id": id, "offset": start, "next": start + len(text), "size": size,
            "text": text.decode(errors="replace"), "state": row["state"], "end": row["end"],
            "path": str(path),
        }  # fmt: skip

    async def _goes_on(self, session: Session, id: str, path: Path, offset: int) -> bool:
        """Whether it runs, and has printed no more than that."""
        return session.state.jobs[id].runs and await self._hops.read(lambda: size_of(path)) <= offset

    # --- changing

    async def stop(self, id: str, peer: Peer) -> Json:
        session = await self.session_of(id)
        session.guard_person(peer)
        return await session.jobs.stop(id, "user", peer.source())

    async def keep(self, id: str, peer: Peer) -> Json:
        """See `owner.jobs.Jobs.keep`."""
        session = await self.session_of(id)
        session.guard_person(peer)
        return await session.jobs.keep(id, peer.source())

    # --- at the start

    async def end_leftovers(self) -> None:
        """What is noted as kept, and no session that is there knows of as running, is ended."""
        for note in await self._kept.notes():
            session = self._loaded.get(note.session)
            if session is not None and (session.broken is not None or _runs(session, note.job)):
                continue
            if kept.send(note.pid, note.start, signal.SIGTERM):
                log.warning("ended job %s, which no session knows of", note.job)
            await self._kept.drop(note.job)


def _runs(session: Session, id: str) -> bool:
    job = session.state.jobs.get(id)
    return job is not None and job.runs


def size_of(path: Path) -> int:
    """0 if it isn't there. Blocks."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def piece(path: Path, offset: int | None, most: int) -> tuple[int, bytes, int]:
    """(where it begins, bytes, the file's size). Blocks."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size - most) if offset is None else min(max(0, offset), size)
            file.seek(start)
            return start, file.read(most), size
    except OSError:
        return 0, b"", 0
