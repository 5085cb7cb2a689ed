"""The small files of the state: whatever stands in one, a start takes it for empty, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshd.log.memory import MemoryDisk
from dshd.log.sealed import seal
from dshd.log.store import Store
from dshd.session.disk import days
from dshd.session.registry import always, numbers, run_keys

READS: dict[str, tuple[Callable[[Store], Any], Any]] = {
    numbers.NAME: (numbers.read, ({}, {})),
    always.NAME: (always.read, ()),
    run_keys.NAME: (lambda store: run_keys.read(store.disk, store.state), {}),
    days.NAME: (lambda store: days.read(store.disk, store.state), {}),
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
    assert told.getMessage().startswith(f"{name} can't be read")
