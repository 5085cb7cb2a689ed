"""A killed daemon leaves lines and names in the page cache that no sync has reached."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dshd.errors import DshError
from dshd.log import recovery
from dshd.log.codec import Event, encode
from dshd.log.memory import MemoryDisk
from dshd.log.store import Store

KNOWN = frozenset({"session/header", "note"})
HEADER = encode(Event(0, 0, "session/header", {"version": 1, "id": "s"}))
NOTES = [encode(Event(n, 0, "note", {"n": n}, synced=0)) for n in (1, 2)]


def made(disk: MemoryDisk) -> Path:
    store = Store(disk, Path("/state"))
    store.prepare()
    return store.create("s", HEADER)


def test_a_sync_that_fails_at_an_opening_is_not_believed_by_the_next() -> None:
    disk = MemoryDisk()
    path = made(disk)
    killed = disk.open_log(path)
    killed.append(b"".join(NOTES))  # and here the daemon was killed
    disk.fail("fdatasync", errno.EIO, path="log.jsonl")
    with pytest.raises(DshError):
        recovery.open_log(disk, path, KNOWN)
    file, opened = recovery.open_log(disk, path, KNOWN)
    assert file is not None
    assert [e.seq for e in opened.events] == [0, 1, 2]
    assert disk.crash().read_bytes(path) == HEADER + b"".join(NOTES)


def test_the_mark_of_a_killed_daemon_is_made_durable_by_the_next_start() -> None:
    disk = MemoryDisk()
    made(disk)
    store = Store(disk, Path("/state"))
    disk.fail("fsync", errno.EIO, path="active")
    disk.fail("unlink", errno.EIO, path="active/s")
    with pytest.raises(DshError):
        store.mark("s")  # the name is made, and is not durable
    assert store.marked() == ["s"]
    store.sweep()
    assert Store(disk.crash(), Path("/state")).marked() == ["s"]
