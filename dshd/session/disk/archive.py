"""What has ended, on disk beside the log: receipts with their keys, and turns, found by a flat index.

Two files that only grow, derived from the log and worth nothing without the checkpoint that names how
far they are good (`Extent`): bytes behind that are leftovers of a crash, and the next writing begins
there.

``ended.jsonl``   one line each: ``["m", receipt, keyed]`` or ``["t", turn]``, frozen (see `freeze`)
``ended.index``   32 bytes each: two hashes to find it by (id or turn number; key), offset, length and
                  CRC-32 of the line

The index is searched from its end by its bytes, for nothing is faster: what ended a second time (after
a retry, or an undo) stands there twice, and the last one counts. Twenty thousand ended messages are
640 KB, read and searched in well under a millisecond; nothing of it is held in memory. A hash may mean
two things, so what a line says of itself decides.

A lookup opens the file, reads, and closes it again. Whatever doesn't fit raises `Lost`: the log is the
truth, and who gets that folds it again. All of it blocks.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Any, Final
from zlib import crc32

import attrs
import orjson

from dshd.errors import Unavailable
from dshd.log.disk import FILE_MODE, Disk, write_all
from dshd.session.disk.freeze import freeze, thaw
from dshd.session.fold.receipts import Receipt
from dshd.session.fold.state import Keyed
from dshd.session.fold.turns import EndedTurn

LINES: Final = "ended.jsonl"
INDEX: Final = "ended.index"
_RECORD: Final = Struct("<8s8sQII")
_NO_KEY: Final = bytes(8)
Name = tuple[str, object]  # ("m", message id), ("k", key), ("t", turn number)


class Lost(Unavailable):
    """The archive is gone or is not what it was; it will be made again from the log."""


@attrs.frozen(slots=True)
class Extent:
    """How far both files are good: bytes of each, the index's CRC-32, and the highest number of a
    message and of a turn in them (newer ones need no look)."""

    index: int = 0
    index_crc: int = 0
    lines: int = 0
    top: int = 0
    turns: int = 0


@attrs.frozen(slots=True)
class Ended:
    """What is to be archived: ``{id: receipt}``, ``{key: keyed}``, ``{number: turn}``."""

    receipts: Mapping[str, Receipt] = attrs.field(factory=dict)
    keys: Mapping[str, Keyed] = attrs.field(factory=dict)
    turns: Mapping[int, EndedTurn] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self.receipts or self.turns)


def number(id: str) -> int:
    """A message's; 0 for an id of another form."""
    tail = id.rpartition(".")[2]
    return int(tail) if tail.isdecimal() else 0


def _name(kind: str, name: object) -> bytes:
    return hashlib.blake2b(f"{kind}{name}".encode("utf-8", "replace"), digest_size=8).digest()


