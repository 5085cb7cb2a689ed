"""Output stays bounded in memory and whole on disk."""

from __future__ import annotations

import errno
import os
import resource
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dshd.spawn import output
from dshd.spawn.output import Output
from tests.amount import LONG
from tests.spawn.helpers import Tree, below

SIZE = (1 << 30) if LONG else 200_000_000


@given(st.lists(st.binary(max_size=30)), st.integers(0, 20), st.integers(0, 20))
def test_head_and_tail_are_the_first_and_last_bytes(pieces: list[bytes], head: int, tail: int) -> None:
    bounded = Output(head, tail)
    for piece in pieces:
        bounded.feed(piece)
    whole = b"".join(pieces)
    rest = whole[head:]
    assert bounded.total == len(whole)
    assert bounded.head == whole[:head]
    assert bounded.tail == (rest[-tail:] if tail else b"")


@given(st.lists(st.binary(min_size=1, max_size=30)))
def test_the_file_holds_everything_and_exists_only_if_needed(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("spill") / "out"
    bounded = Output(10, 20, str(path))
    for piece in pieces:
        bounded.feed(piece)
    bounded.close()
    whole = b"".join(pieces)
    if len(whole) <= 30:
        assert not path.exists()
        assert bounded.spill is None
        assert bounded.head + bounded.tail == whole
    else:
        assert path.read_bytes() == whole
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_disk_stops_the_file_but_not_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    bounded = Output(10, 10, str(tmp_path / "out"))
    bounded.feed(b"x" * 30)
    monkeypatch.setattr(os, "write", full)
    bounded.feed(b"y" * 30)
    assert bounded.spill is not None
    assert (bounded.spill.written, bounded.spill.error) == (30, "No space left on device")
    assert (bounded.total, bounded.tail) == (60, b"y" * 10)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    bounded = Output(1, 1, str(tmp_path / "out"))
    bounded.feed(b"0123456789" * 10)
    bounded.close()
    assert (tmp_path / "out").read_bytes() == b"0123456789" * 10


def leave_free(monkeypatch: pytest.MonkeyPatch, *bytes_free: int) -> list[int]:
    """Have a disk say that so much is free, one answer after the other; a look takes them off the list."""
    answers = list(bytes_free)

    def look(where: object) -> SimpleNamespace:
        return SimpleNamespace(f_frsize=1, f_bavail=answers.pop(0))

    for name in ("statvfs", "fstatvfs"):
        monkeypatch.setattr(os, name, look)
    return answers


def test_the_file_ends_where_the_disk_would_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "CHECK_EVERY", 10)
    left = leave_free(monkeypatch, output.SPARE, output.SPARE, output.SPARE - 1)
    bounded = Output(1, 1, str(tmp_path / "out"))
    for _ in range(3):
        bounded.feed(b"0123456789" * 3)
    bounded.close()
    assert bounded.spill is not None
    assert (bounded.spill.written, bounded.spill.error) == (20, "the disk has 255 MiB left")
    assert ((tmp_path / "out").read_bytes(), left) == (b"0123456789" * 2, [])
    assert (bounded.head, bounded.tail, bounded.total) == (b"0", b"9", 90)


def test_on_a_disk_that_is_nearly_full_no_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_free(monkeypatch, 3 << 20)
    bounded = Output(1, 1, str(tmp_path / "out"))
    bounded.feed(b"0123456789")
    bounded.close()
    assert bounded.spill is not None
    assert (bounded.spill.written, bounded.spill.error) == (0, "the disk has 3 MiB left")
    assert not (tmp_path / "out").exists()
    assert (bounded.head, bounded.tail) == (b"0", b"9")


def test_the_file_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "CHECK_EVERY", 10)
    monkeypatch.setattr(output, "SPILL_LIMIT", 150)
    bounded = Output(1, 1, str(tmp_path / "out"))
    for _ in range(4):
        bounded.feed(b"x" * 100)
    assert bounded.spill is not None
    assert bounded.spill.written == 150
    assert bounded.spill.error


def test_an_existing_file_or_link_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    for name in ("victim", "link"):
        bounded = Output(1, 1, str(tmp_path / name))
        bounded.feed(b"x" * 10)
        assert bounded.spill is not None
        assert bounded.spill.written == 0
    assert (tmp_path / "victim").read_text() == "precious"


async def test_much_output_costs_little_memory_and_is_all_in_the_file(tree: Tree, tmp_path: Path) -> None:
    await tree.sh("true")
    peaks: list[int] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spill = tmp_path / "spill"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_memory, tree, peaks)
        done = await tree.sh(f"head -c {SIZE} /dev/zero; printf end", spill=spill, timeout=50)
        nursery.cancel_scope.cancel()
    assert done.total == SIZE + 3
    assert done.tail.endswith(b"\0end")
    assert len(done.output) == 8000
    assert spill.stat().st_size == SIZE + 3
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown + max(peaks) < 32 * 1024  # KiB: the daemon's growth and all of the supervisor


async def watch_memory(tree: Tree, peaks: list[int]) -> None:
    """The most memory that one of the spawner's children had at any time, in KiB."""
    while True:
        for pid in below(tree.spawner.pid).get("dshd-call", []):
            peaks.append(peak_memory(pid))
        await trio.sleep(0.05)


def peak_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return max([int(line.split()[1]) for line in lines if line.startswith("VmHWM")], default=0)


async def test_one_endless_line_is_no_different(tree: Tree) -> None:
    done = await tree.sh("head -c 157000000 /dev/zero | tr '\\0' x", head=100, tail=100)
    assert (done.total, done.output, done.spill) == (157_000_000, b"x" * 200, None)


async def test_a_supervisor_does_not_grow_with_its_calls(tree: Tree) -> None:
    memory: list[int] = []
    for number in range(120):
        await tree.sh("head -c 60000 /dev/zero", head=30_000, tail=30_000)
        if number in (20, 119):
            memory.append(resident(*below(tree.spawner.pid)["dshd-call"]))
    assert memory[1] - memory[0] < 1024  # KiB


def resident(*pids: int) -> int:
    statm = [Path(f"/proc/{pid}/statm").read_text().split() for pid in pids]
    return max(int(fields[1]) for fields in statm) * os.sysconf("SC_PAGE_SIZE") // 1024
