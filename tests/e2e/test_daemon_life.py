"""Restarts, crashes and stops of the real daemon, seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import PROGRAMS, TIMEOUT, Home, alive, eventually, not_running, running, texts
from tests.e2e.model import Model, bash, script

Daemon = subprocess.Popen[bytes]


def end(daemon: Daemon, sig: int) -> int:
    daemon.send_signal(sig)
    return daemon.wait(TIMEOUT)


def answer_of(event: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in event["data"]["content"])


def test_a_follower_sees_everything_once_across_restarts_and_a_crash(home: Home, model: Model) -> None:
    daemon = home.start()
    session = home.ok("new", "--name", "watched")
    follower = home.popen("log", "-s", "watched", "-f", "-o", "json", "--chunks", "--all")
    home.ok("followup", "-s", "watched", "--wait", "one")
    assert end(daemon, signal.SIGTERM) == 0
    daemon = home.start()
    home.ok("followup", "-s", "watched", "--wait", "two")
    end(daemon, signal.SIGKILL)
    daemon = home.start()
    last = home.ok("followup", "-s", "watched", "three")
    home.ok("wait", last)
    want = home.wait_event("turn/end", 3, session)["seq"]
    lines: list[dict[str, Any]] = []
    assert follower.stdout
    for line in follower.stdout:
        lines.append(json.loads(line))
        if lines[-1]["seq"] == want:
            break
    follower.kill()
    follower.communicate()
    assert lines == home.log(session)[: want + 1]
    assert end(daemon, signal.SIGTERM) == 0


def test_a_waiting_client_goes_on_through_a_restart(home: Home, model: Model) -> None:
    daemon = home.start()
    waiting = home.popen("followup", "--wait", script({"text": "late", "gate": "g"}))
    model.wait_requests(1)
    end(daemon, signal.SIGKILL)
    model.open("g")
    home.start()
    _, said = waiting.communicate(timeout=TIMEOUT)
    assert waiting.returncode == 14, said


def test_kill_9_during_a_tool_leaves_a_log_that_says_what_is_known(home: Home, model: Model) -> None:
    daemon = home.start()
    calls = [{"name": "bash", "arguments": {"command": c}} for c in ("sleep 4711.1", "echo never")]
    first = home.ok("followup", script({"tools": calls}, say="first"))
    home.wait_event("tool/call")
    eventually(lambda: running("4711.1"), what="the tool runs")
    second = home.ok("followup", "second")
    end(daemon, signal.SIGKILL)
    eventually(lambda: not running("4711.1"), timeout=5, what="the tool has died with its daemon")

    home.start()
    home.ok("wait", second)
    assert home.ctl("wait", first).returncode == 14
    unknown, untouched = [answer_of(e) for e in home.log(type="tool/result")]
    assert "started, outcome unknown; check before repeating" in unknown
    assert "not started; safe to repeat" in untouched
    ends = [e["data"] for e in home.log(type="turn/end")]
    assert [(e["reason"], e.get("recovery", False)) for e in ends] == [
        ("interrupted", True),
        ("completed", False),
    ]
    assert texts(home.said())[-1] == "second"
    assert home.ctl("fsck").returncode == 0


def test_sigterm_lets_a_step_end_and_the_turn_goes_on_at_the_next_start(home: Home, model: Model) -> None:
    daemon = home.start()
    wait_for_go = bash("while [ ! -e go ]; do sleep 0.02; done")
    message = home.ok("followup", script(wait_for_go, {"text": "finished"}))
    home.wait_event("tool/call")
    daemon.terminate()
    time.sleep(0.2)
    (home.work / "go").touch()
    assert daemon.wait(TIMEOUT) == 0
    (ended,) = [e["data"] for e in home.log(type="turn/end")]
    assert (ended["reason"], ended["cause"], ended["resume"]) == ("interrupted", "shutdown", True)

    home.start()
    home.ok("wait", message)
    assert home.ok("answer", message) == "finished"
    assert home.log(type="turn/start")[1]["data"]["retry_of"]
    assert [e["data"]["is_error"] for e in home.log(type="tool/result")] == [False]


def test_a_second_sigterm_stops_at_once(home: Home, model: Model) -> None:
    daemon = home.start()
    home.ok("followup", script(bash("sleep 4711.2")))
    home.wait_event("tool/call")
    daemon.terminate()
    time.sleep(0.2)
    started = time.monotonic()
    end(daemon, signal.SIGTERM)
    assert time.monotonic() - started < 8  # and not the 10 s of a stop's patience
    eventually(lambda: not running("4711.2"), timeout=5)


def test_nothing_that_a_tool_left_outlives_its_call_or_the_daemon(home: Home, model: Model) -> None:
    daemon = home.start()
    leave = (
        "setsid sleep 4711.3 & "
        "(setsid sh -c 'trap \"\" TERM HUP; sleep 4711.4; sleep 4711.4' &) ; "
        "nohup sleep 4711.5 >/dev/null 2>&1 & "
        "echo left"
    )
    home.ok("run", script(bash(leave), {"text": "done"}), timeout=20)
    for needle in ("4711.3", "4711.4", "4711.5"):
        eventually(partial(not_running, needle), timeout=5, what=needle)
    home.ok("followup", script(bash(f"{leave}; sleep 4711.6")))
    eventually(lambda: running("4711.6"))
    family = home.processes()
    assert len(family) > 4
    end(daemon, signal.SIGKILL)
    for needle in ("4711.3", "4711.4", "4711.5", "4711.6"):
        eventually(partial(not_running, needle), timeout=5, what=needle)
    eventually(lambda: not any(map(alive, family)), timeout=5, what="none of the daemon's is left")


def test_an_aborted_tool_is_dead_when_abort_returns(home: Home, model: Model) -> None:
    home.start()
    message = home.ok("followup", script(bash("trap '' TERM; sleep 4711.7; sleep 4711.7")))
    eventually(lambda: running("4711.7"))
    home.ok("abort")
    assert not running("4711.7")
    assert home.ctl("wait", message).returncode == 12


def test_a_git_hook_starts_a_daemon_that_keeps_nothing_of_git(home: Home, model: Model) -> None:
    def git(*args: str) -> None:
        subprocess.run(
            ["git", *args], cwd=home.work, env=home.env, check=True, capture_output=True, timeout=TIMEOUT
        )

    git("init", "-q")
    git("config", "user.email", "a@b")
    git("config", "user.name", "a")
    hook = home.work / ".git" / "hooks" / "post-commit"
    text = script(bash("env | grep ^GIT_ || echo clean; pwd"), {"text": "seen"})
    (home.work / "say.txt").write_text(text)
    hook.write_text("#!/bin/sh\nexec dshctl followup - < say.txt\n")
    hook.chmod(0o755)
    git("commit", "--allow-empty", "-m", "one")  # would hang if the daemon kept git's pipes

    home.ok("wait")
    (result,) = home.log(type="tool/result")
    assert answer_of(result).split()[:2] == ["clean", str(home.work)]
    with home.rpc() as rpc:
        daemon = rpc.hello["pid"]
    assert os.readlink(f"/proc/{daemon}/cwd") == "/"
    assert b"GIT_" not in Path(f"/proc/{daemon}/environ").read_bytes()
    assert not [target for target in _open_files(daemon) if ".git" in target]


def _open_files(pid: int) -> Iterator[str]:
    """What a living process has open; it may close one while it is looked at."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(fd)


