from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshd.errors import Conflict, DshError, NoSpace, NotFound
from dshd.log.disk import Disk, RealDisk
from dshd.log.memory import Everything, MemoryDisk, Nothing, Seeded, Survivor
from dshd.log.store import RESERVE_SIZE, Reserve, Store
from tests.amount import examples
from tests.log.kit import header, lines

STATE = Path("/home/me/state")
LINES = lines(header())
FILES = {"env": b"TOKEN=x"}


def store_on(disk: Disk, state: Path = STATE) -> Store:
    store = Store(disk, state)
    store.prepare()
    return store


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def store(disk: MemoryDisk) -> Store:
    return store_on(disk)


def whole(store: Store, session: str) -> bool:
    directory = store.session_dir(session)
    return store.disk.read_bytes(directory / "log.jsonl") == LINES and (
        store.disk.read_bytes(directory / "env") == b"TOKEN=x"
    )


# -- creation ---------------------------------------------------------------------------------------


def test_a_created_session_is_on_disk_with_its_log_and_files(disk: MemoryDisk, store: Store) -> None:
    path = store.create("s1", LINES, FILES)
    assert path == store.log_path("s1") == STATE / "sessions" / "s1" / "log.jsonl"
    after = Store(disk.crash(), STATE)
    assert after.ids() == ["s1"]
    assert whole(after, "s1")


def test_preparing_twice_is_fine_and_durable(disk: MemoryDisk, store: Store) -> None:
    store.prepare()
    after = disk.crash()
    assert after.listdir(STATE) == ["active", "sessions"]


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(30))
def test_a_crash_while_creating_leaves_the_whole_session_or_none(random: Random) -> None:
    disk = MemoryDisk()
    store = store_on(disk)
    points: list[MemoryDisk] = []
    survivors: list[Survivor] = [Nothing(), Everything(), Seeded(random), Seeded(random)]
    disk.before(lambda _call, _path: points.extend(map(disk.crash, survivors)))
    store.create("s1", LINES, FILES)
    for left in points:
        after = Store(left, STATE)
        assert all(whole(after, session) for session in after.ids())
        after.sweep()
        assert left.listdir(after.sessions) == after.ids()
        if not after.ids():
            after.create("s1", LINES, FILES)
    assert len(points) > 20


def test_an_id_that_is_taken_is_a_conflict(store: Store) -> None:
    store.create("s1", LINES, FILES)
    with pytest.raises(Conflict, match="s1 exists"):
        store.create("s1", b"other", {})
    assert whole(store, "s1")


@pytest.mark.parametrize("call", ["mkdir", "create", "write", "fsync", "rename"])
def test_a_failed_creation_leaves_nothing(disk: MemoryDisk, store: Store, call: str) -> None:
    disk.fail(call, errno.ENOSPC)
    with pytest.raises(NoSpace):
        store.create("s1", LINES, FILES)
    assert disk.listdir(store.sessions) == []
    store.create("s1", LINES, FILES)
    assert whole(store, "s1")


def test_a_creation_whose_last_sync_fails_is_not_there(disk: MemoryDisk, store: Store) -> None:
    disk.fail("fsync", errno.EIO, path="/sessions")
    with pytest.raises(DshError, match="Input/output error"):
        store.create("s1", LINES, FILES)
    assert store.ids() == []


def test_a_creation_waits_for_the_disk_no_more_often_than_it_must(disk: MemoryDisk, store: Store) -> None:
    before = disk.counts["fsync"]
    store.create("s1", LINES)
    assert disk.counts["fsync"] - before == 3  # the log, its directory, and that one's name
    store.mark("s1")
    assert disk.counts["fsync"] - before == 4


def test_creation_works_again_by_itself_when_there_are_inodes_again(disk: MemoryDisk, store: Store) -> None:
    disk.limit(files=1)
    with pytest.raises(NoSpace):
        store.create("s1", LINES, FILES)
    with pytest.raises(NoSpace):
        store.create("s2", LINES, FILES)
    disk.limit()
    store.create("s1", LINES, FILES)
    assert store.ids() == ["s1"]


# -- deletion ---------------------------------------------------------------------------------------


