from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dshd.errors import AlreadyRunning
from dshd.log import lock
from dshd.log.lock import StateLock, holder

HOLD = """
import sys
from pathlib import Path
from dshd.log.lock import StateLock
held = StateLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 0.02)


def start_holder(state: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_second_daemon_is_refused_with_who_and_since_when(tmp_path: Path) -> None:
    with start_holder(tmp_path) as other:
        before = (tmp_path / "lock").read_bytes()
        with pytest.raises(AlreadyRunning) as refused:
            StateLock(tmp_path)
        assert refused.value.exit_status == 5
        assert f"state directory {tmp_path} is in use by dshd {other.pid} since " in refused.value.message
        assert (tmp_path / "lock").read_bytes() == before
        assert os.listdir(tmp_path) == ["lock"]
        found = holder(tmp_path)
        assert found is not None
        assert found.pid == other.pid
        assert found.since is not None
        other.kill()


def test_a_killed_holder_stops_nobody(tmp_path: Path) -> None:
    with start_holder(tmp_path) as other:
        other.kill()
    assert holder(tmp_path) is None
    StateLock(tmp_path).close()


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(50), b"1 0\n", f"{os.getppid()} 1\n".encode()])
def test_the_content_stops_nobody_whatever_it_says(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    assert holder(tmp_path) is None
    held = StateLock(tmp_path)
    assert (tmp_path / "lock").read_bytes().startswith(b"%d " % os.getpid())
    assert (tmp_path / "lock").stat().st_mode & 0o777 in (0o600, 0o644)
    held.close()
    held.close()


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(50), b"12"])
def test_a_holder_whose_content_is_torn_is_still_a_holder(tmp_path: Path, content: bytes) -> None:
    held = StateLock(tmp_path)
    (tmp_path / "lock").write_bytes(content)
    with pytest.raises(AlreadyRunning, match=r"is in use by another dshd\."):
        StateLock(tmp_path)
    assert holder(tmp_path) == (None, None)
    held.close()
    assert holder(tmp_path) is None


def test_asking_creates_nothing(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    assert holder(tmp_path / "nothing") is None
    assert os.listdir(tmp_path) == []


def test_asking_does_not_keep_an_owner_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_PATIENCE", 5.0)
    StateLock(tmp_path).close()
    asking = os.open(tmp_path / "lock", os.O_RDONLY)
    lock._try(asking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _seconds: os.close(asking))
    StateLock(tmp_path).close()


def test_a_lock_whose_file_was_removed_is_still_held_and_seen(tmp_path: Path) -> None:
    with start_holder(tmp_path) as other:
        (tmp_path / "lock").unlink()
        assert holder(tmp_path) == (None, None)
        with pytest.raises(AlreadyRunning):
            StateLock(tmp_path)
        assert os.listdir(tmp_path) == []
        other.kill()
    assert holder(tmp_path) is None


@pytest.mark.parametrize("instead", [None, b"1 1\n"])
def test_a_removed_or_replaced_file_is_made_again_and_locked(tmp_path: Path, instead: bytes | None) -> None:
    held = StateLock(tmp_path)
    assert held.look() == "held"
    (tmp_path / "lock").unlink()
    if instead is not None:
        (tmp_path / "lock").write_bytes(instead)
    assert held.look() == "mended"
    assert held.look() == "held"
    found = holder(tmp_path)
    assert found is not None
    assert found.pid == os.getpid()
    with (tmp_path / "lock").open() as file:
        assert not lock._try(file.fileno(), fcntl.LOCK_SH)
    assert not os.get_inheritable(held.fileno())
    held.close()
    assert holder(tmp_path) is None


def test_a_directory_that_went_or_was_replaced_is_gone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    held = StateLock(state)
    state.rename(tmp_path / "away")
    assert held.look() == "gone"
    state.mkdir()
    assert held.look() == "gone"
    assert os.listdir(state) == []
    held.close()


def test_a_state_behind_a_link_is_not_gone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to("real")
    held = StateLock(tmp_path / "state")
    assert held.look() == "held"
    held.close()


def test_where_directories_cannot_be_locked_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def as_on_nfs(fd: int, kind: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    held = StateLock(tmp_path)
    assert holder(tmp_path) is not None
    with pytest.raises(AlreadyRunning):
        StateLock(tmp_path)
    held.close()
    assert holder(tmp_path) is None


def test_the_lock_is_not_inherited_by_programs(tmp_path: Path) -> None:
    held = StateLock(tmp_path)
    assert not os.get_inheritable(held.fileno())
    held.close()


def test_a_link_in_the_locks_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        StateLock(tmp_path)
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_times_and_paths_are_told_as_people_say_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert lock._short(Path("/home/me/.local/state/dshd")) == "~/.local/state/dshd"
    assert lock._short(Path("/home/meow/dshd")) == "/home/meow/dshd"
    assert lock._when(time.time()) == time.strftime("%H:%M")
    assert lock._when(time.mktime((2026, 11, 8, 3, 0, 0, 0, 0, -1))) == "Nov 8"