class Archive:
    """One session's, in ``directory``. ``extent`` is replaced as a whole when it has grown."""

    def __init__(self, disk: Disk, directory: Path, extent: Extent) -> None:
        self._disk = disk
        self._directory = directory
        self.extent = extent
        self.lost = False
        self.receipts = _Receipts(self)
        self.keys = _Keys(self)
        self.turns = _Turns(self)
        self._pins: Counter[Name] = Counter()
        self._warm: dict[Name, list[Any] | None] = {}

    def anew(self) -> Archive:
        """An empty one in its place, with the same pins."""
        new = Archive(self._disk, self._directory, Extent())
        new._pins = self._pins
        return new

    # --- looking

    def check(self) -> None:
        """Raises `Lost` unless the whole index is what the checkpoint says."""
        index = self._index()
        if crc32(index) != self.extent.index_crc or self._size(LINES) < self.extent.lines:
            raise self._gone("it is not what it was")

    def find(self, kind: str, name: object) -> list[Any] | None:
        """The newest line for this id (``m``), key (``k``) or turn (``t``)."""
        index, tag = self._index(), _name(kind, name)
        place = 8 if kind == "k" else 0
        at = len(index)
        while (at := index.rfind(tag, 0, at)) >= 0:
            if at % _RECORD.size == place:
                line = self._line(index, at - place)
                if _is(line, kind, name):
                    return line
            at += len(tag) - 1
        return None

    def all(self, kind: str) -> Iterator[list[Any]]:
        """Every line of messages (``m``) or turns (``t``), oldest first; the last of a name counts."""
        index = self._index()
        for at in range(0, len(index), _RECORD.size):
            line = self._line(index, at)
            if line[0] == kind:
                yield line

    def _index(self) -> bytes:
        size = self.extent.index
        index = self._read(INDEX, 0, size)
        if len(index) != size:
            raise self._gone(f"{INDEX} is too short")
        return index

    def _line(self, index: bytes, at: int) -> list[Any]:
        _tag, _key, offset, length, crc = _RECORD.unpack_from(index, at)
        line = self._read(LINES, offset, offset + length)
        if crc32(line) != crc:
            raise self._gone(f"{LINES} is not what it was")
        try:
            kind, *values = orjson.loads(line)
            return [kind, *map(thaw, values)]
        except (ValueError, TypeError) as error:
            raise self._gone(str(error)) from error

    def _read(self, name: str, start: int, end: int) -> bytes:
        if end == start:
            return b""
        try:
            return self._disk.read_bytes(self._directory / name, start, end)
        except OSError as error:
            raise self._gone(f"{name}: {error.strerror}") from error

    def _size(self, name: str) -> int:
        try:
            return self._disk.stat(self._directory / name).size if self.extent.lines else 0
        except OSError as error:
            raise self._gone(f"{name}: {error.strerror}") from error

    def _gone(self, why: str) -> Lost:
        self.lost = True
        return Lost(f"what has ended in session {self._directory.name} is being read again ({why}).")

    # --- looking ahead

    def get(self, kind: str, name: object) -> list[Any] | None:
        """As `find`, but from memory what was recalled."""
        if (kind, name) in self._warm:
            return self._warm[kind, name]
        return self.find(kind, name) if self.may_have(kind, name) else None

    def may_have(self, kind: str, name: object) -> bool:
        extent = self.extent
        if kind == "m":
            return number(str(name)) <= extent.top
        return extent.index > 0 and (kind != "t" or (type(name) is int and name <= extent.turns))

    def pin(self, names: Iterable[Name]) -> None:
        """Until `drop`, what these names mean stays in memory, once it is (`warm`), and also if it is
        archived meanwhile (`adopt`)."""
        self._pins.update(names)

    def look(self, names: Iterable[Name]) -> dict[Name, list[Any] | None]:
        """Find these, and the turns of the messages among them."""
        found = {name: self.find(*name) for name in names if self.may_have(*name)}
        turns = {line[1].turn for line in found.values() if line is not None and line[0] == "m"}
        return found | {("t", turn): self.find("t", turn) for turn in turns if turn is not None}

    def warm(self, found: Mapping[Name, list[Any] | None], extent: Extent) -> None:
        """Answer from memory what was found in ``extent``, if that is still all there is."""
        if extent is self.extent:
            self._warm.update(found)

    def drop(self, names: Iterable[Name]) -> None:
        self._pins.subtract(names)
        self._pins = +self._pins
        self._tidy()

    def _tidy(self) -> None:
        kept = {name: line for name, line in self._warm.items() if name in self._pins}
        turns = {("t", line[1].turn) for line in kept.values() if line is not None and line[0] == "m"}
        self._warm = kept | {name: self._warm[name] for name in turns if name in self._warm}

    def adopt(self, extent: Extent, ended: Ended) -> None:
        """Believe what was written; a checkpoint that names it is on disk."""
        self.extent = extent
        if self._pins:
            self._warm.update(_lines(ended))
            self._tidy()

    # --- growing

    def grown(self, ended: Ended) -> Extent:
        """Write ``ended`` behind what is there; the extent that includes it.

        Durability: on return its bytes are on disk. Nothing believes them before a checkpoint does.
        """
        lines: list[bytes] = []
        index = bytearray()
        offset, old = self.extent.lines, self.extent
        for tag, key, value in _values(ended):
            line = orjson.dumps(value) + b"\n"
            index += _RECORD.pack(tag, key, offset, len(line), crc32(line))
            offset += len(line)
            lines.append(line)
        self._append(LINES, old.lines, b"".join(lines))
        self._append(INDEX, old.index, bytes(index))
        self._disk.sync_dir(self._directory)
        top = max(map(number, ended.receipts), default=0)
        turns = max(ended.turns, default=0)
        return Extent(old.index + len(index), crc32(index, old.index_crc), offset,
                      max(old.top, top), max(old.turns, turns))  # fmt: skip

    def _append(self, name: str, end: int, data: bytes) -> None:
        calls = self._disk.calls
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = calls.open(str(self._directory / name), flags, FILE_MODE)
        try:
            if calls.fstat(descriptor).size < end:
                raise self._gone(f"{name} is too short")
            calls.ftruncate(descriptor, end)
            for _taken in write_all(calls, descriptor, data):
                pass
            calls.fsync(descriptor)
        finally:
            calls.close(descriptor)


def _values(ended: Ended) -> Iterator[tuple[bytes, bytes, list[Any]]]:
    keyed = {keyed.message: (key, keyed) for key, keyed in ended.keys.items()}
    for id, receipt in ended.receipts.items():
        key, known = keyed.get(id, (None, None))
        tag = _NO_KEY if key is None else _name("k", key)
        yield _name("m", id), tag, ["m", freeze(receipt), freeze(known)]
    for turn in ended.turns.values():
        yield _name("t", turn.number), _NO_KEY, ["t", freeze(turn)]


def _lines(ended: Ended) -> dict[Name, list[Any] | None]:
    """As they would be found."""
    keyed = {keyed.message: (key, keyed) for key, keyed in ended.keys.items()}
    lines: dict[Name, list[Any] | None] = {("t", number): ["t", turn] for number, turn in ended.turns.items()}
    for id, receipt in ended.receipts.items():
        key, known = keyed.get(id, (None, None))
        lines["m", id] = ["m", receipt, known]
        if key is not None:
            lines["k", key] = lines["m", id]
    return lines


def _is(line: list[Any], kind: str, name: object) -> bool:
    if line[0] != ("t" if kind == "t" else "m"):
        return False
    if kind == "k":
        return line[2] is not None and bool(line[1].message.key == name)
    return bool((line[1].number if kind == "t" else line[1].message.id) == name)


# --- as the cold layers of a state's tables ----------------------------------------------------------


class _Receipts:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def get(self, id: str) -> Receipt | None:
        line = self._archive.get("m", id)
        return None if line is None else line[1]

    def items(self) -> Iterator[tuple[str, Receipt]]:
        newest = {line[1].message.id: line[1] for line in self._archive.all("m")}
        return iter(newest.items())


class _Keys:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def get(self, key: str) -> Keyed | None:
        line = self._archive.get("k", key)
        return None if line is None else line[2]

    def items(self) -> Iterator[tuple[str, Keyed]]:
        keyed = {line[1].message.key: line[2] for line in self._archive.all("m") if line[2] is not None}
        return iter(keyed.items())


class _Turns:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def get(self, turn: int) -> EndedTurn | None:
        line = self._archive.get("t", turn)
        return None if line is None else line[1]

    def items(self) -> Iterator[tuple[int, EndedTurn]]:
        newest = {line[1].number: line[1] for line in self._archive.all("t")}
        return iter(newest.items())