def test_a_deleted_session_is_gone_with_its_mark(disk: MemoryDisk, store: Store) -> None:
    store.create("s1", LINES, FILES)
    store.mark("s1")
    store.delete("s1")
    assert store.ids() == store.marked() == []
    assert disk.listdir(store.sessions) == []
    assert Store(disk.crash(), STATE).ids() == []
    with pytest.raises(NotFound, match="no session s1"):
        store.delete("s1")


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(30))
def test_a_crash_while_deleting_leaves_the_whole_session_or_none(random: Random) -> None:
    disk = MemoryDisk()
    store = store_on(disk)
    store.create("s1", LINES, FILES)
    points: list[MemoryDisk] = []
    survivors: list[Survivor] = [Nothing(), Everything(), Seeded(random), Seeded(random)]
    disk.before(lambda _call, _path: points.extend(map(disk.crash, survivors)))
    store.delete("s1")
    for left in points:
        after = Store(left, STATE)
        assert all(whole(after, session) for session in after.ids())
        after.sweep()
        assert left.listdir(after.sessions) == after.ids()
    assert len(points) > 12


def test_leftovers_go_at_start_and_nothing_else_does(disk: MemoryDisk, store: Store) -> None:
    store.create("s1", LINES, FILES)
    for name in (".new-s2", ".trash-s3"):
        disk.create_dir_synced(store.sessions / name / "attachments")
        disk.write_atomic(store.sessions / name / "log.jsonl", LINES)
    assert store.ids() == ["s1"]
    assert store.sweep() == [".new-s2", ".trash-s3"]
    assert disk.listdir(store.sessions) == ["s1"]
    assert store.sweep() == []


def test_a_leftover_that_can_not_be_removed_does_not_stop_the_start(disk: MemoryDisk, store: Store) -> None:
    disk.create_dir_synced(store.sessions / ".trash-s3")
    disk.fail("rmdir", errno.EIO)
    assert store.sweep() == [".trash-s3"]


# -- lists ------------------------------------------------------------------------------------------


def test_an_unreadable_directory_is_told_and_is_not_an_empty_one(disk: MemoryDisk, store: Store) -> None:
    disk.fail("listdir", errno.EACCES, times=3)
    for ask in (store.ids, store.sweep, store.marked):
        with pytest.raises(
            DshError, match=r"permission denied on /home/me/state/(sessions|active)\."
        ) as told:
            ask()
        assert told.value.exit_status != 0


def test_what_has_a_name_that_is_no_text_is_no_session(tmp_path: Path) -> None:
    store = Store(RealDisk(), tmp_path)
    store.prepare()
    store.create("s1", LINES, FILES)
    os.mkdir(os.fsencode(store.sessions) + b"/odd\xff")
    assert store.ids() == ["s1"]


# -- marks ------------------------------------------------------------------------------------------


def test_a_mark_is_on_disk_before_it_is_acknowledged(disk: MemoryDisk, store: Store) -> None:
    store.mark("s1")
    store.mark("s1")
    assert Store(disk.crash(), STATE).marked() == ["s1"]
    store.unmark("s1")
    store.unmark("s1")
    assert store.marked() == []


def test_a_mark_that_can_not_be_made_is_an_error(disk: MemoryDisk, store: Store) -> None:
    disk.limit(files=0)
    with pytest.raises(NoSpace):
        store.mark("s1")
    disk.limit()
    disk.fail("fsync", errno.EIO, path="active")
    with pytest.raises(DshError, match="Input/output error"):
        store.mark("s1")


def test_a_mark_whose_sync_has_failed_is_not_there_to_be_believed(disk: MemoryDisk, store: Store) -> None:
    disk.fail("fsync", errno.EIO, path="active")
    with pytest.raises(DshError):
        store.mark("s1")
    assert not store.is_marked("s1")
    store.mark("s1")
    assert Store(disk.crash(), STATE).marked() == ["s1"]


@pytest.mark.parametrize("where", ["attachments", "s1"])
def test_attachments_whose_sync_has_failed_are_not_there_to_be_believed(
    disk: MemoryDisk, store: Store, where: str
) -> None:
    store.create("s1", b"line\n")
    disk.fail("fsync", errno.EIO, path=where)
    with pytest.raises(DshError):
        store.attach("s1", {"a": b"content"})
    assert not disk.exists(store.attachments("s1") / "a")
    store.attach("s1", {"a": b"content"})
    after = disk.crash()
    assert after.read_bytes(Store(after, STATE).attachments("s1") / "a") == b"content"


