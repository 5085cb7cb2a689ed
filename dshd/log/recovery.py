"""Opening a log: what is believed, what is cut away, what is left alone (SPEC §4.1, steps 1 and 2).

`open_log` syncs the file before it reads a byte, because the page cache shows lines that are not on
disk. Then `dshd.log.survey` judges every line:

- a *torn tail* was never acknowledged: it is copied to ``log.torn-<seq>``, synced, and only then
  cut off;
- a *damaged* log, or one from a *newer version*, is not touched. Its good lines are returned, with
  a ``log/gap`` where seqs are missing, so that it can be shown; it can't be continued.

A *faulted* log is left by `reopen_copy`: the synced prefix goes to a new file, for the old inode's
page cache may lie. An opening does it by itself if the fault was noted beside the log
(`dshd.log.fault`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from dshd import __version__
from dshd.errors import Damaged
from dshd.log import fault
from dshd.log.codec import Event
from dshd.log.disk import Disk, LogFile, explained
from dshd.log.reader import read_lines
from dshd.log.survey import GAP, Region, Survey

FORMAT_VERSION = 1
HEADER = "session/header"
REPAIRED = "log/repaired"

Each = Callable[[Event], object]


@attrs.frozen(slots=True)
class TornTail:
    """What was cut: ``bytes`` from offset ``start`` on, kept in ``file`` (a name beside the log)."""

    seq: int
    start: int
    bytes: int
    file: str
    reason: str


@attrs.frozen(slots=True)
class Damage:
    """A bad region of a damaged log: bytes ``start`` to ``end``, ``end`` exclusive; ``line`` from 1.

    ``first_seq`` to ``last_seq`` are missing: none, if the last is less than the first; all from
    the first on, if it is None.
    """

    line: int
    first_seq: int
    last_seq: int | None
    start: int
    end: int
    reason: str

    def sentence(self, name: str = "log.jsonl") -> str:
        """``damaged at line 3000 (bytes 412033-412690 of log.jsonl)``; bytes inclusive, as people count."""
        return f"damaged at line {self.line} (bytes {self.start}-{max(self.start, self.end - 1)} of {name})"

    @classmethod
    def of(cls, region: Region) -> Damage:
        return cls(region.line, region.first, region.last, region.start, region.end, region.reason)


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
    disk: Disk, path: Path, known_types: frozenset[str], *, each: Each | None = None
) -> tuple[LogFile | None, Opened]:
    """Open a session's log to continue it; the file is None if it can't be (damaged, unsupported).

    With ``each``, every event is given to it in order instead of being collected, so a log of any
    size opens in bounded memory. It gets only events that stay; of a damaged log the good ones and
    a ``log/gap`` where seqs are missing; of an unsupported one those of unknown types, too.

    Raises a `DshError` that names the path when the file can't be read, synced or cut: a log that
    can't be read is never taken for an empty one.

    Durability: what is returned or given to ``each`` is on disk, and so is every cut.
    """
    with explained("open", path):
        durable = _leave_fault(disk, path)
        file = disk.open_log(path)
        try:
            file.sync()
            opened = _judge(disk, path, file, known_types, each, durable)
        except BaseException:
            file.close()
            raise
    if opened.damage or opened.unsupported:
        file.close()
        return None, opened
    return file, opened


def read_log(disk: Disk, path: Path, known_types: frozenset[str], *, each: Each | None = None) -> Opened:
    """The same verdict and events without changing anything: for those who are not the writer.

    ``torn`` tells what an opening would cut (its ``file`` is empty); ``size`` and ``next_seq``
    leave it out. Durability: none, nothing is synced.
    """
    with explained("read", path):
        note = fault.read(disk, path)
        return _judge(disk, path, None, known_types, each, note.seq if note else -1)


def _judge(
    disk: Disk, path: Path, file: LogFile | None, known: frozenset[str], each: Each | None, durable: int
) -> Opened:
    events: list[Event] = []
    take = _Known(known, each or events.append)
    survey = _believe(disk, path, take, durable)
    damage = tuple(Damage.of(region) for region in survey.damage)
    torn = survey.torn
    if damage:
        _show_rest(disk, path, take, damage[0].start, torn.start if torn else None)
    driven = file if not damage and take.unsupported is None else None
    return Opened(
        events,
        torn.first if torn else survey.expected,
        torn.start if torn else survey.end,
        (torn.first if torn else survey.expected) - 1,
        _tail(disk, path, driven, torn, survey.end) if torn else None,
        damage[0] if damage else None,
        take.unsupported,
        damage,
    )


def _believe(disk: Disk, path: Path, take: Each, durable: int) -> Survey:
    """Survey the whole file; ``take`` gets the events before the first bad region."""
    survey = Survey(durable)
    for offset, line in read_lines(disk, path):
        good = survey.feed(offset, line)
        if good and not survey.regions:
            take(good[1])
    survey.finish()
    return survey


def _show_rest(disk: Disk, path: Path, take: Each, start: int, end: int | None) -> None:
    for item in scan(disk, path, end=end):
        if isinstance(item, Region):
            if item.last is not None and item.last >= item.first:
                take(gap_event(item.first, item.last))
        elif item[0] >= start:
            take(item[1])


def gap_event(first: int, last: int, time: int = 0, file: str | None = None) -> Event:
    """The line that stands for the seqs ``first`` to ``last``, whose bytes are kept in ``file``."""
    return Event(first, time, GAP, {"first": first, "last": last, "file": file})


class _Known:
    """Passes events on and notes the first one that this version can't drive."""

    def __init__(self, known: frozenset[str], give: Each) -> None:
        self._known = known | {GAP, REPAIRED, HEADER}
        self._give = give
        self.unsupported: str | None = None

    def __call__(self, event: Event) -> None:
        if self.unsupported is None and (event.seq == 0 or event.type not in self._known):
            self.unsupported = _why_unsupported(event, self._known)
        self._give(event)


