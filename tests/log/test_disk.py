"""One contract for the real disk and the one in memory."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshd.errors import DshError, NoSpace, NotFound
from dshd.log.disk import Changed, Disk, OsCalls, RealDisk, explain, explained
from dshd.log.memory import MemoryDisk


class Recording(OsCalls):
    """The kernel's calls, written down as (call, path's name)."""

    def __init__(self) -> None:
        self.trace: list[tuple[str, str]] = []
        self.names: dict[int, str] = {}

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self.names[fd] = Path(path).name
        self.trace.append(("create" if flags & os.O_CREAT else "open", Path(path).name))
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        self.trace.append(("write", self.names[fd]))
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self.trace.append(("fsync", self.names[fd]))
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self.trace.append(("fdatasync", self.names[fd]))
        super().fdatasync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        self.trace.append(("ftruncate", self.names[fd]))
        super().ftruncate(fd, size)

    def rename(self, source: str, target: str) -> None:
        self.trace.append(("rename", Path(target).name))
        super().rename(source, target)

    def changing(self) -> list[tuple[str, str]]:
        return [entry for entry in self.trace if entry[0] != "open"]


@pytest.fixture(params=["real", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, Path]]:
    if request.param == "real":
        yield RealDisk(), tmp_path
        return
    disk = MemoryDisk()
    disk.create_dir_synced(Path("/place"))
    yield disk, Path("/place")


class TestEveryDisk:
    def test_a_log_grows_at_its_end_and_is_cut_back(self, place: tuple[Disk, Path]) -> None:
        disk, root = place
        file = disk.open_log(root / "log", create=True)
        file.append(b"one\n")
        file.append(b"two\n")
        file.sync()
        file.check()
        assert file.size == 8
        file.truncate(4)
        file.append(b"three\n")
        file.check()
        file.close()
        file.close()
        again = disk.open_log(root / "log")
        assert again.size == 10
        assert disk.read_bytes(root / "log") == b"one\nthree\n"
        again.close()

    def test_cutting_never_makes_a_log_longer(self, place: tuple[Disk, Path]) -> None:
        disk, root = place
        file = disk.open_log(root / "log", create=True)
        file.append(b"one\n")
        file.truncate(4000)
        assert file.size == 4
        assert disk.stat(root / "log").size == 4
        file.close()

    def test_a_log_that_is_there_is_not_created_and_one_that_is_not_is_not_opened(
        self, place: tuple[Disk, Path]
    ) -> None:
        disk, root = place
        with pytest.raises(FileNotFoundError):
            disk.open_log(root / "log")
        disk.open_log(root / "log", create=True).close()
        with pytest.raises(FileExistsError):
            disk.open_log(root / "log", create=True)

    def test_others_hands_on_a_log_are_noticed(self, place: tuple[Disk, Path]) -> None:
        disk, root = place
        path = root / "log"
        for change, says in {
            "grow": "has 9 bytes, not 4",
            "cut": "has 0 bytes, not 4",
            "link": "has 2 links, not 1",
            "unlink": "was removed",
            "rename": "was removed",
            "replace": "was replaced",
        }.items():
            disk.write_atomic(path, b"one\n")
            file = disk.open_log(path)
            meddle(disk, path, change)
            with pytest.raises(Changed, match=f"log {says}"):
                file.check()
            file.close()
            disk.unlink(path.with_name("other"))

    def test_an_atomic_write_replaces_the_whole_and_leaves_no_temporary_file(
        self, place: tuple[Disk, Path]
    ) -> None:
        disk, root = place
        disk.write_atomic(root / "f", b"a long first version")
        disk.write_atomic(root / "f", b"second")
        assert disk.read_bytes(root / "f") == b"second"
        assert disk.listdir(root) == ["f"]

    def test_bytes_are_read_from_anywhere(self, place: tuple[Disk, Path]) -> None:
        disk, root = place
        disk.write_atomic(root / "f", bytes(range(256)) * 10000)
        assert disk.read_bytes(root / "f", 256, 260) == b"\0\1\2\3"
        assert disk.read_bytes(root / "f", 2559998) == b"\xfe\xff"
        assert disk.read_bytes(root / "f", 2559998, 2570000) == b"\xfe\xff"
        assert disk.read_bytes(root / "f", 9_999_999) == b""
        assert [len(piece) for piece in disk.pieces(root / "f")] == [1048576, 1048576, 462848]

    def test_directories_are_made_with_their_parents_and_removed_with_their_content(
        self, place: tuple[Disk, Path]
    ) -> None:
        disk, root = place
        disk.create_dir_synced(root / "a" / "b" / "c")
        disk.create_dir_synced(root / "a" / "b" / "c")
        disk.touch_synced(root / "a" / "b" / "f")
        disk.touch_synced(root / "a" / "b" / "f")
        assert disk.listdir(root / "a" / "b") == ["c", "f"]
        disk.remove_tree(root / "a")
        assert not disk.exists(root / "a")
        assert not disk.exists(root / "a" / "b")

    def test_spare_names_never_hit_what_is_kept(self, place: tuple[Disk, Path]) -> None:
        disk, root = place
        disk.write_atomic(root / "log", b"1")
        assert disk.keep_synced(root / "log", "log.old") == "log.old"
        assert disk.keep_synced(root / "log", "log.old") == "log.old.2"
        assert disk.keep_synced(root / "log", "log.old") == "log.old.3"
        assert disk.read_bytes(root / "log.old.3") == b"1"

    def test_what_does_not_exist_is_an_error_but_for_removal(self, place: tuple[Disk, Path]) -> None:
        disk, root = place
        disk.unlink(root / "nothing")
        disk.unlink_synced(root / "nothing")
        for act in (disk.read_bytes, disk.listdir, disk.stat, disk.remove_tree):
            with pytest.raises(FileNotFoundError):
                act(root / "nothing")


def meddle(disk: Disk, path: Path, how: str) -> None:
    calls, other = disk.calls, str(path.with_name("other"))
    if how in ("grow", "cut"):
        fd = calls.open(str(path), os.O_RDWR | os.O_APPEND)
        calls.write(fd, memoryview(b"more\n")) if how == "grow" else calls.ftruncate(fd, 0)
        calls.close(fd)
    elif how == "link":
        calls.link(str(path), other)
    elif how == "unlink":
        calls.unlink(str(path))
    elif how == "rename":
        calls.rename(str(path), other)
    else:
        disk.write_atomic(path, b"one\n")


# -- the order of calls -----------------------------------------------------------------------------

ATOMIC = [("create", ".f.tmp"), ("write", ".f.tmp"), ("fsync", ".f.tmp"), ("rename", "f"), ("fsync", "place")]


def test_an_atomic_write_is_write_sync_rename_sync_directory(tmp_path: Path) -> None:
    calls = Recording()
    root = tmp_path / "place"
    root.mkdir()
    Disk(calls).write_atomic(root / "f", b"data")
    assert calls.changing() == ATOMIC


def test_the_memory_disk_sees_the_same_order() -> None:
    disk = MemoryDisk()
    disk.create_dir_synced(Path("/place"))
    trace = disk.trace()
    disk.write_atomic(Path("/place/f"), b"data")
    changing = [(call, Path(path).name) for call, path in trace if call != "open"]
    assert changing == [*ATOMIC[:3], ("rename", ".f.tmp"), ATOMIC[4]]


def test_a_rename_between_directories_syncs_both(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "f").touch()
    calls = Recording()
    Disk(calls).rename_synced(tmp_path / "a" / "f", tmp_path / "b" / "f")
    assert calls.changing() == [("rename", "f"), ("fsync", "b"), ("fsync", "a")]


def test_modes_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk = RealDisk()
        disk.create_dir_synced(tmp_path / "d")
        disk.open_log(tmp_path / "d" / "log", create=True).close()
        disk.write_atomic(tmp_path / "d" / "f", b"x")
        disk.touch_synced(tmp_path / "d" / "t")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in (tmp_path / "d").iterdir()} == {0o600}


def test_a_link_in_a_logs_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Too many levels"):
        RealDisk().open_log(tmp_path / "log")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "link").symlink_to(tmp_path)
    RealDisk().remove_tree(tmp_path / "dir")
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


# -- failures ---------------------------------------------------------------------------------------


def test_short_writes_are_continued_until_all_is_written() -> None:
    disk = MemoryDisk()
    disk.short_write(3, times=4)
    disk.write_atomic(Path("/f"), b"all of this")
    assert disk.peek("/f") == b"all of this"
    assert disk.counts["write"] == 4


def test_a_write_that_takes_nothing_is_an_error_not_a_busy_loop() -> None:
    disk = MemoryDisk()
    disk.short_write(0)
    with pytest.raises(OSError, match="took nothing"):
        disk.write_atomic(Path("/f"), b"data")


@pytest.mark.parametrize("call", ["create", "write", "fsync", "rename"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failed_atomic_write_leaves_the_old_file_and_no_temporary_one(call: str, error: int) -> None:
    disk = MemoryDisk()
    disk.write_atomic(Path("/f"), b"old")
    disk.fail(call, error)
    with pytest.raises(OSError, match=os.strerror(error)):
        disk.write_atomic(Path("/f"), b"new")
    assert disk.listdir(Path("/")) == ["f"]
    assert disk.peek("/f") == b"old"


def test_a_full_disk_leaves_the_old_file_and_serves_again_when_there_is_room() -> None:
    disk = MemoryDisk()
    disk.write_atomic(Path("/f"), b"old")
    disk.limit(free=5)
    with pytest.raises(OSError, match="No space"):
        disk.write_atomic(Path("/f"), b"much too long")
    assert disk.peek("/f") == b"old"
    disk.limit(files=0)
    with pytest.raises(OSError, match="No space"):
        disk.write_atomic(Path("/f"), b"new")
    disk.limit()
    disk.write_atomic(Path("/f"), b"much too long")
    assert disk.peek("/f") == b"much too long"


def test_keeping_bytes_falls_back_to_a_copy_without_hard_links() -> None:
    disk = MemoryDisk()
    disk.write_atomic(Path("/log"), b"bytes")
    disk.fail("link", errno.EPERM)
    assert disk.keep_synced(Path("/log"), "kept") == "kept"
    assert disk.crash().peek("/kept") == b"bytes"
    assert disk.stat(Path("/log")).links == 1


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (errno.ENOSPC, NoSpace, "no space on / ("),
        (errno.EDQUOT, NoSpace, "no space on / (over quota). Nothing was lost."),
        (errno.EACCES, DshError, "permission denied on /p"),
        (errno.ENOENT, NotFound, "/p does not exist"),
        (errno.EIO, DshError, "can't read /p: Input/output error"),
    ],
)
def test_failures_are_told_in_a_sentence_with_the_path(error: int, kind: type[DshError], says: str) -> None:
    told = explain(OSError(error, os.strerror(error)), "read", "/p")
    assert type(told) is kind
    assert says in told.message
    with pytest.raises(kind, match=re.escape(says)), explained("read", "/elsewhere"):
        raise OSError(error, os.strerror(error), "/p")


def test_removing_a_link_to_a_directory_leaves_the_directory_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").write_text("mine")
    (tmp_path / "link").symlink_to("theirs")
    RealDisk().remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "theirs" / "kept").read_text() == "mine"
