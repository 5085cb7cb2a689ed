"""Making a damaged log whole again (SPEC §4.1, step 2).

A new file is written beside the old one. It holds every good line, byte for byte; where seqs are
missing one ``log/gap {first, last, file}`` line, whose seq is ``first`` and after which ``last`` + 1
follows: the one jump that readers accept; and at its end ``log/repaired``, which lists the regions.
Behind an end that is missing, of which only a `witness` tells, and not how far it went, ``last`` is
`witness.SPARE` more. Bytes too many (a second writer's lines, garbage between two lines that follow each
other) leave no gap. A tail that was never acknowledged is left out, as at any opening. The old file keeps
its bytes under the name ``log.damaged-<seq>``, which is what ``file`` says.

A header that is bad can't be a gap: nothing could be said of the session. It is written anew, from
what its bytes still tell and else from the most careful values (`salvage`).

Nothing here decides about turns or messages: closing what is open at a gap and holding what was
pending before it is the session's business, at the next opening.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import attrs

from dshd.errors import Internal, Invalid, Unsupported
from dshd.log import fault, witness
from dshd.log.codec import Event, encode, lossless
from dshd.log.disk import PIECE, Disk, new_name
from dshd.log.reader import read_header, scan, survey
from dshd.log.survey import Damage, Region
from dshd.log.there import told
from dshd.log.vocabulary import FORMAT_VERSION, HEADER, REPAIRED, after, gap_event, why_unsupported

# (bytes of the bad header, session id, Unix ms) -> the data of a new one
MakeHeader = Callable[[bytes, str, int], dict[str, Any]]

T = TypeVar("T")

_MODES = ("read-only", "workspace", "full")


@attrs.frozen(slots=True)
class RepairReport:
    """What was done: nothing, if ``regions`` is empty.

    ``file`` is the name that the old bytes have now; ``next_seq`` and ``size`` (bytes) are those of
    the new log; ``header``: whether its header had to be written anew.
    """

    regions: tuple[Damage, ...] = ()
    file: str | None = None
    next_seq: int | None = None
    size: int | None = None
    header: bool = False


def salvage(raw: bytes, session: str, now: int) -> dict[str, Any]:
    """The data of a new header from the bytes of the bad one: what still reads like a value is kept.

    What doesn't is as narrow as possible: read-only, in ``/``.
    """
    careful = {"name": session, "created": now, "dir": "/", "model": None, "mode": "read-only"}
    origin = {"parent": None, "seed": None, "origin": "repaired", "depth": 0}
    data = {**careful, **origin, **readable(raw), "version": FORMAT_VERSION, "id": session}
    if data["mode"] not in _MODES:
        data["mode"] = "read-only"
    return data


def readable(raw: bytes) -> dict[str, Any]:
    """What the bytes of a bad header still tell for sure."""
    try:
        data = json.loads(raw.decode("utf-8", "replace"), strict=False)["data"]
        return {key: lossless(value) for key, value in data.items() if _is_clean([key, value])}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Invalid):
        return {}


def _is_clean(value: Any) -> bool:
    """No string in it holds what a damaged byte turns into: a control character or U+FFFD."""
    text = json.dumps(value, ensure_ascii=False)
    return "\\u00" not in text and "\ufffd" not in text


def repair(
    disk: Disk, path: Path, *, now: int | None = None, make_header: MakeHeader = salvage
) -> RepairReport:
    """Put a whole log in the place of the damaged one at ``path``; does nothing to any other.

    Only the owner of the state directory may call it, with the log not open. ``now`` is Unix ms.
    Raises `Unsupported` for a format that this version doesn't know, `NoSpace` and the like with
    the old log in place.

    Durability: on return the new log is on disk. A crash leaves either log, and the old bytes.
    """
    with told("repair", path, disk):
        _replace_link(disk, path)
        noted, witnessed = _noted(disk, path), witness.told(disk, path)
        durable, spare = max(noted, witnessed), witness.SPARE if witnessed > noted else 0
        found = survey(disk, path, durable=durable)
        if not found.damage:
            return RepairReport()
        _refuse_unknown_format(disk, path)
        kept = disk.keep_synced(path, f"log.damaged-{found.damage[0].first}")
        end = found.torn.start if found.torn else None
        at = time.time_ns() // 1_000_000 if now is None else now
        build = _Build(disk, path, kept, at, make_header, spare)
        size = _put(disk, path, build.lines(scan(disk, path, end=end, durable=durable)))
        fault.forget(disk, path)
        return RepairReport(tuple(build.regions), kept, build.next, size, build.header)


def durable_once(disk: Disk, path: Path) -> int:
    """Up to which seq the log was on disk, as far as what lies beside it tells; -1 for nothing."""
    return max(_noted(disk, path), witness.told(disk, path))


def _noted(disk: Disk, path: Path) -> int:
    note = fault.read(disk, path)
    return note.seq if note else -1


def _replace_link(disk: Disk, path: Path) -> None:
    """A log is a file: what a link of its name leads to is copied to where the link stood."""
    if not disk.stat(path).is_link:
        return
    new = new_name(path)
    disk.write_synced(new, disk.pieces(path))
    disk.rename_synced(new, path)


def _refuse_unknown_format(disk: Disk, path: Path) -> None:
    header = read_header(disk, path)
    why = header and why_unsupported(header, frozenset())
    if why:
        raise Unsupported(f"{path} can't be repaired: {why}.")


def _put(disk: Disk, path: Path, lines: Iterable[bytes]) -> int:
    new = new_name(path)
    size = disk.write_synced(new, joined(lines))
    wrong = survey(disk, new).regions
    if wrong:
        raise Internal(f"the repaired log is wrong: {Damage.of(wrong[0]).sentence(new.name)}")
    disk.rename_synced(new, path)
    return size


def joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about 1 MiB, for fewer writes."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


class _Build:
    """The lines of the new log; afterwards ``regions``, ``next`` (seq) and ``header`` tell of it."""

    def __init__(self, disk: Disk, path: Path, kept: str, now: int, make_header: MakeHeader,
                 spare: int = 0) -> None:  # fmt: skip
        self._disk = disk
        self._path = path
        self._kept = kept
        self._now = now
        self._make_header = make_header
        self._spare = spare
        self.regions: list[Damage] = []
        self.next = 0
        self.header = False

    def lines(self, items: Iterable[tuple[int, Event, bytes] | Region]) -> Iterator[bytes]:
        for item, is_last in _with_last(items):
            if isinstance(item, Region):
                self.regions.append(Damage.of(item))
                yield from map(self._encode, self._stand_ins(item, is_last))
            else:
                self.next = after(item[1])
                yield item[2]
        yield self._encode(self._repaired())

    def _encode(self, event: Event) -> bytes:
        self.next = after(event)
        return encode(event)

    def _stand_ins(self, region: Region, is_last: bool) -> Iterator[Event]:
        if region.first == 0 and region.last != -1:  # not just bytes too many before a good header
            self.header = True
            yield Event(0, self._now, HEADER, self._new_header(region))
        first = max(region.first, 1)
        if region.last is not None and region.last >= first:
            last = region.last + (self._spare if is_last else 0)  # that many at least, maybe more
            yield gap_event(first, last, self._now, self._kept)

    def _new_header(self, region: Region) -> dict[str, Any]:
        raw = self._disk.read_bytes(self._path, region.start, min(region.end, region.start + PIECE))
        return self._make_header(raw.split(b"\n")[0], self._path.parent.name, self._now)

    def _repaired(self) -> Event:
        data = {"file": self._kept, "regions": [attrs.asdict(region) for region in self.regions]}
        return Event(self.next, self._now, REPAIRED, data, synced=self.next - 1)


def _with_last(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Each, and whether no other follows."""
    rest = iter(items)
    for item in rest:
        for following in rest:
            yield item, False
            item = following
        yield item, True