def _why_unsupported(event: Event, known: frozenset[str]) -> str | None:
    if event.seq == 0 and event.type == HEADER:
        return _why_version(event.data.get("version"))
    if event.seq == 0 and event.type != GAP:
        return f'its first event is "{event.type}", not a session header'
    if event.type in known or event.ignorable:
        return None
    return (
        f'it was written by a newer dshd: event {event.seq} is "{event.type}", '
        f"which this dshd {__version__} does not know"
    )


def _why_version(version: object) -> str | None:
    if version == FORMAT_VERSION:
        return None
    newer = type(version) is int and version > FORMAT_VERSION
    side = "it was written by a newer dshd" if newer else "it is older than this dshd, or none of its logs"
    return f"{side}: its format is {version}, and this dshd {__version__} knows format {FORMAT_VERSION}"


# -- the torn tail --------------------------------------------------------------------------------


def _tail(disk: Disk, path: Path, file: LogFile | None, torn: Region, end: int) -> TornTail:
    """Describe the tail; with the log's ``file``, keep a copy and cut it off."""
    name = _cut(disk, path, file, torn, end) if file else ""
    return TornTail(torn.first, torn.start, end - torn.start, name, torn.reason)


def _cut(disk: Disk, path: Path, file: LogFile, torn: Region, end: int) -> str:
    spare = spare_name(disk, path.with_name(f"log.torn-{torn.first}"))
    disk.write_synced(spare, disk.pieces(path, torn.start, end))
    disk.sync_dir(spare.parent)
    file.truncate(torn.start)
    file.sync()
    return spare.name


def spare_name(disk: Disk, path: Path) -> Path:
    """``path``, or the first of ``path.2``, ``path.3``, ... that is free: nothing kept is overwritten."""
    number, free = 1, path
    while disk.exists(free):
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


# -- showing --------------------------------------------------------------------------------------


def scan(disk: Disk, path: Path, *, end: int | None = None) -> Iterator[tuple[int, Event, bytes] | Region]:
    """Every good line of a log in whatever state, as ``(offset, event, line)``, and what is between.

    Each bad `Region` comes once, whole, before the good line that ends it. Reads to byte ``end``,
    or to the end of the file. Bounded memory.
    """
    survey = Survey()
    told = 0
    for offset, line in read_lines(disk, path, end=end):
        good = survey.feed(offset, line)
        if good:
            yield from survey.regions[told:]
            told = len(survey.regions)
            yield good[0], good[1], line[good[0] - offset :]
    survey.finish()
    yield from survey.regions[told:]


# -- leaving a fault ------------------------------------------------------------------------------


def reopen_copy(disk: Disk, path: Path, synced_end: int, *, source: LogFile | None = None) -> None:
    """Put a new file with the first ``synced_end`` bytes of a faulted log in its place.

    With ``source``, the writer's file, still open, the bytes come from there: the name may be gone
    or be another file's by now, which is then kept as ``log.foreign``. Raises `Damaged` if there
    are fewer bytes than were synced.

    Durability: on return the new file and its name are on disk, and the fault's note is gone.
    """
    with explained("reopen", path):
        if source is not None and _is_foreign(disk, path, source):
            disk.rename_synced(path, spare_name(disk, path.with_name("log.foreign")))
        pieces = source.pieces(0, synced_end) if source else disk.pieces(path, 0, synced_end)
        _replace(disk, path, pieces, synced_end)
        fault.forget(disk, path)


def _is_foreign(disk: Disk, path: Path, source: LogFile) -> bool:
    return disk.exists(path) and disk.stat(path).inode != source.inode


def _replace(disk: Disk, path: Path, pieces: Iterator[bytes], size: int) -> None:
    new = path.with_name(f".{path.name}.new")
    if disk.write_synced(new, pieces) != size:
        disk.unlink(new)
        raise Damaged(
            f"{path} is shorter than the {size} bytes that were synced.",
            hint=f"dshctl fsck --repair {path.parent.name}",
        )
    disk.rename_synced(new, path)


def _leave_fault(disk: Disk, path: Path) -> int:
    """Act on a fault's note; returns up to which seq the log that is there must reach (-1: any)."""
    note = fault.read(disk, path)
    if note is None:
        return -1
    if disk.stat(path).size < note.size:
        return note.seq
    reopen_copy(disk, path, note.size)
    return -1
