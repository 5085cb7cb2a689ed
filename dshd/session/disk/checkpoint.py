"""A checkpoint: a session's state at one seq, beside its log, so that opening reads only what came after.

Rules:

- **Derived.** ``checkpoint.json``, ``ended.jsonl`` and ``ended.index`` can be deleted at any time, or be
  copied, cut, or of another version: they are ignored unless they match, and made again.
- **Only what is durable.** A checkpoint covers events that were synced when its state was looked at; so
  no fault and no power cut can take from the log what a checkpoint speaks of; where somebody did, it tells
  (`log.witness`). It is written to a
  temporary file, synced, renamed; the archive that it names (`archive`) is synced before.
- **Nothing is driven unread.** A checkpoint holds the CRC-32 of all the log's bytes before its place,
  and every opening reads them and compares. That costs a second for some gigabytes, a tenth of what
  folding them costs, and it finds damage in the old part as surely as reading line by line does: then
  the checkpoint is ignored and `log.recovery` says where the damage is.
- **One version.** It names the fold by a hash of its source (`freeze.fingerprint`). Another fold makes
  its own.

What is in it: the state without what has ended (that is in the archive) and without the text of the
surface: of that only where each line stands (`Places`). Who needs the text reads those lines.
All of this blocks.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import attrs
import orjson

from dshd.errors import Damaged
from dshd.log import witness
from dshd.log.codec import BadLine, decode
from dshd.log.disk import Disk
from dshd.log.reader import read_lines
from dshd.log.recovery import Start
from dshd.log.sealed import seal, unseal
from dshd.log.vocabulary import after
from dshd.session.disk import freeze
from dshd.session.disk.archive import Archive, Ended, Extent, Lost
from dshd.session.fold.layer import Rows, Table
from dshd.session.fold.state import State
from dshd.session.fold.surface import Entry

NAME: Final = "checkpoint.json"
_SEQ: Final = b'{"seq":'
_LAST: Final = 64 * 1024  # bytes in which the last line is looked for
_SURFACE: Final = b',"surface":'


class Unfit(ValueError):
    """There is no checkpoint here, or none that may be believed; the text says why."""


@attrs.frozen(slots=True)
class Mark:
    """A place in a log, behind a line: ``seq`` is covered, ``offset`` bytes and ``lines`` lines stand
    before it, ``prefix`` is the CRC-32 of those bytes."""

    seq: int = -1
    offset: int = 0
    lines: int = 0
    prefix: int = 0


class Places:
    """Where the surface's lines stand in the log; reads one where it is asked for."""

    def __init__(self, disk: Disk, log: Path, seqs: array[int] | None = None,
                 offsets: array[int] | None = None, sizes: array[int] | None = None) -> None:  # fmt: skip
        self._disk = disk
        self._log = log
        self.seqs = seqs if seqs is not None else array("Q")
        self.offsets = offsets if offsets is not None else array("Q")
        self.sizes = sizes if sizes is not None else array("I")

    def __len__(self) -> int:
        return len(self.seqs)

    def __getitem__(self, index: int) -> Entry:
        return next(self._entries(index, index + 1))

    def load(self) -> list[Entry]:
        """All of them."""
        return list(self._entries(0, len(self)))

    def _entries(self, first: int, end: int) -> Iterator[Entry]:
        with self._disk.open_read(self._log) as file:
            for i in range(first, end):
                yield self._entry(file.read(self.offsets[i], self.sizes[i]), self.seqs[i])

    def _entry(self, line: bytes, seq: int) -> Entry:
        try:
            event = decode(line)
        except BadLine as bad:
            raise Damaged(f"{self._log} is damaged at seq {seq}: {bad.reason}.",
                          hint=f"dshctl fsck {self._log.parent.name}") from bad  # fmt: skip
        return Entry(event.seq, event.type, event.data)

    def of(self, seqs: list[int], more: Mapping[int, tuple[int, int]]) -> Places:
        """The places of these lines, which are here or in ``more`` (``{seq: (offset, size)}``)."""
        known = {**dict(zip(self.seqs, zip(self.offsets, self.sizes, strict=True), strict=True)), **more}
        if not known.keys() >= set(seqs):
            raise Unfit("the surface holds lines that the log doesn't have")
        found = [known[seq] for seq in seqs]
        return Places(self._disk, self._log, array("Q", seqs), array("Q", [offset for offset, _ in found]),
                      array("I", [size for _, size in found]))  # fmt: skip

    def to_json(self) -> list[str]:
        return [base64.b64encode(part.tobytes()).decode() for part in (self.seqs, self.offsets, self.sizes)]

    def read(self, data: list[str]) -> Places:
        """What `to_json` made, for the same log. Raises ``ValueError``."""
        parts = array("Q"), array("Q"), array("I")
        for part, text in zip(parts, data, strict=True):
            part.frombytes(base64.b64decode(text, validate=True))
        if len({len(part) for part in parts}) != 1:
            raise ValueError("places of different lengths")
        return Places(self._disk, self._log, *parts)


