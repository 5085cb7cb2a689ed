"""`retry` and `fsck --requests` with the real programs."""

from __future__ import annotations

import signal
from typing import Any

from tests.e2e.harness import Home, eventually, texts
from tests.e2e.model import Model, bash, script

WAIT_FOR_GO = "touch began; while [ ! -e go ]; do sleep 0.02; done"


def kill(home: Home, daemon: Any) -> None:
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    eventually(lambda: not home.answers(), what="it is dead")


def test_a_turn_that_a_crash_interrupted_is_retried_and_every_request_is_made_again(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    id = home.ok("followup", script(bash(WAIT_FOR_GO), {"text": "all done"}, say="work"))
    eventually((home.work / "began").exists, what="the command runs")
    kill(home, daemon)
    home.start()
    assert home.ctl("wait", id).returncode == 14
    (home.work / "go").touch()
    told = home.ctl("retry", "--follow")
    assert (told.returncode, told.stdout) == (0, "all done\n")
    (again,) = home.json("retry", exit=5)
    assert "ended completed" in again["message"]
    (shown,) = home.json("message", id)
    assert (shown["attempts"], shown["outcome"], shown["turn"]) == ([1, 2], "completed", 2)
    assert len(texts(home.said())) == 1
    (checked,) = home.json("fsck", "--requests")
    assert checked["requests"] == {"compared": 2, "different": 0, "first": None, "not_comparable": 0}
    home.ok("daemon", "stop")
    assert "2 requests made again" in home.ok("fsck", "--requests")


def test_a_key_that_failed_is_retried_only_when_that_is_asked_for(home: Home, model: Model) -> None:
    home.start()
    text = script({"status": 400, "body": "no"}, say="work")
    assert home.ctl("followup", "--key", "k", "--wait", text).returncode == 10
    (plain,) = home.json("followup", "--key", "k", text)
    assert (plain["duplicate"], plain["retried"], plain["outcome"]) == (True, False, "error")
    assert home.ctl("followup", "--key", "k", "--retry", "--wait", text).returncode == 10
    (shown,) = home.json("message", plain["message"])
    assert shown["attempts"] == [1, 2]
    assert home.ctl("followup", "--retry", "x").returncode == 2
    home.ok("fsck", "--requests")


def test_a_failed_run_is_retried_by_its_key_in_the_session_it_made(home: Home, model: Model) -> None:
    home.start()
    text = script({"status": 400, "body": "no"}, say="triage")
    first = home.json("run", "--key", "nightly", text, exit=10)
    again = home.json("run", "--key", "nightly", "--retry", text, exit=10)
    assert again[0]["session"] == first[0]["session"]
    assert (again[0]["retried"], again[-1]["turn"]) == (True, 2)
