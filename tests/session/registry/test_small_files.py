"""The small files of the state: whatever stands in one, a start takes it for empty, keeps it, and says so."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshd.log.memory import MemoryDisk
from dshd.log.sealed import seal
from dshd.log.store import Store
from dshd.session.disk import days
from dshd.session.registry import always, index, numbers, run_keys

READS: dict[str, tuple[Callable[[Store], Any], Any]] = {
    numbers.NAME: (numbers.read, ({}, {})),
    always.NAME: (always.read, ()),
    run_keys.NAME: (lambda store: run_keys.read(store.disk, store.state), {}),
    days.NAME: (lambda store: days.read(store.disk, store.state), {}),
    index.NAME: (lambda store: index.read(store.disk, store.state, store.sessions, set()), ([], {})),
}
HARM: dict[str, list[bytes]] = {
    "empty": [b""],
    "only NULs": [bytes(4096)],
    "begun": [b"{"],
    "no seal": [b"{}"],
    "a text": seal(b'"x"'),
    "rows that are none": seal(b'{"a":5,"next":5}'),
    "keys are missing": seal(b'{"a":{"x":1},"next":{}}'),
    "in a list": seal(b'[{"id":"a1"}]'),
    "a grant of nothing": seal(b'[{"id":"a1","grant":{},"by":null,"at":1}]'),
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("name", READS)
def test_a_file_that_can_not_be_read_is_taken_for_empty_and_told(name: str, harm: str, caplog: Any) -> None:
    disk = MemoryDisk()
    store = Store(disk, Path("/state"))
    store.prepare()
    read, empty = READS[name]
    assert read(store) == empty
    assert not caplog.records
    disk.write_atomic(store.state / name, HARM[harm])
    assert read(store) == empty
    (told,) = caplog.records
    assert told.levelname == "WARNING"
    assert told.getMessage().startswith(f"{name} can't be read, so ")
    (kept,) = [left for left in disk.listdir(store.state) if left.startswith(f"{name}.damaged-")]
    assert disk.peek(store.state / kept) == b"".join(HARM[harm])
    assert told.getMessage().endswith(f"it is kept as {store.state / kept}")
    assert not disk.exists(store.state / name)
    assert read(store) == empty
    assert len(caplog.records) == 1


@pytest.mark.parametrize("name", READS)
def test_one_that_the_disk_can_not_read_is_kept_too_and_two_of_them_are_two(name: str, caplog: Any) -> None:
    disk = MemoryDisk()
    store = Store(disk, Path("/state"))
    store.prepare()
    for n in range(2):
        disk.write_atomic(store.state / name, seal(b'{"a":%d}' % n))
        disk.fail("pread", errno.EIO, path=name)
        assert READS[name][0](store) == READS[name][1]
    kept = [left for left in disk.listdir(store.state) if left.startswith(f"{name}.damaged-")]
    held = {disk.peek(store.state / one).split(b"\n")[1] for one in kept}
    assert held == {b'{"a":0}', b'{"a":1}'}


def test_one_that_can_not_even_be_set_aside_is_told_and_keeps_nothing_from_going_on(caplog: Any) -> None:
    disk = MemoryDisk()
    store = Store(disk, Path("/state"))
    store.prepare()
    disk.write_atomic(store.state / always.NAME, b"")
    disk.fail("rename", errno.EROFS)
    assert always.read(store) == ()
    assert "it could not be set aside: Read-only file system" in caplog.text
