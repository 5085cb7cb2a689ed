"""A session as one file, and back: what goes into an export, and what of a file is believed.

An export is a tar (`tar`) of one session at an instant::

    <id>/session.json            first: {"format": 1, "id", "name", "version" (of dshd), "exported" (Unix ms)}
    <id>/log.jsonl               the log as it was, byte for byte
    <id>/attachments/<sha256>.txt
    <id>/log.damaged-N, <id>/log.torn-N    what a repair or an opening had set aside, if there is any

The instant is the log's size at its beginning: a log only grows, and whatever its events refer to was on
disk before them. The environment (``env.json``), keys, checkpoints, views, and whole outputs of tools
(``spill``) stay behind. A damaged log is exported like any other: nothing in it is judged here.

`unpack` takes such a file, or a plain tar of a session's directory, which lacks ``session.json`` and has
files that are left behind here. Of what comes from elsewhere it believes nothing (see `tar`), and an
attachment only if its name is its hash. Both read and write a piece at a time, and block.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from dshd import __version__, wire
from dshd.errors import DshError, Invalid, NotFound, Unavailable, Unsupported
from dshd.log.disk import PIECE, Disk, explained
from dshd.log.reader import read_header
from dshd.log.store import ATTACHMENTS, LOG, Store
from dshd.log.there import told
from dshd.session.porting import tar
from dshd.session.porting.tar import Member, Wrong

Json = dict[str, Any]
Read = Callable[[int], bytes]  # up to so many bytes; none at the end

FORMAT: Final = 1
MANIFEST: Final = "session.json"
_MANIFEST_MOST: Final = 64 * 1024
_ATTACHMENT: Final = re.compile(rf"{ATTACHMENTS}/([0-9a-f]{{64}})\.txt\Z")
_SET_ASIDE: Final = re.compile(r"log\.(damaged|torn)-\d+(\.\d+)?\Z")
_LEFT_BEHIND: Final = re.compile(
    r"env\.json\Z|view\.json\Z|checkpoint\.json\Z|ended\.(jsonl|index)\Z|log\.(faulted|foreign)|spill/|(.*/)?\."
)
_EXPORT_HINT: Final = "dshctl export -o FILE SESSION"


@attrs.frozen
class Source:
    """What is exported: a session's ``directory``, its ``id`` and ``name``, and how much of its log
    (None: all that is there at the beginning). ``now`` in Unix ms."""

    directory: Path
    id: str
    name: str
    now: int
    size: int | None = None


# --- packing -------------------------------------------------------------------------------------


def pack(disk: Disk, source: Source) -> Iterator[bytes]:
    """The file's bytes, in pieces of at most 1 MiB and a little.

    Raises a `DshError` when something can't be read; `Unavailable` if the log got shorter meanwhile.
    """
    with explained("read", source.directory):
        size = disk.stat(source.directory / LOG).size if source.size is None else source.size
        manifest = {"format": FORMAT, "id": source.id, "name": source.name, "version": __version__,
                    "exported": source.now}  # fmt: skip
        yield from _file(source, MANIFEST, iter([json.dumps(manifest).encode() + b"\n"]), None)
        yield from _file(source, LOG, disk.pieces(source.directory / LOG, 0, size), size)
        for name in _others(disk, source.directory):
            path = source.directory / name
            try:
                length = disk.stat(path).size
            except FileNotFoundError:
                continue  # an attachment whose send was refused after all
            yield from _file(source, name, disk.pieces(path, 0, length), length)
        yield tar.END


def _file(source: Source, name: str, pieces: Iterator[bytes], size: int | None) -> Iterator[bytes]:
    first = next(pieces, b"")
    length = len(first) if size is None else size
    yield tar.header(f"{source.id}/{name}", length, source.now // 1000) + first
    left = length - len(first)
    for piece in pieces:
        left -= len(piece)
        yield piece
    if left:
        raise Unavailable(f"{source.directory / name} changed while it was read; try again.")
    yield tar.padding(length)


def _others(disk: Disk, directory: Path) -> list[str]:
    beside = [name for name in disk.listdir(directory) if _SET_ASIDE.match(name)]
    place = directory / ATTACHMENTS
    attached = disk.listdir(place) if disk.exists(place) else []
    return beside + [name for name in (f"{ATTACHMENTS}/{n}" for n in attached) if _ATTACHMENT.match(name)]


# --- unpacking -----------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Unpacked:
    """``manifest`` is empty if there was none; ``lost``: attachments that were not what their names say,
    and were left out."""

    manifest: Json
    lost: int


def unpack(disk: Disk, read: Read, directory: Path) -> Unpacked:
    """Write what is in a file into ``directory``, which exists and is empty.

    Raises `Invalid` for what is no whole export, `Unsupported` for one of a newer dshd, `NoSpace` and
    the like. Durability: on return the files' bytes are on disk; their names need not be.
    """
    try:
        with explained("write", directory):
            return _Unpacking(disk, read, directory).run()
    except Wrong as wrong:
        raise refused(wrong) from None


def refused(wrong: Wrong) -> DshError:
    hint = f"{wrong.unpack} < FILE | dshctl import -" if wrong.unpack else _EXPORT_HINT
    return Invalid(f"not imported: {wrong}.", hint=hint, outcome="not-written")


class _Unpacking:
    def __init__(self, disk: Disk, read: Read, directory: Path) -> None:
        self._disk = disk
        self._read = read
        self._directory = directory
        self._top: str | None = None
        self._manifest: Json = {}
        self._log = False
        self._lost = 0

    def run(self) -> Unpacked:
        reader = tar.Reader()
        while (member := reader.member(self._exactly(tar.BLOCK, short=True))) is not None:
            if not member.directory:
                self._take(member, self._inside(member))
                self._exactly(member.padding)
        if not self._log:
            raise Wrong(f"it holds no {LOG}")
        return Unpacked(self._manifest, self._lost)

    def _inside(self, member: Member) -> str:
        """Its name in the session's directory: all are in one."""
        top, _, name = member.name.partition("/")
        self._top = top if self._top is None else self._top
        if not name or top != self._top:
            raise Wrong(f"it holds {member.name}, which is no session's")
        return name

    def _take(self, member: Member, name: str) -> None:
        attachment = _ATTACHMENT.match(name)
        if name == MANIFEST:
            self._manifest = self._read_manifest(member)
        elif attachment:
            self._attachment(member, name, attachment[1])
        elif name == LOG or _SET_ASIDE.match(name):
            self._disk.write_synced(self._directory / name, self._pieces(member.size))
            self._log = self._log or name == LOG
        elif _LEFT_BEHIND.match(name):
            for _piece in self._pieces(member.size):
                pass
        else:
            raise Wrong(f"it holds {member.name}, which is no session's")

    def _read_manifest(self, member: Member) -> Json:
        if member.size > _MANIFEST_MOST:
            raise Wrong(f"its {MANIFEST} is too long")
        try:
            found = json.loads(b"".join(self._pieces(member.size)))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or type(found.get("format")) is not int:
            raise Wrong(f"its {MANIFEST} can't be read")
        if found["format"] != FORMAT:
            raise Unsupported(
                f"not imported: it is of format {found['format']}, and this dshd {__version__} knows"
                f" {FORMAT}: it was exported by a newer one.",
                outcome="not-written",
            )
        return found

    def _attachment(self, member: Member, name: str, sha256: str) -> None:
        path, digest = self._directory / name, hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for piece in self._pieces(member.size):
                digest.update(piece)
                yield piece

        if not self._disk.exists(path.parent):
            self._disk.create_dir_synced(path.parent)
        self._disk.write_synced(path, hashed())
        if digest.hexdigest() != sha256:
            self._disk.unlink(path)
            self._lost += 1

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = self._exactly(min(PIECE, size))
            size -= len(piece)
            yield piece

    def _exactly(self, count: int, *, short: bool = False) -> bytes:
        """So many bytes; fewer only at the end, and only if that may be (``short``)."""
        pieces, left = [], count
        while left > 0 and (piece := self._read(left)):
            pieces.append(piece)
            left -= len(piece)
        if left and not short:
            raise tar.short()
        return b"".join(pieces)


def packed(store: Store, id: str, name: str, size: int | None, now: int) -> Iterator[bytes]:
    """An export of a session's directory, under the id that its log has."""
    log = store.log_path(id)
    if not store.exists(id):
        raise NotFound(f'no session "{id}"', hint="dshctl ls")
    with told("read", log, store.disk):
        header = read_header(store.disk, log)
    own = header.data.get("id") if header is not None else None
    true = own if isinstance(own, str) and wire.is_session_id(own) else id
    return pack(store.disk, Source(store.session_dir(id), true, name, now, size))
