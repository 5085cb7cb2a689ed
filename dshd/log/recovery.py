"""Opening a log: what is believed, what is cut away, what is left alone (SPEC §4.1, steps 1 and 2).

`dshd.log.survey` judges every line, of what the page cache shows. That need not be on disk, and a sync
that succeeds need not be about it: a daemon that is killed while a sync fails (on a disk that hangs, say)
leaves lines in the cache that no later sync will write. So what no line proves to have been durable,
which is the last write mostly, is written once more where it stands, and synced, before `open_log`
returns; if that fails nothing was believed.

- a *torn tail* was never acknowledged: it is copied to ``log.torn-<seq>``, synced, and only then
  cut off;
- a log that ends before what a fault's note or another file beside it tells of (`witness`) is damaged, too;
- a *damaged* log, or one from a *newer version*, is not touched. Its good lines are returned, with
  a ``log/gap`` where seqs are missing, so that it can be shown; it can't be continued.
  `repair` makes a damaged one whole (`dshd.log.repair`).

A *faulted* log is left by `reopen_copy`: the synced prefix goes to a new file, for the old inode's
page cache may lie. An opening does it by itself if the fault was noted beside the log
(`dshd.log.fault`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from dshd.errors import Damaged
from dshd.log import fault, witness
from dshd.log.codec import Event
from dshd.log.disk import Disk, LogFile, explained, new_name
from dshd.log.reader import scan, survey
from dshd.log.repair import RepairReport, durable_once, repair
from dshd.log.survey import Damage, Region, Start
from dshd.log.there import told
from dshd.log.vocabulary import gap_event, why_unsupported

__all__ = [
    "Damage",
    "Opened",
    "RepairReport",
    "Start",
    "TornTail",
    "open_log",
    "read_log",
    "reopen_copy",
    "repair",
]

Each = Callable[[Event], object]
Begin = Callable[[], Start | None]


@attrs.frozen(slots=True)
class TornTail:
    """What was cut: ``bytes`` from offset ``start`` on, kept in ``file`` (a name beside the log)."""

    seq: int
    start: int
    bytes: int
    file: str
    reason: str


@attrs.frozen(slots=True)
class Opened:
    """What opening found. ``size`` (bytes) and ``next_seq`` are those of the log as it is now.

    ``events`` is empty if they were given to ``each``. All events up to ``synced`` are durable.
    With ``damage`` (the first region; all are in ``regions``) or ``unsupported`` (a sentence) the
    log can't be driven.
    """

    events: list[Event]
    next_seq: int
    size: int
    synced: int
    torn: TornTail | None = None
    damage: Damage | None = None
    unsupported: str | None = None
    regions: tuple[Damage, ...] = ()


# -- opening --------------------------------------------------------------------------------------


def open_log(
    disk: Disk, path: Path, known_types: frozenset[str], *, each: Each | None = None,
    begin: Begin = lambda: None,
) -> tuple[LogFile | None, Opened]:  # fmt: skip
    """Open a session's log to continue it; the file is None if it can't be (damaged, unsupported).

    With ``each``, every event is given to it in order instead of being collected, so a log of any
    size opens in bounded memory. It gets only events that stay; of a damaged log the good ones and
    a ``log/gap`` where seqs are missing; of an unsupported one those of unknown types, too.

    ``begin`` is called once the file is open: what comes before the place it gives is taken as good,
    durable and known, and is not read again.

    Raises a `DshError` that names the path when the file can't be read, synced or cut: a log that
    can't be read is never taken for an empty one.

    Durability: on return, what is returned or was given to ``each`` is on disk, and so is every cut.
    """
    with told("open", path, disk):
        disk.unlink(new_name(path))  # left by a crash while the log was copied
        durable = max(_leave_fault(disk, path), witness.told(disk, path))
        file = disk.open_log(path)
        try:
            opened = _judge(disk, path, file, known_types, each, durable, begin())
            _sync(disk, path, file)
            disk.sync_dir(path.parent)  # its name, too: a copy may have replaced it just before a kill
        except BaseException:
            file.close()
            raise
    if opened.damage or opened.unsupported:
        file.close()
        return None, opened
    return file, opened


def read_log(
    disk: Disk, path: Path, known_types: frozenset[str], *, each: Each | None = None,
    begin: Begin = lambda: None,
) -> Opened:  # fmt: skip
    """The same verdict and events without changing anything: for those who are not the writer.

    ``torn`` tells what an opening would cut (its ``file`` is empty); ``size`` and ``next_seq``
    leave it out. Durability: none, nothing is synced.
    """
    with told("read", path, disk):
        return _judge(disk, path, None, known_types, each, durable_once(disk, path), begin())


def _judge(
    disk: Disk, path: Path, file: LogFile | None, known: frozenset[str], each: Each | None, durable: int,
    start: Start | None,
) -> Opened:  # fmt: skip
    events: list[Event] = []
    take = _Known(known, each or events.append)
    found = survey(disk, path, durable=durable, each=take, start=start)
    damage, torn = tuple(map(Damage.of, found.damage)), found.torn
    if damage:
        _show_rest(disk, path, take, damage[0].start, torn.start if torn else None, durable)
    if damage or take.unsupported:
        file = None  # and so nothing is cut
    size, next_seq = (torn.start, torn.first) if torn else (found.end, found.expected)
    tail = _tail(disk, path, file, torn, found.end) if torn else None
    if file is not None and found.proven_end < size:
        file.write_again(found.proven_end, size)
    return Opened(
        events,
        next_seq,
        size,
        next_seq - 1,
        torn=tail,
        damage=damage[0] if damage else None,
        unsupported=take.unsupported,
        regions=damage,
    )


def _show_rest(disk: Disk, path: Path, take: Each, start: int, end: int | None, durable: int) -> None:
    """Give what is good behind the first damage, which begins at byte ``start``."""
    for item in scan(disk, path, end=end, durable=durable):
        if isinstance(item, Region):
            if item.last is not None and item.last >= item.first:
                take(gap_event(item.first, item.last))
        elif item[0] >= start:
            take(item[1])


class _Known:
    """Passes events on and notes the first one that this version can't drive."""

    def __init__(self, known: frozenset[str], give: Each) -> None:
        self._known = known
        self._give = give
        self.unsupported: str | None = None

    def __call__(self, event: Event) -> None:
        if self.unsupported is None:
            self.unsupported = why_unsupported(event, self._known)
        self._give(event)


