"""A log that was cut where a line ends: what lies beside it tells that there was more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import orjson
import pytest

from dshd.log import fault, witness
from dshd.log.disk import RealDisk
from dshd.log.memory import MemoryDisk
from dshd.log.recovery import open_log, read_log, repair
from dshd.log.sealed import seal
from tests.log.kit import KNOWN, LOG, batch, disk_with, header, lines

NOW = 1796040000000
DATA = lines(header(), batch(1, 4), batch(5, 8))
CUT = DATA[: DATA.index(b'{"seq":5')]


def told(disk: MemoryDisk, seq: int, name: str = "view.json") -> None:
    body = orjson.dumps({**witness.testimony(disk, LOG, seq), "more": 1})
    disk.write_atomic(LOG.with_name(name), seal(body))


def cut(seq: int = 8, name: str = "view.json", data: bytes = CUT) -> MemoryDisk:
    disk = disk_with(data)
    told(disk, seq, name)
    return disk


@pytest.mark.parametrize("name", witness.FILES)
def test_a_log_that_ends_before_what_was_durable_once_is_damaged_and_not_driven(name: str) -> None:
    disk = cut(name=name)
    file, found = open_log(disk, LOG, KNOWN)
    assert file is None
    assert found.damage is not None
    assert (found.damage.first_seq, found.damage.last_seq) == (5, 8)
    assert "line 6: the events 5 to 8 are missing" in found.damage.sentence()
    assert read_log(disk, LOG, KNOWN).damage == found.damage
    assert [event.seq for event in found.events] == [0, 1, 2, 3, 4, 5]  # a gap stands for them


def test_a_line_cut_in_the_middle_is_no_torn_tail_if_it_was_durable_once() -> None:
    disk = cut(data=DATA[: len(CUT) + 20])
    assert open_log(disk, LOG, KNOWN)[1].damage is not None
    assert disk.listdir(LOG.parent) == ["log.jsonl", "view.json"]


@pytest.mark.parametrize("seq", [-1, 3, 4])
def test_what_is_not_behind_the_log_tells_nothing(seq: int) -> None:
    file, found = open_log(cut(seq), LOG, KNOWN)
    assert file is not None
    assert found.next_seq == 5


@pytest.mark.parametrize("harm", ["gone", "cut", "a changed byte", "zeros", "another object"])
def test_a_file_that_is_gone_or_wrong_tells_nothing(harm: str) -> None:
    disk = cut()
    path = LOG.with_name("view.json")
    data = disk.peek(path)
    if harm == "gone":
        disk.unlink(path)
    else:
        wrong = {
            "cut": data[:-1],
            "a changed byte": data.replace(b'"seq":8', b'"seq":9'),
            "zeros": bytes(len(data)),
            "another object": b"".join(seal(b'{"more":1}')),
        }
        disk.poke(path, wrong[harm])
    assert open_log(disk, LOG, KNOWN)[1].damage is None


def test_a_repair_gives_no_seq_that_may_have_been_given() -> None:
    disk = cut()
    report = repair(disk, LOG, now=NOW)
    assert [(region.first_seq, region.last_seq) for region in report.regions] == [(5, 8)]
    file, found = open_log(disk, LOG, KNOWN)
    assert file is not None
    assert found.next_seq > 8 + witness.SPARE
    told(disk, found.next_seq - 1)
    assert open_log(disk, LOG, KNOWN)[1].damage is None


def test_what_lies_in_the_middle_is_known_exactly() -> None:
    middle = DATA[: DATA.index(b'{"seq":3')] + DATA[DATA.index(b'{"seq":5') :]
    disk = cut(data=middle)
    repair(disk, LOG, now=NOW)
    found = open_log(disk, LOG, KNOWN)[1]
    assert [event.seq for event in found.events] == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_a_faults_note_that_knows_more_counts() -> None:
    disk = cut(6)
    fault.write(disk, LOG, fault.FaultNote(disk.stat(LOG).inode, len(DATA), 8, "cut"))
    repair(disk, LOG, now=NOW)
    assert open_log(disk, LOG, KNOWN)[1].next_seq == 10


def test_a_copy_whose_log_was_read_before_the_rest_opens(tmp_path: Path) -> None:
    """It is another directory; in the one it was made of, the same is damage."""
    disk, log = RealDisk(), tmp_path / "session" / "log.jsonl"
    log.parent.mkdir()
    log.write_bytes(DATA)
    body = orjson.dumps({**witness.testimony(disk, log, 8), "more": 1})
    disk.write_atomic(log.with_name("view.json"), seal(body))
    shutil.copytree(log.parent, tmp_path / "copy")
    for path in (log, tmp_path / "copy" / "log.jsonl"):
        os.truncate(path, len(CUT))
    assert read_log(disk, log, KNOWN).damage is not None
    file, found = open_log(disk, tmp_path / "copy" / "log.jsonl", KNOWN)
    assert file is not None
    file.close()
    assert found.next_seq == 5
