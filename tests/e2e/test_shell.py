"""What shell commands do to other agents' tools, done to this one: each with the real programs, sandboxed
and not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home, alive, descendants, eventually, running
from tests.e2e.model import Model, bash, script

LONG = f"9{os.getpid()}"  # s to sleep; found by it afterwards


@attrs.frozen
class Ran:
    text: str
    seconds: float
    data: dict[str, Any]


class Shell:
    """A daemon with a session in each mode; runs commands there."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.daemon = home.start()
        for mode in ("workspace", "full"):
            home.ok("new", "--name", mode, "--mode", mode)

    def run(self, mode: str, command: str, **limits: float) -> Ran:
        item = bash(command)
        item["tools"][0]["arguments"].update(limits)
        began = time.monotonic()
        sent = self.home.json("followup", "-s", mode, "--wait", script(item, {"text": "done"}))
        event = self.home.log(sent[-1]["session"], "tool/result")[-1]
        return Ran(event["data"]["content"][0]["text"], time.monotonic() - began, event["data"])


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    env = {"MOCK_KEY": "sesame", "DEEPSEEK_API_KEY": "sesame"}
    with Model() as model, Home(CONFIG.format(url=model.url) + 'api_key_env = "MOCK_KEY"\n', env) as home:
        yield Shell(home)


@pytest.fixture(params=["workspace", "full"])
def sh(shell: Shell, request: pytest.FixtureRequest) -> Iterator[Callable[..., Ran]]:
    yield lambda command, **limits: shell.run(request.param, command, **limits)
    assert running(LONG) == []
    eventually(lambda: all(map(alive, descendants(shell.daemon.pid))), 5, "no zombie below the daemon")


RETURNS = {
    "a child that writes on": ("(while :; do echo x; sleep .1; done) & sleep 0.3; echo done", "done"),
    "a child in a session of its own": (f"setsid sleep {LONG} & echo spawned", "spawned"),
    "much on stderr first": ("head -c 1000000 /dev/zero >&2; echo ok", "ok"),
    "a hundred orphans": ("for i in $(seq 100); do sh -c '(sleep 0.2 &)'; done; echo ok", "ok"),
    "a reader of stdin": ("cat; echo ok", "ok"),
}


@pytest.mark.parametrize(("command", "says"), RETURNS.values(), ids=RETURNS.keys())
def test_a_command_returns_when_its_shell_does(sh: Callable[..., Ran], command: str, says: str) -> None:
    ran = sh(command)
    assert says in ran.text
    assert "[exit 0" in ran.text
    assert ran.seconds < 5


HANGS = {
    "grandchildren": f"sh -c 'sleep {LONG} & sleep {LONG}; true'",
    "a pipeline": f"grep -r x /dev/zero | cat; sleep {LONG}; true",
    "a session of its own": f"setsid sh -c 'sleep {LONG}' & sleep {LONG}",
    "deaf to TERM": f"timeout 30 bash -c \"trap '' TERM; sleep {LONG}; sleep {LONG}\" | cat",
}


@pytest.mark.parametrize("command", HANGS.values(), ids=HANGS.keys())
def test_at_its_time_limit_a_command_is_over_with_all_it_started(
    sh: Callable[..., Ran], command: str
) -> None:
    ran = sh(command, timeout=1)
    assert "time limit: stopped after 1.0 s" in ran.text
    assert ran.seconds < 5


def test_what_was_stopped_does_nothing_afterwards(sh: Callable[..., Ran], shell: Shell) -> None:
    sh(f"(sleep 1.5; touch sentinel) & sleep {LONG}", timeout=0.5)
    time.sleep(1.5)
    assert not (shell.home.work / "sentinel").exists()


def test_a_command_has_a_group_of_its_own_and_dev_null_to_read(sh: Callable[..., Ran], shell: Shell) -> None:
    probe = "import os, stat; print(os.getpgid(0), os.path.realpath('/dev/fd/0'))"
    group, stdin = sh(f'python3 -c "{probe}"').text.split()[:2]
    assert int(group) != os.getpgid(shell.daemon.pid)
    assert stdin == "/dev/null"


def test_bytes_that_are_no_text_are_shown_and_all_the_rest_with_them(sh: Callable[..., Ran]) -> None:
    ran = sh(r"printf '\xf0\xff\xfe\x00'; printf 'before\xe4\xe5after\n'; head -c 200000 /dev/zero; echo end")
    assert "before\ufffd\ufffdafter" in ran.text
    assert "end\n" in ran.text
    assert ran.data["is_error"] is False


def test_one_line_of_157_mb_costs_neither_memory_nor_log(sh: Callable[..., Ran], shell: Shell) -> None:
    sh("true")
    before = peak_memory(shell.daemon.pid)
    ran = sh("head -c 157000000 /dev/zero | tr '\\0' x")
    assert "156970000 bytes left out" in ran.text
    assert len(json.dumps(ran.data)) < 100_000
    assert peak_memory(shell.daemon.pid) - before < 32 * 1024


def peak_memory(pid: int) -> int:
    """KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_keys_are_in_no_environment_that_a_command_sees_and_what_a_program_needs_is_in_it(
    sh: Callable[..., Ran],
) -> None:
    above = "p=$$; while [ $p -gt 1 ]; do cat /proc/$p/environ; p=$(cut -d' ' -f4 /proc/$p/stat); done"
    ran = sh(f"env; ({above}) 2>/dev/null | tr '\\0' '\\n' | grep -a sesame")
    names = {line.partition("=")[0] for line in ran.text.splitlines()}
    assert {"PATH", "HOME", "LC_ALL"} <= names
    assert not {"MOCK_KEY", "DEEPSEEK_API_KEY"} & names


def test_what_a_terminal_would_obey_is_kept_and_shown_harmless(sh: Callable[..., Ran], shell: Shell) -> None:
    ran = sh(r"printf '\e[2J\xc2\x9b31m\r50%%\r'")
    assert "\x1b[2J\x9b31m\r50%\r" in ran.text
    raw = (shell.home.state / "sessions" / shell.home.sessions()[0] / "log.jsonl").read_bytes()
    assert not {0x1B, 0x0D} & set(raw)
    for session in ("workspace", "full"):
        assert not set("\x1b\x9b\r") & set(shell.home.ok("log", "-s", session, "--full", "--json"))
