"""What the tests of this room share: small logs, and both disks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dshd.log.codec import Event, encode
from dshd.log.disk import Disk
from dshd.log.memory import MemoryDisk
from dshd.log.recovery import Opened, open_log
from dshd.log.vocabulary import HEADER

KNOWN = frozenset({"note"})
STATE = Path("/state")
SESSION = "sabcdefg"
LOG = STATE / "sessions" / SESSION / "log.jsonl"


def header(version: int = 1, **data: Any) -> Event:
    return Event(
        0, 1000, HEADER, {"version": version, "id": SESSION, "name": "api", "dir": "/src/api", **data}
    )


def note(seq: int, text: str = "", synced: int | None = None, **more: Any) -> Event:
    return Event(seq, 1000 + seq, "note", {"text": text or f"number {seq}"}, synced=synced, **more)


def batch(first: int, last: int, text: str = "") -> list[Event]:
    """Notes as one write has them: everything before it was durable."""
    return [note(seq, text, synced=first - 1 if seq == first else None) for seq in range(first, last + 1)]


def lines(*events: Event | Iterable[Event]) -> bytes:
    flat: list[Event] = []
    for item in events:
        flat.extend([item] if isinstance(item, Event) else item)
    return b"".join(map(encode, flat))


def disk_with(data: bytes) -> MemoryDisk:
    """A memory disk whose session's log durably holds these bytes."""
    disk = MemoryDisk()
    disk.create_dir_synced(LOG.parent)
    disk.write_atomic(LOG, data)
    return disk


def opened(data: bytes) -> tuple[MemoryDisk, Opened]:
    """Open a log with these bytes; the file is closed again."""
    disk = disk_with(data)
    return disk, reopened(disk)


def reopened(disk: Disk, path: Path = LOG) -> Opened:
    file, found = open_log(disk, path, KNOWN)
    if file is not None:
        file.close()
    return found


def seqs(found: Opened) -> list[int]:
    return [event.seq for event in found.events]