def test_cron_starts_the_daemon_and_gets_its_answer(home: Home, model: Model) -> None:
    bare = {"DSHD_HOME": str(home.path), "PATH": "/usr/bin:/bin"}
    done = home.ctl("run", "-C", str(home.work), "hello", env=bare, cwd=Path("/"))
    assert (done.returncode, done.stdout) == (0, "echo: hello\n"), done.stderr
    assert home.ctl("ping", env=bare, cwd=Path("/")).returncode == 0


def test_a_second_daemon_changes_nothing_and_exits_5(home: Home, model: Model) -> None:
    home.start()
    second = subprocess.run(
        [PROGRAMS / "dshd"], env=home.env, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert second.returncode == 5
    assert "is in use by dshd" in second.stderr
    home.ok("ping")


def test_many_clients_that_start_at_once_start_one_daemon(home: Home, model: Model) -> None:
    clients = [home.popen("followup", "--no-wake", f"m{n}") for n in range(8)]
    results = [(client.communicate(timeout=TIMEOUT), client.returncode) for client in clients]
    assert [code for _, code in results] == [0] * 8, results
    assert len(home.log(type="inbox/spliced")) == 8
    assert len([said for (_, said), _ in results if "started dshd" in said]) == 1


@pytest.mark.parametrize("gone", ["socket", "directory"])
def test_a_daemon_whose_socket_is_removed_makes_it_again(home: Home, gone: str) -> None:
    daemon = home.start()
    home.ok("new", "--name", "api")
    if gone == "socket":
        home.socket.unlink()
    else:
        shutil.rmtree(home.socket.parent)
    assert f"pid {daemon.pid}" in home.ok("daemon", "status")  # who comes meanwhile waits a little
    assert stat.S_IMODE(home.socket.lstat().st_mode) == 0o600
    assert stat.S_IMODE(home.socket.parent.stat().st_mode) == 0o700
    assert end(daemon, signal.SIGTERM) == 0
    assert not home.socket.exists()


def test_what_was_kept_for_a_daemon_that_nobody_reached_is_taken_up_as_soon_as_it_is_back(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    home.ok("new", "--name", "api")
    home.socket.unlink()
    home.socket.write_text("precious")
    kept = home.ok("followup", "--spool", "-s", "api", "hello")
    assert kept.startswith("spool:")
    assert f"dshd {daemon.pid} runs" in home.ctl("ping").stderr
    home.socket.unlink()
    daemon.send_signal(signal.SIGHUP)
    home.ok("wait", kept)
    assert texts(home.said()) == ["hello"]
    assert end(daemon, signal.SIGTERM) == 0


def test_the_daemon_and_its_helpers_have_their_names(home: Home) -> None:
    home.ok("daemon", "start")
    names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in home.processes()}
    assert "dshd" in names
    assert all(name.startswith("dshd") for name in names)
    home.ok("daemon", "stop")
