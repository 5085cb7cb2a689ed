"""The processes that watch over tools, killed or stopped under a daemon that lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Home, alive, descendants, eventually, running
from tests.e2e.model import Model, bash, script

# One that left everything behind by which it could be known, but for its name.
NAMELESS = "setsid -f env -i bash -c 'exec -a {name} sleep 1000' >/dev/null 2>&1; sleep 1000"


@pytest.fixture
def busy(home: Home, model: Model) -> Iterator[tuple[Home, Any, str]]:
    """(home, daemon, the command's name): a daemon with a command in mode full."""
    daemon = home.start()
    name = f"dshd-nameless-{os.getpid()}"
    home.ok("new", "--name", "s", "--mode", "full")
    home.ok("followup", "-s", "s", script(bash(NAMELESS.format(name=name)), {"text": "done"}))
    eventually(lambda: running(name), what="the command runs")
    yield home, daemon, name
    for pid in running(name):
        os.kill(pid, signal.SIGKILL)


def helpers(daemon: Any) -> list[int]:
    named = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in descendants(daemon.pid)}
    return [pid for pid, name in named.items() if name in ("dshd-spawn", "dshd-call")]


def signal_all(pids: list[int], *signums: int) -> None:
    for signum in signums:
        for pid in pids:
            os.kill(pid, signum)


def result(home: Home) -> str:
    return str(home.wait_event("tool/result")["data"]["content"][0]["text"])


def test_when_all_helpers_are_killed_the_result_is_told_when_nothing_is_left(
    busy: tuple[Home, Any, str],
) -> None:
    home, daemon, name = busy
    signal_all(helpers(daemon), signal.SIGSTOP, signal.SIGKILL)
    assert result(home) == "the process that watches over tools died; what it ran was ended"
    assert running(name) == []
    assert home.ok("wait", "-s", "s") == ""
    eventually(lambda: all(map(alive, descendants(daemon.pid))), what="no zombies")
    home.ok("followup", "-s", "s", "--wait", script(bash("echo fine"), {"text": "done"}))
    assert "fine" in home.log(type="tool/result")[1]["data"]["content"][0]["text"]


def test_an_abort_while_all_helpers_are_stopped_answers_when_nothing_is_left(
    busy: tuple[Home, Any, str],
) -> None:
    home, daemon, name = busy
    signal_all(helpers(daemon), signal.SIGSTOP)
    assert home.json("abort", "-s", "s")[0]["outcome"] == "aborted"
    assert running(name) == []


def test_what_was_left_by_all_of_them_killed_at_once_is_ended_at_the_next_start(
    busy: tuple[Home, Any, str],
) -> None:
    home, daemon, name = busy
    signal_all([*helpers(daemon), daemon.pid], signal.SIGSTOP, signal.SIGKILL)
    daemon.wait()
    assert running(name), "this test needs something to be left"
    home.start()
    eventually(lambda: not running(name), what="it is ended")
