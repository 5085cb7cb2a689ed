"""The note beside a log whose disk failed: ``log.faulted``.

After the first failed sync the page cache of that inode can't be believed, and a daemon that is
killed and started again in the same boot would read just that. So the writer leaves a note: which
inode, and how far it had been synced. It is written on the very disk that failed, so it may not
come to be; then the cut to the synced end, which the writer also does, is all there is.

The inode keeps a stale note from doing harm: it speaks of one file and of no other. And no log is
continued with a note beside it.
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from dshd.log.disk import Disk

NAME = "log.faulted"


@attrs.frozen(slots=True)
class FaultNote:
    """``size`` bytes of the file ``inode``, events up to ``seq``, were on disk; ``reason`` is a sentence."""

    inode: tuple[int, int]
    size: int
    seq: int
    reason: str


def write(disk: Disk, log: Path, note: FaultNote) -> None:
    """Leave the note beside ``log``. Raises `OSError`: the disk is a bad one."""
    disk.write_atomic(log.with_name(NAME), json.dumps(attrs.asdict(note)).encode())


def read(disk: Disk, log: Path) -> FaultNote | None:
    """The note that speaks of the file that is at ``log`` now; None if there is none."""
    try:
        note = _parse(disk.read_bytes(log.with_name(NAME)))
        return note if note and note.inode == disk.stat(log).inode else None
    except FileNotFoundError:
        return None


def _parse(data: bytes) -> FaultNote | None:
    try:
        fields = json.loads(data)
        device, inode = fields["inode"]
        return FaultNote((device, inode), int(fields["size"]), int(fields["seq"]), str(fields["reason"]))
    except (ValueError, KeyError, TypeError):
        return None


def forget(disk: Disk, log: Path) -> None:
    """Durability: on return the note is gone for good, so what is appended now is safe from it."""
    disk.unlink_synced(log.with_name(NAME))


def drop_stale(disk: Disk, log: Path) -> None:
    """Take away a note that speaks of another file: its inode's number may be given out again.

    Not durable by itself: as long as it is stale it does no harm.
    """
    disk.unlink(log.with_name(NAME))
