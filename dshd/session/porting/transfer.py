"""Directories of sessions that come from others: an import, and a fork. The parts that read and write.

Both are made in a directory that has no session's name yet (`Store.begin`) and are finished by one last
batch of events, which is decided when it is settled what the session is called (`import_batch`,
`fork_batch`) and synced before the directory gets its name. So there is no instant at which an imported
session could run: with its name it is parked. A crash leaves the whole session, or a leftover that the
next start sweeps.

What an import does to what it finds, in the order of its last batch:

- what an opening does: the open turn is closed, with a result for each call; what was claimed goes back;
- settings: the environment is the one that came with the request; the name another one, if it is taken;
  it is this directory's session only if there is none, keeps its key only if nobody has that, and its
  mode within the policy;
- `session/imported`: parked. What was to be gone on with, or retried, is not.

All of it blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from dshd import wire
from dshd.errors import Damaged, DshError, Invalid, Unsupported
from dshd.log import repair
from dshd.log.codec import Event, encode
from dshd.log.disk import Disk, LogFile, explained, new_name
from dshd.log.reader import read_header, scan
from dshd.log.store import ATTACHMENTS, LOG
from dshd.log.survey import Region
from dshd.session.deciding import closing, queueing
from dshd.session.deciding.scratch import Scratch
from dshd.session.disk import opening
from dshd.session.disk.opening import Loaded
from dshd.session.fold.events import VERSION, file_name
from dshd.session.fold.state import State
from dshd.session.porting import copying, packing
from dshd.session.porting.copying import Fork, Outside, Point
from dshd.session.porting.packing import Read

Json = dict[str, Any]

# What code that expects what a dshd wrote may raise when it meets something else.
_JUNK: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, Invalid)


@attrs.define
class Made:
    """A session's directory, but for its last batch. ``file`` is its log, open; ``lost``: attachments that
    were left out; ``original``: the id it had; ``repaired``: whether it was damaged."""

    id: str
    state: State
    file: LogFile
    synced: int
    loaded: Loaded | None = None
    original: str = ""
    lost: int = 0
    repaired: bool = False

    def finish(self, lines: Iterable[bytes]) -> None:
        """Durability: on return the last batch is on disk."""
        with explained("write", self.file.path):
            self.file.append(b"".join(lines))
            self.file.sync()
            self.file.close()

    def close(self) -> None:
        self.file.close()


def again(*, as_new: bool = False, repair: bool = False) -> str:
    """The command that imports it."""
    options = (" --as-new" if as_new else "") + (" --repair" if repair else "")
    return f"dshctl import{options} FILE"


# --- imports -------------------------------------------------------------------------------------


def arrive(disk: Disk, read: Read, directory: Path, *, new_id: str | None, mend: bool, now: int) -> Made:
    """What ``read`` gives, in ``directory``; with ``new_id`` as a new session of that id.

    Raises `Invalid` (no export), `Unsupported` (of a newer dshd), `Damaged` (unless ``mend``).
    """
    unpacked = packing.unpack(disk, read, directory)
    path = directory / LOG
    original = _id_of(disk, path, unpacked.manifest)
    renamed = new_id is not None and _rename(disk, path, original, new_id)
    found, repaired = _opened(disk, path, new_id if new_id and renamed else original, mend=mend, now=now)
    if new_id is not None and not renamed:  # now it is a whole one
        assert found.file is not None
        found.file.close()
        _rename(disk, path, original, new_id)
        found, _ = _opened(disk, path, new_id, mend=False, now=now)
    assert found.file is not None
    try:
        _check_settings(found.state)
    except DshError:
        found.file.close()
        raise
    return Made(found.state.id, found.state, found.file, found.opened.synced, found, original,
                unpacked.lost, repaired)  # fmt: skip


def _id_of(disk: Disk, path: Path, manifest: Mapping[str, Any]) -> str:
    header = read_header(disk, path)
    id = (header.data if header is not None else manifest).get("id")
    if not isinstance(id, str) or not wire.is_session_id(id):
        raise Invalid("not imported: it doesn't say which session it is.", outcome="not-written",
                      hint="dshctl export -o FILE SESSION")  # fmt: skip
    return id


def _opened(disk: Disk, path: Path, id: str, *, mend: bool, now: int) -> tuple[Loaded, bool]:
    """The log, open to be continued; and whether it had to be repaired for that."""
    found = _load(disk, path, id)
    repaired = found.opened.damage is not None and mend
    if repaired:
        repair.repair(disk, path, now=now, make_header=lambda raw, _name, now: repair.salvage(raw, id, now))
        found = _load(disk, path, id)
    if found.broken is not None:
        raise _why_not(found, id)
    return found, repaired


def _load(disk: Disk, path: Path, id: str) -> Loaded:
    """A log from elsewhere may hold anything, with right checksums, too."""
    try:
        return opening.load(disk, path, id=id)
    except _JUNK as nonsense:
        raise _senseless(f"{type(nonsense).__name__}: {nonsense}") from nonsense


def _why_not(found: Loaded, id: str) -> DshError:
    name = found.state.name if found.state.header else id
    opened = found.opened
    if opened.unsupported:
        return Unsupported(f"not imported: {opened.unsupported}.", outcome="not-written")
    if opened.damage:
        return Damaged(f"not imported: session {name} in it is {opened.damage.sentence()}.",
                       hint=again(repair=True), outcome="not-written", data={"id": id})  # fmt: skip
    assert found.broken is not None
    return _senseless(found.broken.error.message)


def _senseless(why: str) -> Damaged:
    return Damaged(f"not imported: its log makes no sense ({why.rstrip('.')}).", outcome="not-written")


def _rename(disk: Disk, path: Path, old: str, new: str) -> bool:
    """Give every event the new id. False, and nothing is changed, if there is more in the log than good
    lines."""
    try:
        with explained("write", path):
            disk.write_synced(new_name(path), repair.joined(_renamed(disk, path, old, new)))
            disk.rename_synced(new_name(path), path)
    except (_NotWhole, *_JUNK):
        disk.unlink(new_name(path))
        return False
    return True


class _NotWhole(Exception):
    """There is a bad line."""


def _renamed(disk: Disk, path: Path, old: str, new: str) -> Iterator[bytes]:
    for item in scan(disk, path):
        if isinstance(item, Region):
            raise _NotWhole
        yield encode(copying.renamed(item[1], old, new))


def _events(disk: Disk, path: Path, until: int) -> Iterator[Event]:
    for item in scan(disk, path):
        if isinstance(item, Region) or item[1].seq > until:
            return
        yield item[1]


_SANE: Final[dict[str, Callable[[Any], bool]]] = {
    "name": lambda v: v is None or (isinstance(v, str) and _is_name(v)),
    "dir": lambda v: isinstance(v, str) and v.startswith("/"),
    "model": lambda v: v is None or isinstance(v, str),
    "model_why": lambda v: v is None or isinstance(v, str),
    "adapter": lambda v: v is None or isinstance(v, str),
    "mode": lambda v: v in wire.MODES,
    "ask": lambda v: v in ("wait", "deny"),
    "net": lambda v: isinstance(v, bool),
    "implicit": lambda v: isinstance(v, bool),
    "run": lambda v: isinstance(v, bool),
    "key": lambda v: v is None or isinstance(v, str),
    "patience": lambda v: v is None or (type(v) in (int, float) and v >= 0),
    "origins": lambda v: isinstance(v, dict) and all(isinstance(word, str) for word in v.values()),
    "schema": lambda v: v is None or isinstance(v, dict),
}


def _is_name(name: str) -> bool:
    try:
        wire.check_name(name)
    except Invalid:
        return wire.is_session_id(name)  # a repaired log's, whose name is lost
    return True


def _check_settings(state: State) -> None:
    """Raises `Invalid` for values that no dshd writes: everything that lists sessions relies on them."""
    settings = state.settings
    for name, sane in _SANE.items():
        if name in settings and not sane(settings[name]):
            raise Invalid(f"not imported: its {name} is {settings[name]!r:.80}.", outcome="not-written")
    if type((state.header or {}).get("created")) is not int or "dir" not in settings:
        raise Invalid("not imported: its header lacks what every session has.", outcome="not-written")


def import_batch(
    made: Made, now: int, *, by: Json, boot: str, version: str, settings: Mapping[str, Any],
    schedules: Mapping[str, str], describe: closing.Describe,
) -> Scratch:  # fmt: skip
    """The last batch; ``settings`` are what changes of them, ``schedules`` their new ids."""
    assert made.loaded is not None
    s = Scratch(made.state, now, made.synced)
    repaired, doubted, heard = s.state.repaired, s.state.doubted, s.state.time
    s.emit("session/opened", {"boot": boot, "version": version, "found": made.loaded.found})
    closing.recover(s, made.loaded.partial, False, "import", heard=heard, describe=describe)
    if repaired:
        queueing.hold_doubted(s, doubted)
    if settings:
        s.emit("session/changed", {"set": dict(settings), "by": by})
    came = {"from": made.original, "by": by}
    s.emit("session/imported", {**came, "schedules": dict(schedules)} if schedules else came)
    return s


# --- forks ---------------------------------------------------------------------------------------


def point_of(disk: Disk, path: Path, at: int, until: int) -> Point:
    """Whether a log, of which the events up to the seq ``until`` count, can be forked at ``at``."""
    point = Point(at)
    with opening.no_cycles:
        for event in _events(disk, path, until):
            point.take(event)
    return point


def fork(disk: Disk, parent: Path, directory: Path, *, id: str, point: Outside, depth: int,
         files: Mapping[str, bytes], now: int) -> Made:  # fmt: skip
    """The fork of the log ``parent`` at ``point``, in ``directory``, with ``files`` beside it."""
    parent_id = parent.parent.name
    own = {"version": VERSION, "id": id, "created": now}
    child = Fork(copying.header_of(point, parent_id, depth, own), now)
    path = directory / LOG

    def lines() -> Iterator[bytes]:
        yield encode(child.begin())
        for event in _events(disk, parent, point.seq):
            yield from map(encode, child.take(event))

    with explained("write", path), opening.no_cycles:
        disk.write_synced(path, repair.joined(lines()))
        child.check()
        for name, content in files.items():
            disk.write_synced(directory / name, content)
        _copy_attachments(disk, parent.parent, directory, [sha for sha, _ in child.state.files.items()])
        return Made(id, child.state, disk.open_log(path), child.state.seq, original=parent_id)


def _copy_attachments(disk: Disk, source: Path, target: Path, hashes: list[str]) -> None:
    for name in map(file_name, hashes):
        if disk.exists(source / ATTACHMENTS / name):
            disk.create_dir_synced(target / ATTACHMENTS)
            disk.write_synced(target / ATTACHMENTS / name, disk.pieces(source / ATTACHMENTS / name))


def fork_batch(made: Made, now: int, *, by: Json, point: Outside, changes: Json) -> Scratch:
    """``changes``: settings that are its own."""
    s = Scratch(made.state, now, made.synced)
    if changes:
        s.emit("session/changed", {"set": changes, "by": by})
    origin = {"session": made.original, "seq": point.seq, "title": point.title, "by": by}
    s.emit("session/forked", origin)
    return s
