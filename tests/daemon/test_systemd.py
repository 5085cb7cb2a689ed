"""What systemd says to us and we to it."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from dshd import systemd
from dshd.systemd import Manager


def test_what_it_says_is_taken_and_leaves_the_environment() -> None:
    environ = {
        "NOTIFY_SOCKET": "/run/notify", "LISTEN_PID": "7", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b",
        "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7", "HOME": "/h",
    }  # fmt: skip
    assert systemd.take(environ, 7) == Manager("/run/notify", (3, 4), 60.0)
    assert environ == {"HOME": "/h"}


def test_what_it_says_to_another_process_is_not_meant() -> None:
    environ = {"LISTEN_PID": "8", "LISTEN_FDS": "2", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "8"}
    assert systemd.take(environ, 7) == Manager()
    assert environ == {}


@pytest.mark.parametrize(
    "environ",
    [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"LISTEN_PID": "x", "LISTEN_FDS": "2"},
     {"LISTEN_PID": "7", "LISTEN_FDS": "-1"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "²"}],
)  # fmt: skip
def test_nonsense_is_nobody(environ: dict[str, str]) -> None:
    manager = systemd.take(dict(environ), 7)
    assert manager == Manager()
    assert not manager.there


@pytest.mark.parametrize("abstract", [False, True])
def test_it_hears_of_every_change_of_state(tmp_path: Path, abstract: bool) -> None:
    address = f"@dshd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + address[1:] if abstract else address)
        manager = Manager(address)
        manager.ready()
        manager.reloading()
        manager.stopping()
        manager.alive()
        heard = [sock.recv(100).decode() for _ in range(4)]
    assert heard[0] == "READY=1"
    assert heard[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert heard[2:] == ["STOPPING=1", "WATCHDOG=1"]


def test_nobody_listening_is_no_reason_to_fail(tmp_path: Path) -> None:
    Manager(str(tmp_path / "nothing")).ready()
    Manager(None).ready()


def test_the_journal_is_known_by_its_device_and_inode(tmp_path: Path) -> None:
    with open(tmp_path / "f", "w") as file:
        found = os.fstat(file.fileno())
        assert stat.S_ISREG(found.st_mode)
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert systemd.is_journal(environ, file.fileno())
    assert not systemd.is_journal(environ, 1_000_000)
    assert not systemd.is_journal({}, 2)


USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/dshd.service\n"
SYSTEM = "0::/system.slice/dshd.service\n"


@pytest.mark.parametrize(
    ("there", "cgroups", "lingers", "word"),
    [
        (False, USER, True, "no-unit"),
        (False, SYSTEM, False, "no-unit"),
        (True, USER, False, "no-linger"),
        (True, USER, True, None),
        (True, SYSTEM, False, None),
    ],
)
def test_what_may_end_a_daemon_before_something_is_due(
    there: bool, cgroups: str, lingers: bool, word: str | None
) -> None:
    manager = Manager("/run/notify" if there else None)
    assert systemd.what_ends_it(manager, cgroups, lingers) == word
    assert systemd.what_ends_it(manager, cgroups, lingers, True) == ("other-unit" if not there else word)
    assert systemd.look_what_ends_it(Manager()) in ("no-unit", "other-unit")
