"""The memory disk lies only where a real one may."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from dshd.log.memory import BLOCK, Everything, MemoryDisk, Nothing, Prefix, Seeded

F = Path("/d/f")


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.create_dir_synced(F.parent)
    disk.write_atomic(F, b"old.")
    return disk


def test_bytes_survive_a_power_cut_only_when_their_file_was_synced(disk: MemoryDisk) -> None:
    file = disk.open_log(F)
    file.append(b"new.")
    assert disk.peek(F) == b"old.new."
    assert disk.crash().peek(F) == b"old."
    assert disk.crash(Everything()).peek(F) == b"old.new."
    assert disk.crash(Prefix(2)).peek(F) == b"old.ne"
    file.sync()
    assert disk.crash().peek(F) == b"old.new."


def test_names_survive_a_power_cut_only_when_their_directory_was_synced(disk: MemoryDisk) -> None:
    disk.calls.rename(str(F), "/d/g")
    disk.write_synced(Path("/d/h"), b"content")
    assert disk.listdir(F.parent) == ["g", "h"]
    assert disk.crash().listdir(F.parent) == ["f"]
    assert disk.crash(Everything()).listdir(F.parent) == ["g", "h"]
    disk.sync_dir(F.parent)
    assert disk.crash().listdir(F.parent) == ["g", "h"]


def test_a_file_renamed_before_it_was_synced_may_come_out_empty(disk: MemoryDisk) -> None:
    disk.open_log(Path("/d/new"), create=True).append(b"content")
    disk.rename_synced(Path("/d/new"), F)
    assert disk.crash().peek(F) == b""


def test_a_directory_whose_parent_was_not_synced_is_gone_with_all_in_it(disk: MemoryDisk) -> None:
    disk.calls.mkdir("/d/sub", 0o700)
    disk.write_atomic(Path("/d/sub/f"), b"content")
    assert disk.crash().listdir(F.parent) == ["f"]


def test_a_cut_that_was_not_synced_may_come_undone(disk: MemoryDisk) -> None:
    file = disk.open_log(F)
    file.truncate(1)
    assert disk.crash().peek(F) == b"old."
    file.append(b"X")
    assert disk.crash().peek(F) == b"old."
    file.sync()
    assert disk.crash().peek(F) == b"oX"


def test_a_failed_sync_loses_the_bytes_and_the_next_one_succeeds(disk: MemoryDisk) -> None:
    file = disk.open_log(F)
    file.append(b"lost")
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.append(b"kept")
    file.sync()
    assert disk.peek(F) == b"old.lostkept"
    assert disk.crash().peek(F) == b"old.\0\0\0\0kept"
    assert disk.crash(Everything()).peek(F) == b"old.\0\0\0\0kept"


def test_a_crash_leaves_the_old_disk_as_it_is(disk: MemoryDisk) -> None:
    disk.open_log(F).append(b"new.")
    after = disk.crash()
    after.poke(F, b"other")
    assert disk.peek(F) == b"old.new."


def test_seeded_crashes_leave_old_bytes_prefixes_and_holes_and_nothing_else(disk: MemoryDisk) -> None:
    big = bytes(range(1, 256)) * 100
    disk.open_log(F).append(big)
    whole = b"old." + big
    kinds = set()
    for seed in range(60):
        left = disk.crash(Seeded(Random(seed))).peek(F)
        assert left[:4] == b"old."
        assert len(left) <= len(whole)
        for start in range(0, len(left), BLOCK):
            block = left[start : start + BLOCK].removeprefix(b"old.")
            kinds.add("zeros" if not any(block) else "bytes")
            assert not any(block) or whole[start:].removeprefix(b"old.").startswith(block)
        kinds.add("cut" if len(left) < len(whole) else "whole")
        assert disk.crash(Seeded(Random(seed))).peek(F) == left
    assert kinds == {"zeros", "bytes", "cut", "whole"}


def test_two_names_of_one_file_stay_one_file_after_a_crash(disk: MemoryDisk) -> None:
    disk.keep_synced(F, "kept")
    after = disk.crash(Nothing())
    assert after.stat(F) == after.stat(F.with_name("kept"))
    assert after.stat(F).links == 2


def test_a_limit_lets_what_fits_in_and_then_says_that_the_disk_is_full(disk: MemoryDisk) -> None:
    file = disk.open_log(F)
    disk.limit(free=6)
    file.append(b"123")
    with pytest.raises(OSError, match="No space"):
        file.append(b"456789")
    assert disk.peek(F) == b"old.123456"
    file.truncate(4)
    file.append(b"123456")
    with pytest.raises(OSError, match="No space"):
        file.append(b"7")
    disk.limit()
    file.append(b"7")


def test_room_of_a_file_that_is_open_comes_back_only_when_it_is_closed(disk: MemoryDisk) -> None:
    file = disk.open_log(F)
    disk.unlink(F)
    assert disk.used == 4
    file.close()
    assert disk.used == 0


def test_faults_strike_the_named_call_path_and_turn(disk: MemoryDisk) -> None:
    disk.fail("write", errno.EIO, path="/f", skip=1, times=2)
    file, other = disk.open_log(F), disk.open_log(Path("/d/other"), create=True)
    outcomes = []
    for target in (other, file, other, file, other, file, file):
        try:
            target.append(b"x")
            outcomes.append("ok")
        except OSError:
            outcomes.append("EIO")
    assert outcomes == ["ok", "ok", "ok", "EIO", "ok", "EIO", "ok"]


def test_calls_are_counted_and_traced_and_a_hook_may_stop_them(disk: MemoryDisk) -> None:
    before = disk.counts["write"]
    trace = disk.trace()
    disk.write_atomic(F, b"new")
    assert disk.counts["write"] == before + 1
    assert ("rename", "/d/.f.tmp") in trace

    def power_cut(call: str, _path: str) -> None:
        if call == "rename":
            raise KeyboardInterrupt

    disk.before(power_cut)
    with pytest.raises(KeyboardInterrupt):
        disk.write_atomic(F, b"newer")
    assert disk.crash().peek(F) == b"new"


def test_after_a_power_cut_a_rename_has_happened_or_has_not() -> None:
    disk = MemoryDisk()
    disk.create_dir_synced(Path("/d/new"))
    disk.write_synced(Path("/d/new/file"), b"x")
    disk.sync_dir(Path("/d/new"))
    disk.calls.rename("/d/new", "/d/final")
    seen = {tuple(disk.crash(Seeded(Random(seed))).listdir(Path("/d"))) for seed in range(30)}
    assert seen == {("new",), ("final",)}
