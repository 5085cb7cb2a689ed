"""`--spool`: what is kept when there is no daemon, and what isn't."""

from __future__ import annotations

import errno
import json
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from dshctl import client
from dshd import spool
from dshd.log.disk import RealDisk
from dshd.spool import Spool
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, Fake
from tests.dshctl.test_schemas import check

Json = dict[str, Any]


def kept(dshctl: Dshctl) -> list[spool.Spooled]:
    place = Spool(RealDisk(), dshctl.state)
    return [place.read(name) for name in place.waiting()]


@pytest.mark.parametrize("verb", ["followup", "steer", "inject"])
def test_without_a_daemon_a_send_is_kept_and_the_receipt_says_so(dshctl: Dshctl, verb: str) -> None:
    ran = dshctl(verb, "-s", "api", "--spool", "--json", "now add tests")
    assert ran.code == 0, ran
    receipt = ran.last
    check(receipt)
    assert (receipt["spooled"], receipt["state"], receipt["exit"]) == (True, "spooled", 0)
    (one,) = kept(dshctl)
    assert one.id == receipt["message"]
    assert (one.send["verb"], one.send["session"], one.send["text"]) == (verb, "api", "now add tests")
    assert one.send["cwd"] == str(Path.cwd())


def test_nobody_else_can_read_it(dshctl: Dshctl) -> None:
    dshctl("followup", "--spool", "x")
    place = dshctl.state / "spool"
    (file,) = place.iterdir()
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_person_gets_the_name_and_a_sentence(dshctl: Dshctl) -> None:
    ran = dshctl("followup", "-s", "api", "--spool", "x", tty=True)
    assert ran.out.strip() == kept(dshctl)[0].id
    assert "api, kept until the daemon is back." in ran.err


@pytest.mark.parametrize("flags", [
    ("--wait",), ("--follow",), ("--wait", "--tied"), ("--if-idle",), ("--if-empty",), ("--if-turn", "3"),
    ("--dry-run",),
], ids=" ".join)  # fmt: skip
def test_what_needs_a_daemon_now_is_3_and_nothing_is_written(dshctl: Dshctl, flags: tuple[str, ...]) -> None:
    ran = dshctl("followup", "--spool", *flags, "x")
    assert ran.code == 3, ran
    assert not dshctl.state.exists()


def test_inject_if_exists_is_3_and_nothing_is_written(dshctl: Dshctl) -> None:
    assert dshctl("inject", "--spool", "--if-exists", "x").code == 3
    assert not dshctl.state.exists()


def test_without_the_option_nothing_is_kept(dshctl: Dshctl) -> None:
    assert dshctl("followup", "x").code == 3
    assert not dshctl.state.exists()


def test_with_a_daemon_it_is_an_ordinary_send(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    ran = dshctl("followup", "--spool", "--json", "x")
    assert (ran.code, ran.last["message"]) == (0, "s4h8w2c1.17")
    assert kept(dshctl) == []


def test_a_daemon_that_takes_the_connection_and_does_not_answer_is_no_reason_to_keep_it(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch, fake: Fake
) -> None:
    monkeypatch.setattr(client, "HELLO_S", 0.2)
    dshctl.socket.unlink()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(dshctl.socket))
        silent.listen()
        assert dshctl("followup", "--spool", "x").code == 3
    assert kept(dshctl) == []


def test_with_a_daemon_that_nobody_can_reach_it_is_kept(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HIDDEN_S", 0.1)
    dshctl.socket.unlink()
    ran = dshctl("followup", "--spool", "--json", "x")
    assert (ran.code, ran.last["state"]) == (0, "spooled"), ran
    assert [one.id for one in kept(dshctl)] == [ran.last["message"]]


def test_a_daemon_that_can_not_be_started_is_as_good_as_none(dshctl: Dshctl) -> None:
    (dshctl.home / "config.toml").write_text("[routes\n")
    ran = dshctl("followup", "--spool", "--json", "x", DSHD_AUTOSTART="1")
    assert (ran.code, ran.last["state"]) == (0, "spooled"), ran


def test_a_text_that_no_daemon_takes_is_refused_at_once(dshctl: Dshctl) -> None:
    ran = dshctl("followup", "--spool", stdin=b"x" * (8 * 1024 * 1024 + 1))
    assert ran.code == 6, ran
    assert kept(dshctl) == []


def test_while_it_waits_its_name_is_told_to_wait_too(dshctl: Dshctl) -> None:
    name = dshctl("followup", "--spool", "x").out.strip()
    for command in ("message", "answer"):
        ran = dshctl(command, name)
        assert ran.code == 75
        assert "on disk, in the spool" in " ".join(ran.err.split())
    assert "1 spooled send to be taken up." in dshctl("status").out


def test_refused_ones_are_counted_with_the_command_to_look(dshctl: Dshctl) -> None:
    name = dshctl("followup", "--spool", "x").out.strip()
    place = Spool(RealDisk(), dshctl.state)
    (file,) = place.waiting()
    place.refuse(file, {"reason": 'no session "x"'}, place.read(file))
    assert json.loads((place.refused / file).read_text())["reason"] == 'no session "x"'
    assert f"1 spooled send refused:  grep . {place.refused}/*.json" in dshctl("status").out
    assert "was refused" in dshctl("message", name).err


@pytest.mark.parametrize("daemon", [True, False])
def test_a_spool_that_cannot_be_read_is_a_line_of_the_status(dshctl: Dshctl, daemon: bool) -> None:
    dshctl.state.mkdir()
    (dshctl.state / "spool").symlink_to("spool")
    if daemon:
        assert dshctl.process("daemon", "start", env=dshctl.environ).code == 0
    ran = dshctl("status")
    if daemon:
        assert dshctl.process("daemon", "stop").code == 0
    assert ran.code == (0 if daemon else 3)
    assert f"The spool can't be read: {dshctl.state}/spool" in ran.out
    assert "symbolic links" in ran.out


def test_with_no_room_to_keep_it_a_send_is_told_not_to_be_sent(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Spool, "put", full)
    ran = dshctl("followup", "--spool", "x")
    assert ran.code == 75
    assert ran.err.startswith("dshctl: not sent: no space on")