# -- the reserve ------------------------------------------------------------------------------------


def test_the_reserve_takes_room_and_gives_it_back(disk: MemoryDisk, store: Store) -> None:
    before = disk.used
    assert store.reserve.hold()
    assert store.reserve.hold()
    assert disk.used == before + RESERVE_SIZE
    disk.limit(free=0)
    with pytest.raises(NoSpace):
        store.create("s1", LINES, FILES)
    store.reserve.release()
    store.create("s1", LINES, FILES)
    assert not store.reserve.held
    assert not store.reserve.hold()
    assert disk.listdir(STATE) == ["active", "sessions"]
    disk.limit()
    assert store.reserve.hold()


def test_a_reserve_that_is_too_small_is_made_whole(disk: MemoryDisk, store: Store) -> None:
    disk.write_atomic(STATE / "reserve", b"short")
    assert not store.reserve.held
    assert store.reserve.hold()
    assert disk.stat(STATE / "reserve").size == RESERVE_SIZE


@pytest.mark.parametrize("call", ["create", "allocate", "lstat", "unlink"])
def test_the_reserve_never_raises(disk: MemoryDisk, store: Store, call: str) -> None:
    disk.fail(call, errno.EIO, path="reserve", times=-1)
    store.reserve.hold()
    store.reserve.release()


def test_the_kernels_disk_reserves_real_blocks(tmp_path: Path) -> None:
    reserve = Reserve(RealDisk(), tmp_path / "reserve")
    assert reserve.hold()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= RESERVE_SIZE
    reserve.release()
    assert os.listdir(tmp_path) == []


def test_the_kernels_disk_makes_and_removes_sessions(tmp_path: Path) -> None:
    store = store_on(RealDisk(), tmp_path / "state")
    store.create("s1", LINES, FILES)
    store.mark("s1")
    assert whole(store, "s1")
    assert store.session_dir("s1").stat().st_mode & 0o777 == 0o700
    assert (store.session_dir("s1") / "env").stat().st_mode & 0o777 == 0o600
    store.delete("s1")
    assert (store.ids(), store.marked()) == ([], [])


def test_a_link_among_the_leftovers_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "kept").write_text("not ours")
    store = Store(RealDisk(), tmp_path / "state")
    store.prepare()
    for name in (".trash-s1234567", ".new-s1234567"):
        (store.sessions / name).symlink_to(theirs)
    store.sweep()
    assert (theirs / "kept").read_text() == "not ours"
    assert not os.listdir(store.sessions)


def test_a_session_that_is_a_link_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    store = Store(RealDisk(), tmp_path / "state")
    store.prepare()
    store.create("s1", LINES, FILES)
    os.rename(store.session_dir("s1"), tmp_path / "moved")
    store.session_dir("s1").symlink_to(tmp_path / "moved")
    store.delete("s1")
    assert os.listdir(tmp_path / "moved")
    assert not os.listdir(store.sessions)


@pytest.mark.parametrize("what", ["a link to a session", "a link to nothing", "a file"])
def test_what_is_in_the_place_of_a_session_is_removed_without_a_trace_and_what_it_leads_to_stays(
    tmp_path: Path, what: str
) -> None:
    store = Store(RealDisk(), tmp_path / "state")
    store.prepare()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "log.jsonl").write_text("precious")
    place = store.session_dir("s1234567")
    if what == "a file":
        place.write_text("stray")
    else:
        place.symlink_to(elsewhere if what == "a link to a session" else "/nonexistent")
    store.delete("s1234567")
    assert list(store.sessions.iterdir()) == []
    assert (elsewhere / "log.jsonl").read_text() == "precious"


def test_a_link_that_an_earlier_removal_left_is_swept(tmp_path: Path) -> None:
    store = Store(RealDisk(), tmp_path / "state")
    store.prepare()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "log.jsonl").write_text("precious")
    (store.sessions / ".trash-s1234567").symlink_to(elsewhere)
    assert store.sweep() == [".trash-s1234567"]
    assert list(store.sessions.iterdir()) == []
    assert (elsewhere / "log.jsonl").read_text() == "precious"
