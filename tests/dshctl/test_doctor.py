"""`dshctl doctor`: with a daemon, without one, on a terminal."""

from __future__ import annotations

import fcntl
import socket
from typing import Any

import pytest

from dshctl import client
from dshctl.commands.doctor import lines
from dshd import __version__
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import Fake

Json = dict[str, Any]


def check(name: str, level: str = "ok", what: str = "fine", fix: str | None = None) -> Json:
    return {"type": "check", "check": name, "level": level, "what": what, "fix": fix}


def test_each_check_is_a_line_with_its_fix_at_the_right() -> None:
    rows = [check("state"), check("sandbox", "warn", "Landlock used", "man dshd, SANDBOX"),
            check("fast", "fail", "FAST_API_KEY missing", "dshctl key fast")]  # fmt: skip
    assert lines(rows, None, "...") == [
        "ok    state    fine",
        "warn  sandbox  Landlock used         man dshd, SANDBOX",
        "FAIL  fast     FAST_API_KEY missing  dshctl key fast",
    ]


@pytest.mark.parametrize("limit", [79, 60])
def test_on_a_terminal_what_is_to_be_typed_is_never_cut(limit: int) -> None:
    rows = [check("state", "fail", "x" * 200, "chmod 700 /home/you"), check("other", what="y" * 200)]
    shown = lines(rows, limit, "...")
    assert all(len(line) <= limit for line in shown)
    assert shown[0].endswith("...  chmod 700 /home/you")


def test_a_failure_is_exit_1_and_a_warning_is_not(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.doctor"] = {"type": "doctor", "checks": [check("sandbox", "warn", "x", "y")]}
    assert dshctl("doctor").code == 0
    fake.answers["daemon.doctor"] = {"type": "doctor", "checks": [check("sandbox", "fail", "x", "y")]}
    ran = dshctl("doctor", "--json")
    assert (ran.code, ran.last["exit"]) == (1, 1)
    assert "FAIL  sandbox" in dshctl("doctor").out


def test_a_daemon_of_another_version_is_told_with_both(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.doctor"] = {
        "type": "doctor",
        "checks": [check("daemon", "ok", "9.9, pid 1; linger on")],
    }
    fake.hello["version"] = "9.9"
    ran = dshctl("doctor")
    assert "warn  daemon" in ran.out
    assert f"9.9, pid 1; linger on; dshctl is {__version__}" in ran.out
    assert "dshctl daemon restart" in ran.out


def test_a_daemon_that_can_not_say_it_is_a_failure_and_the_rest_is_looked_at(
    dshctl: Dshctl, fake: Fake
) -> None:
    fake.hello["version"] = "0.0.1"  # older than the method
    ran = dshctl("doctor")
    assert ran.code == 1
    assert f"FAIL  daemon    0.0.1, and dshctl is {__version__}" in ran.out
    assert "dshctl daemon restart" in ran.out
    assert "  sandbox  " in ran.out


def test_a_daemon_that_hangs_is_a_failure_with_what_to_type(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HELLO_S", 0.2)
    dshctl.state.mkdir()
    dshctl.socket.parent.mkdir()
    with (dshctl.state / "lock").open("w") as lock, socket.socket(socket.AF_UNIX) as silent:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4121 0\n")
        lock.flush()
        silent.bind(str(dshctl.socket))
        silent.listen(8)
        ran = dshctl("doctor")
    assert ran.code == 1
    assert "FAIL  daemon" in ran.out
    assert "kill" in ran.out.splitlines()[0]
    assert "  sessions  0 open" in ran.out


def test_without_a_daemon_it_looks_for_itself_and_starts_none(dshctl: Dshctl) -> None:
    (dshctl.home / "config.toml").write_text(
        'model = "a"\n[routes.a]\nadapter = "openai"\nmodel = "m"\nbase_url = "http://h"\napi_key_env = "K"\n'
    )
    ran = dshctl("doctor", DSHD_AUTOSTART="1")
    assert ran.code == 1
    assert "warn  daemon" in ran.out
    assert "K missing in the daemon" in ran.out
    assert not dshctl.state.exists()


def test_a_config_that_is_wrong_is_a_line_and_not_the_end(dshctl: Dshctl) -> None:
    (dshctl.home / "config.toml").write_text("[routes.a]\nmax_token = 1\n")
    ran = dshctl("doctor")
    assert ran.code == 1
    assert "max_tokens" in ran.out
    assert "ok    sessions" in ran.out
