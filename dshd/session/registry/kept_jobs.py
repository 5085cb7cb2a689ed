"""Jobs that outlive the daemon, noted outside of the logs: ``STATE/jobs/j3.json``.

Which jobs are kept is in the logs. But the first thing that a daemon does is to end all that earlier ones
have left, before it opens a log; so what it is to spare then stands here: the pid and start time of the
job's supervisor. Beside it, in ``j3.end``, that supervisor leaves word of the end. Both go when the end is in
the log. A note of no job that runs is a leftover, and what it names is ended (`leftovers`).
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from dshd.log.disk import explained
from dshd.log.store import Store
from dshd.session.registry.hops import Hops
from dshd.spawn import kept
from dshd.spawn.orphans import kill_orphans

log = logging.getLogger(__name__)

FOLDER: Final = "jobs"


@attrs.frozen
class Note:
    """Of a job: whose it is, and which supervisor."""

    job: str
    session: str
    pid: int
    start: int

    @property
    def holds(self) -> bool:
        return kept.is_there(self.pid, self.start)


def folder(state: Path) -> Path:
    return state / FOLDER


def read(state: Path) -> list[Note]:
    """What is noted. Blocks."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(folder(state).glob("*.json")):
            try:
                data = json.loads(path.read_bytes())
                found.append(Note(path.stem, str(data["session"]), int(data["pid"]), int(data["start"])))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s can't be read: %s", path, error)
    return found


def spared(state: Path) -> list[int]:
    """The supervisors that are to be left alone. Blocks."""
    return [note.pid for note in read(state) if note.holds]


class KeptJobs:
    """`owner.jobs.Shelf`."""

    def __init__(self, store: Store, hops: Hops) -> None:
        self._store = store
        self._hops = hops

    @property
    def _folder(self) -> Path:
        return folder(self._store.state)

    async def put(self, job: str, session: str, pid: int, start: int) -> Path:
        data = json.dumps({"session": session, "pid": pid, "start": start}).encode()
        await self._hops.write(lambda: self._write(job, data))
        return self._folder / f"{job}.end"

    def _write(self, job: str, data: bytes) -> None:
        disk, path = self._store.disk, self._folder / f"{job}.json"
        with explained("write", path):
            disk.create_dir_synced(self._folder)
            disk.write_atomic(path, data)

    async def drop(self, job: str) -> None:
        with trio.CancelScope(shield=True):
            await self._hops.read(lambda: self._remove(job))

    def _remove(self, job: str) -> None:
        for name in (f"{job}.json", f"{job}.end"):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    async def end_strays(self) -> None:
        state = self._store.state
        left = await self._hops.read(lambda: kill_orphans(state, spared(state)))
        if left:
            log.warning("ended what a kept job has left: %s", ", ".join(map(str, left)))

    def word(self, job: str) -> Mapping[str, Any] | None:
        return kept.word(str(self._folder / f"{job}.end"))

    async def notes(self) -> list[Note]:
        return await self._hops.read(lambda: read(self._store.state))