@attrs.define
class Kept:
    """What is on disk of a session besides its log: up to where, and where things are."""

    disk: Disk
    log: Path
    archive: Archive
    places: Places
    mark: Mark = Mark()

    @classmethod
    def nothing(cls, disk: Disk, log: Path) -> Kept:
        return cls(disk, log, Archive(disk, log.parent, Extent()), Places(disk, log))

    @property
    def start(self) -> Start | None:
        """Where reading the log begins."""
        mark = self.mark
        return Start(mark.seq, mark.offset, mark.lines) if mark.offset else None


# --- reading -------------------------------------------------------------------------------------


def restore(disk: Disk, log: Path, *, unread: bool = False) -> tuple[State, Kept]:
    """The state at the checkpoint beside ``log``. Raises `Unfit`, whatever is wrong with it. ``unread``: of
    the log before it only the last line is read; for those who decide nothing on it."""
    try:
        found = _parse(_read(disk, log.with_name(NAME)))
        mark = Mark(**found["mark"])
        if not (unread and _ends_there(disk, log, mark)):
            _check_log(disk, log, mark)
        archive = Archive(disk, log.parent, Extent(**found["extent"]))
        archive.check()
        places = Places(disk, log).read(found["places"])
        state = freeze.thaw(found["state"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, Lost) as error:
        raise Unfit(str(error)) from error
    if not isinstance(state, State) or state.seq != mark.seq:
        raise Unfit("it holds another state than it says")
    kept = Kept(disk, log, archive, places, mark)
    chill(state, Ended(), kept)
    state.surface = Rows(cold=places)
    return state, kept


def peek(disk: Disk, log: Path) -> State:
    """The state in the checkpoint, whether the log is what it speaks of or not, without what lies elsewhere.
    Raises `Unfit`."""
    try:
        state = freeze.thaw(_parse(_read(disk, log.with_name(NAME)))["state"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unfit(str(error)) from error
    if not isinstance(state, State):
        raise Unfit("it holds no state")
    return state


def _read(disk: Disk, path: Path) -> bytes:
    try:
        return disk.read_bytes(path)
    except FileNotFoundError:
        raise Unfit("there is none") from None


def _parse(data: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = orjson.loads(unseal(data))
    except ValueError as error:
        raise Unfit(str(error)) from None
    if found["fold"] != freeze.fingerprint():
        raise Unfit("it is of another version")
    return found


def _check_log(disk: Disk, log: Path, mark: Mark) -> None:
    """Whether the log begins with the very bytes that the checkpoint speaks of."""
    if disk.stat(log).size < mark.offset:
        raise Unfit("the log is shorter")
    crc = 0
    for piece in disk.pieces(log, 0, mark.offset):
        crc = crc32(piece, crc)
    if crc != mark.prefix:
        raise Unfit("the log is another one")


def _ends_there(disk: Disk, log: Path, mark: Mark) -> bool:
    """Whether the line with which the checkpoint ends stands there. (One that is too long is none.)"""
    before = disk.read_bytes(log, max(0, mark.offset - _LAST), mark.offset)
    try:
        return after(decode(before[before.rfind(b"\n", 0, -1) + 1 :])) - 1 == mark.seq
    except BadLine:
        return False


def chill(state: State, gone: Ended, kept: Kept) -> None:
    """What has ended is read from the archive from now on; ``gone`` is let go of."""
    archive = kept.archive
    state.receipts.chill(gone.receipts, archive.receipts)
    state.keys.chill(gone.keys, archive.keys)
    state.turns.chill(gone.turns, archive.turns)


# --- writing -------------------------------------------------------------------------------------


@attrs.frozen
class Snapshot:
    """A state at an instant when all of it was durable, ``offset`` bytes of log; ``surface`` are seqs."""

    state: State
    offset: int
    surface: list[int]

    @classmethod
    def of(cls, state: State, offset: int) -> Snapshot:
        """Quick: whoever calls this holds everybody up. Values of a state never change, so only the
        tables are copied."""
        values = {field.name: getattr(state, field.name) for field in attrs.fields(State)}
        copies: dict[str, Any] = {k: v.copy() for k, v in values.items() if isinstance(v, Table)}
        cold = state.surface.cold
        seqs = list(cold.seqs) if isinstance(cold, Places) else []
        seqs.extend(entry.seq for entry in state.surface.hot())
        return cls(attrs.evolve(state, **copies, surface=Rows()), offset, seqs)


@attrs.frozen
class Written:
    """A checkpoint that is on disk, and what of the state it has moved to the archive."""

    mark: Mark
    extent: Extent
    places: Places
    ended: Ended


def write(kept: Kept, snapshot: Snapshot) -> Written:
    """Put a checkpoint on disk. Raises `OSError`, `Lost`, `Unfit` (the log doesn't say what we hold)
    and `freeze.Unfreezable`; the one that was there stays.

    Durability: on return it and its archive are on disk; after a crash it is the old or the new one.
    """
    disk, log, state = kept.disk, kept.log, snapshot.state
    mark, more = _survey(disk, log, kept.mark, snapshot)
    places = kept.places.of(snapshot.surface, more)
    ended = take_ended(state)
    extent = kept.archive.grown(ended) if ended else kept.archive.extent
    body = orjson.dumps({
        **witness.testimony(disk, log, mark.seq),
        "fold": freeze.fingerprint(),
        "mark": attrs.asdict(mark),
        "extent": attrs.asdict(extent),
        "places": places.to_json(),
        "state": freeze.freeze(state),
    })  # fmt: skip
    disk.write_atomic(log.with_name(NAME), seal(body))
    return Written(mark, extent, places, ended)


def _survey(disk: Disk, log: Path, mark: Mark, snapshot: Snapshot
            ) -> tuple[Mark, dict[int, tuple[int, int]]]:  # fmt: skip
    """The mark at the snapshot, and where the surface's lines stand that came since ``mark``."""
    places: dict[int, tuple[int, int]] = {}
    count, prefix, last = mark.lines, mark.prefix, b""
    for offset, line in read_lines(disk, log, start=mark.offset, end=snapshot.offset):
        count, prefix, last = count + 1, crc32(line, prefix), line
        if line.rfind(_SURFACE) >= 0:  # a few others may have it in their data; they are not asked for
            places[_seq(line)] = offset, len(line)
    if last and after(_decoded(last)) - 1 != snapshot.state.seq:
        raise Unfit(f"the log doesn't end with seq {snapshot.state.seq} at byte {snapshot.offset}")
    return Mark(snapshot.state.seq, snapshot.offset, count, prefix), places


def _seq(line: bytes) -> int:
    end = line.find(b",", len(_SEQ))
    try:
        return int(line[len(_SEQ) : end])
    except ValueError:
        raise Unfit("the log has a bad line") from None


def _decoded(line: bytes) -> Any:
    try:
        return decode(line)
    except BadLine as bad:
        raise Unfit(f"the log has a bad line: {bad.reason}") from bad


# --- what has ended ------------------------------------------------------------------------------


def take_ended(state: State) -> Ended:
    """Take out of a copied ``state`` what nothing that happens by itself can need again.

    Not the newest turn and its messages (`retry`), nor what an undo brings back. Whatever else is
    asked for is read from the archive.
    """
    live = _live(state)
    receipts = {id: r for id, r in state.receipts.hot().items() if r.ended and id not in live}
    keys = {key: k for key, k in state.keys.hot().items()
            if k.message in receipts and receipts[k.message].message.key == key}  # fmt: skip
    retried = state.turn.retry_of if state.turn else None
    turns = {n: t for n, t in state.turns.hot().items() if n not in (state.last_turn, retried, state.resume)}
    state.receipts.chill(receipts, None)
    state.keys.chill(keys, None)
    state.turns.chill(turns, None)
    return Ended(receipts, keys, turns)


def _live(state: State) -> set[str]:
    last = state.turns.hot().get(state.last_turn)
    live = set(last.members if last else ())
    live.update(id for removal in state.removals for id in removal.ids)
    if state.turn is not None:
        live.update(state.turn.members)
        live.update(m.id for _, m in state.turn.claimed)
    return live
