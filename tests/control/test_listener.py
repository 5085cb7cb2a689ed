"""The socket: what may stand in its way, who sees it, and what happens when there are no descriptors."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from dshd import paths
from dshd.control import listener
from dshd.control.access import admits, peer_of
from dshd.control.listener import Listener, bind
from dshd.errors import AlreadyRunning, Conflict
from dshd.paths import Credentials
from tests.control.rig import Client, Server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run" / "dshd.sock"


@pytest.fixture
def loose_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# ---------------------------------------------------------------- making it


@pytest.mark.usefixtures("loose_umask")
def test_nobody_else_can_connect_whatever_the_umask(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    listen = socket.socket.listen

    def spy(sock: socket.socket, backlog: int) -> None:
        (name,) = place.parent.iterdir()
        seen.append((mode(name), mode(place.parent)))
        listen(sock, backlog)

    monkeypatch.setattr(socket.socket, "listen", spy)
    with bind(str(place), own_directory=True):
        assert seen == [(0o600, 0o700)]
        assert (mode(place), mode(place.parent)) == (0o600, 0o700)


def test_a_loose_directory_of_our_own_is_closed_and_a_shared_one_left_alone(tmp_path: Path) -> None:
    for own, expected in (True, 0o700), (False, 0o755):
        directory = tmp_path / str(own)
        directory.mkdir(mode=0o755)
        directory.chmod(0o755)
        bind(str(directory / "dshd.sock"), own_directory=own).close()
        assert mode(directory) == expected


def test_a_stale_socket_is_replaced(place: Path) -> None:
    bind(str(place), own_directory=True).close()
    assert stat.S_ISSOCK(place.lstat().st_mode)
    with bind(str(place), own_directory=True):
        paths.connect(str(place), 1).close()
    assert [name.name for name in place.parent.iterdir()] == ["dshd.sock"]


def test_a_live_socket_is_never_replaced(place: Path) -> None:
    with bind(str(place), own_directory=True):
        inode = place.lstat().st_ino
        with pytest.raises(AlreadyRunning) as caught:
            bind(str(place), own_directory=True)
        assert caught.value.exit_status == 5
        assert place.lstat().st_ino == inode
        paths.connect(str(place), 1).close()


@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_what_is_no_socket_is_refused_and_left_as_it_is(place: Path, what: str) -> None:
    place.parent.mkdir()
    if what == "file":
        place.write_text("precious")
    elif what == "directory":
        place.mkdir()
    else:
        place.symlink_to("/etc/passwd")
    before = place.lstat()
    with pytest.raises(Conflict, match=what) as caught:
        bind(str(place), own_directory=True)
    assert caught.value.exit_status == 5
    assert place.lstat() == before


@pytest.mark.parametrize(("directory", "name"), [(120, 9), (40, 200), (200, 200)])
def test_a_path_of_any_length_can_be_listened_at_and_reached(
    tmp_path: Path, directory: int, name: int
) -> None:
    path = tmp_path / ("d" * directory) / ("s" * name)
    assert len(str(path)) > paths.SOCKET_PATH_MAX
    with bind(str(path), own_directory=True) as sock:
        client = paths.connect(str(path), 1)
        accepted, _ = sock.accept()
        accepted.sendall(b"hello")
        assert client.recv(5) == b"hello"
        client.close()
        accepted.close()


def test_two_long_paths_that_begin_alike_are_two(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    with (
        bind(str(directory / "one"), own_directory=True) as one,
        bind(str(directory / "two"), own_directory=True) as two,
    ):
        paths.connect(str(directory / "two"), 1).close()
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.accept()
        two.accept()[0].close()


def test_only_its_own_name_is_taken_away_at_the_end(place: Path) -> None:
    with bind(str(place), own_directory=True):
        made = place.lstat()
    with bind(str(place), own_directory=True):
        listener.remove(str(place), made)
        assert place.exists()
        listener.remove(str(place), place.lstat())
        assert not place.exists()


def test_a_link_leads_clients_that_look_elsewhere_to_the_socket(place: Path, tmp_path: Path) -> None:
    link = tmp_path / "state" / "run" / "dshd.sock"
    with bind(str(place), own_directory=True):
        for _ in range(2):
            listener.link(str(link), str(place))
            paths.connect(str(link), 1).close()


def test_what_is_no_listening_socket_is_not_inherited() -> None:
    ours, theirs = socket.socketpair()
    with ours, pytest.raises(Conflict):
        listener.inherited(theirs.detach())


# ---------------------------------------------------------------- who is let in


def test_the_owner_and_root_are_let_in_and_nobody_else() -> None:
    assert [admits(Credentials(1, uid, uid), owner=1000) for uid in (1000, 0, 1001, 65534)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_process_below_a_tool_is_an_agent() -> None:
    credentials = Credentials(1, 1000, 1000)
    assert (peer_of(credentials, None).kind, peer_of(credentials, None).session) == ("user", None)
    assert (peer_of(credentials, "s1234567").kind, peer_of(credentials, "s1234567").session) == (
        "agent",
        "s1234567",
    )
    hook = peer_of(credentials, "hook s1234567")
    assert (hook.kind, hook.session, hook.source()["kind"]) == ("agent", "s1234567", "hook")
    assert peer_of(credentials, "hook ").session is None
    assert (peer_of(credentials, "").kind, peer_of(credentials, "").session) == ("agent", None)


async def connected(place: Path) -> Client:
    sock = await trio.to_thread.run_sync(paths.connect, str(place), 5)
    sock.setblocking(False)
    return Client(sock)


async def test_clients_are_served_and_a_stranger_is_turned_away(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Server().serving() as server, trio.open_nursery() as nursery:
        with bind(str(place), own_directory=True) as sock:
            nursery.start_soon(Listener(sock, server.room, server.writes, lambda pid: None).run)
            client = await connected(place)
            assert (await client.call("daemon.hello", protocol=1))["permissions"]["kind"] == "user"
            client.close()
            monkeypatch.setattr(listener, "peer_credentials", lambda sock: Credentials(1, 4711, 4711))
            client = await connected(place)
            with pytest.raises((EOFError, ConnectionResetError)):
                await client.line()
            client.close()
            nursery.cancel_scope.cancel()


async def test_beyond_the_limit_a_client_can_still_stop_the_daemon(place: Path) -> None:
    async with Server().serving() as server, trio.open_nursery() as nursery:
        with bind(str(place), own_directory=True) as sock:
            nursery.start_soon(Listener(sock, server.room, server.writes, lambda pid: None, most=3).run)
            idle = [await connected(place) for _ in range(3)]
            for client in idle:
                await client.call("daemon.hello", protocol=1)
            extra = await connected(place)
            await extra.call("daemon.hello", protocol=1)
            await extra.call("daemon.stop")
            assert server.process.stopped.is_set()
            for client in [*idle, extra]:
                client.close()
            nursery.cancel_scope.cancel()


async def test_without_descriptors_it_rests_says_so_once_and_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full, accepts = True, 0
    accept = socket.socket.accept

    def scarce(sock: socket.socket) -> tuple[socket.socket, object]:
        nonlocal accepts
        accepts += 1
        if full:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", scarce)
    async with Server().serving() as server, trio.open_nursery() as nursery:
        with bind(str(place), own_directory=True) as sock:
            nursery.start_soon(Listener(sock, server.room, server.writes, lambda pid: None).run)
            client = await connected(place)
            began = time.process_time()
            await trio.sleep(0.3)
            assert accepts < 10
            assert time.process_time() - began < 0.2
            assert caplog.text.count("no client can be accepted now") == 1
            full = False
            await client.call("daemon.hello", protocol=1)
            client.close()
            nursery.cancel_scope.cancel()


async def test_a_hundred_clients_and_few_descriptors(place: Path) -> None:
    async with Server().serving() as server, trio.open_nursery() as nursery:
        with bind(str(place), own_directory=True) as sock:
            nursery.start_soon(Listener(sock, server.room, server.writes, lambda pid: None, most=4).run)

            async def visit() -> None:
                client = await connected(place)
                await client.send(
                    b'{"jsonrpc":"2.0","id":1,"method":"daemon.hello","params":{"protocol":1}}\n'
                )
                assert json.loads(await client.sock.recv(1 << 16))["id"] == 1
                client.close()

            with trio.fail_after(20):
                async with trio.open_nursery() as visitors:
                    for _ in range(100):
                        visitors.start_soon(visit)
            nursery.cancel_scope.cancel()