# -- the torn tail --------------------------------------------------------------------------------


def _tail(disk: Disk, path: Path, file: LogFile | None, torn: Region, end: int) -> TornTail:
    """Describe the tail; with the log's ``file``, keep a copy and cut it off."""
    name = _cut(disk, path, file, torn, end) if file else ""
    return TornTail(torn.first, torn.start, end - torn.start, name, torn.reason)


def _cut(disk: Disk, path: Path, file: LogFile, torn: Region, end: int) -> str:
    spare = disk.spare_name(path.with_name(f"log.torn-{torn.first}"))
    disk.write_synced(spare, disk.pieces(path, torn.start, end))
    disk.sync_dir(spare.parent)
    file.truncate(torn.start)
    _sync(disk, path, file)
    return spare.name


# -- leaving a fault ------------------------------------------------------------------------------


def reopen_copy(disk: Disk, path: Path, synced_end: int, *, source: LogFile | None = None) -> None:
    """Put a new file with the first ``synced_end`` bytes of a faulted log in its place.

    With ``source``, the writer's file, still open, the bytes come from there: the name may be gone
    or be another file's by now, which is then kept as ``log.foreign``. Raises `Damaged` if there
    are fewer bytes than were synced.

    Durability: on return the new file and its name are on disk, and the fault's note is gone.
    """
    with explained("reopen", path):
        pieces = source.pieces(0, synced_end) if source else disk.pieces(path, 0, synced_end)
        foreign = source is not None and _is_foreign(disk, path, source)
        _replace(disk, path, pieces, synced_end, keep="log.foreign" if foreign else None)
        fault.forget(disk, path)


def _is_foreign(disk: Disk, path: Path, source: LogFile) -> bool:
    return disk.exists(path) and disk.stat(path).inode != source.inode


def _replace(disk: Disk, path: Path, pieces: Iterator[bytes], size: int, *, keep: str | None = None) -> None:
    """At no instant is there nothing of this name: the new one is whole before the old one goes, which
    ``keep`` gives another name first. (Of what is no file there can't be two names: it is renamed.)"""
    new = new_name(path)
    if disk.write_synced(new, pieces) != size:
        disk.unlink(new)
        raise Damaged(
            f"{path} is shorter than the {size} bytes that were synced.",
            hint=f"dshctl fsck --repair {path.parent.name}",
        )
    if keep is not None:
        _keep(disk, path, keep)
    disk.rename_synced(new, path)


def _keep(disk: Disk, path: Path, name: str) -> None:
    found = disk.stat(path)
    if found.is_dir or found.is_strange:
        disk.rename_synced(path, disk.spare_name(path.with_name(name)))
    else:
        disk.keep_synced(path, name)


def _sync(disk: Disk, path: Path, file: LogFile) -> None:
    """Sync, or raise and leave a note: a second sync would succeed and mean nothing, so the next opening
    copies what is seen to a new file before it believes it."""
    try:
        file.sync()
    except OSError as error:
        note = fault.FaultNote(file.inode, file.size, -1, os.strerror(error.errno or 0))
        with contextlib.suppress(OSError):
            fault.write(disk, path, note)
        raise


def _leave_fault(disk: Disk, path: Path) -> int:
    """Act on a fault's note; returns up to which seq the log that is there must reach (-1: any).

    Where synced bytes are missing the log is damaged, and the note stays, for `repair`. Else it is gone when
    this returns, whatever it said: left beside a log that is continued, it would cut it back one day.
    """
    note = fault.read(disk, path)
    if note is None:
        fault.drop_stale(disk, path)
        return -1
    size = disk.stat(path).size
    if size < note.size and note.seq >= 0:
        return note.seq
    reopen_copy(disk, path, min(size, note.size))
    return -1
