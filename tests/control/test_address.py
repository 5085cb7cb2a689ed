"""The name of the daemon's socket: who takes it away makes nobody unreachable for long."""

from __future__ import annotations

import logging
import shutil
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dshd import paths
from dshd.control import address
from dshd.control.address import Address, Lookout
from dshd.control.listener import Listener, bind
from dshd.log.lock import StateLock
from dshd.paths import Places
from tests.control.rig import Server
from tests.control.test_listener import connected, mode


def places(tmp_path: Path) -> Places:
    own, link = tmp_path / "run" / "dshd.sock", tmp_path / "state" / "run" / "dshd.sock"
    return Places(
        config=str(tmp_path / "c"), system_config=str(tmp_path / "s"), state=str(tmp_path / "state"),
        sockets=(str(own), str(link)),
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "dshd.sock"


@pytest.mark.parametrize("gone", ["socket", "directory", "both and the link"])
def test_what_is_removed_is_made_again_for_us_alone(tmp_path: Path, place: Path, gone: str) -> None:
    ours = Address(places(tmp_path))
    assert ours.look() is None
    if gone == "socket":
        place.unlink()
    else:
        shutil.rmtree(place.parent)
    if gone == "both and the link":
        shutil.rmtree(tmp_path / "state" / "run")
    old = ours.sock
    made = ours.look()
    old.close()
    assert made is ours.sock is not None
    assert (mode(place), mode(place.parent)) == (0o600, 0o700)
    for path in (place, tmp_path / "state" / "run" / "dshd.sock"):
        paths.connect(str(path), 1).close()
    assert ours.look() is None
    ours.close()
    assert not place.exists()


def test_a_link_to_it_that_is_removed_is_made_again(tmp_path: Path) -> None:
    ours = Address(places(tmp_path))
    link = Path(places(tmp_path).socket_link)
    link.unlink()
    assert ours.look() is None
    paths.connect(str(link), 1).close()
    ours.close()


def test_a_dead_socket_in_its_place_is_replaced(tmp_path: Path, place: Path) -> None:
    ours = Address(places(tmp_path))
    place.unlink()
    bind(str(place), own_directory=True).close()
    with ours.sock:
        assert ours.look() is not None
    paths.connect(str(place), 1).close()
    ours.close()


@pytest.mark.parametrize("what", ["file", "live socket"])
def test_what_is_somebody_elses_is_left_and_told_once_until_it_is_gone(
    tmp_path: Path, place: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Address(places(tmp_path))
    place.unlink()
    with socket.socket(socket.AF_UNIX) as theirs:
        if what == "file":
            place.write_text("precious")
        else:
            theirs.bind(str(place))
            theirs.listen()
        before = place.lstat()
        assert [ours.look() for _ in range(3)] == [None, None, None]
        assert place.lstat().st_ino == before.st_ino
        (told,) = caplog.records
        assert (told.levelno, str(place) in told.getMessage()) == (logging.WARNING, True)
        place.unlink()
        with ours.sock:
            assert ours.look() is not None
    ours.close()


def test_who_has_lost_the_state_leaves_the_name_to_who_holds_it(tmp_path: Path, place: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    with closing(StateLock(state)) as lock:
        ours = Address(places(tmp_path), lock.still_ours)
        state.rename(tmp_path / "moved")
        place.unlink()
        assert ours.look() is None
        state.mkdir()
        assert ours.look() is None
        assert not place.exists()
        ours.close()


def test_at_the_end_what_is_somebody_elses_is_left(tmp_path: Path, place: Path) -> None:
    ours = Address(places(tmp_path))
    place.unlink()
    place.write_text("precious")
    ours.close()
    assert place.read_text() == "precious"


async def test_who_is_connected_stays_and_who_comes_is_let_in_after_a_move(
    tmp_path: Path, place: Path, mock_clock: MockClock
) -> None:
    async with Server().serving() as server, trio.open_nursery() as nursery:
        ours = Address(places(tmp_path))
        one = Listener(ours.sock, server.room, server.writes, lambda pid: None)
        came = trio.Event()

        async def moved(sock: socket.socket) -> None:
            one.move(sock)
            came.set()

        nursery.start_soon(one.run)
        nursery.start_soon(Lookout(ours, moved).run)
        before = await connected(place)
        await before.call("daemon.hello", protocol=1)
        place.unlink()
        await wait_all_tasks_blocked()
        mock_clock.jump(address.LOOK_S)
        await came.wait()
        after = await connected(place)
        await after.call("daemon.hello", protocol=1)
        assert await before.call("daemon.status")
        before.close()
        after.close()
        nursery.cancel_scope.cancel()
    ours.close()


async def test_asked_to_look_it_looks_at_once(tmp_path: Path, place: Path) -> None:
    ours = Address(places(tmp_path))
    came = trio.Event()
    async with trio.open_nursery() as nursery:
        old = ours.sock

        async def moved(_sock: socket.socket) -> None:
            old.close()
            came.set()

        lookout = Lookout(ours, moved)
        nursery.start_soon(lookout.run)
        await wait_all_tasks_blocked()
        place.unlink()
        lookout.look_now()
        with trio.fail_after(address.LOOK_S / 2):
            await came.wait()
        nursery.cancel_scope.cancel()
    assert stat.S_ISSOCK(place.lstat().st_mode)
    ours.close()
