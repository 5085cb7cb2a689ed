"""What Tab gives, at any place of a line; and the scripts, in a shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dshctl import pages
from dshctl.cli import COMMANDS
from dshctl.completing import split
from tests.dshctl import test_offline
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import SESSION, Fake, message

Json = dict[str, Any]


@pytest.fixture
def asked(dshctl: Dshctl, fake: Fake) -> Any:
    """The words that may come at the end of a line."""
    listing = [{**SESSION, "name": name} for name in ("api", "a:b/c", "web")]
    model = {"route": "fast", "model": "m"}
    fake.answers = {
        "approval.list": {
            "approvals": [{"id": "a3", "name": "docs", "what": "rm -rf build/"}],
            "allowed": [],
        },
        "schedule.list": {"schedules": [{"id": "c1", "when": "0 3 * * *", "text": "triage"}]},
        "session.list": {"type": "sessions", "sessions": listing, "current": None, "closed": 0},
        "queue.ls": {"type": "queue", "session": SESSION, "messages": [message(17), message(18)]},
        "model.list": {"type": "models", "models": [model], "default": "fast"},
    }

    def ask(line: str) -> list[str]:
        ran = dshctl("completion", "--line", line)
        assert (ran.code, ran.err) == (0, "")
        return [row.partition("\t")[0] for row in ran.out.splitlines()]

    return ask


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dshctl ste", ["steer"]),
        ("/opt/bin/dshctl -q ste", ["steer"]),
        ("dshctl queue ed", ["edit"]),
        ("dshctl config ", ["check", "show"]),
        ("dshctl steer --fi", ["--first", "--file"]),
        ("dshctl show ", ["api", "a:b/c", "web"]),
        ("dshctl show a", ["api", "a:b/c"]),
        ("dshctl steer -s w", ["web"]),
        ("dshctl steer --session w", ["web"]),
        ("dshctl steer --session=w", ["--session=web"]),
        ("dshctl rm api w", ["web"]),
        ("dshctl message ", ["s4h8w2c1.17", "s4h8w2c1.18"]),
        ("dshctl queue rm s4h8w2c1.17 s4", ["s4h8w2c1.17", "s4h8w2c1.18"]),
        ("dshctl why -s api ", ["s4h8w2c1.17", "s4h8w2c1.18"]),
        ("dshctl run --model ", ["fast"]),
        ("dshctl run --mode r", ["read-only"]),
        ("dshctl run -C ", ["//directories"]),
        ("dshctl followup --file ", ["//files"]),
        ("dshctl set mo", ["model=", "mode=", "//nospace"]),
        ("dshctl set net=o", ["net=on", "net=off"]),
        ("dshctl completion f", ["fish"]),
        ("dshctl key ", ["fast"]),
        ("dshctl allow ", ["a3"]),
        ("dshctl deny a", ["a3"]),
        ("dshctl schedule rm ", ["c1"]),
        ("dshctl nosuch ", []),
        ("dshctl 'unfinished ", []),
        ("dshctl", []),
        ("", []),
    ],
)
def test_what_may_come_next(asked: Any, line: str, words: list[str]) -> None:
    assert sorted(asked(line)) == sorted(words)


def test_every_command_is_offered_and_what_is_said_in_words_is_not(asked: Any) -> None:
    assert asked("dshctl ") == list(COMMANDS)
    assert asked("dshctl steer 'use ") == []
    assert "--timeout" in asked("dshctl ping --")
    assert asked("dshctl followup -- --") == []


def test_messages_are_those_of_the_session_that_was_named(asked: Any, fake: Fake) -> None:
    asked("dshctl why -s web ")
    assert fake.params("queue.ls")[-1]["session"] == "web"


@pytest.mark.parametrize("word", sorted(COMMANDS))
def test_no_place_in_any_command_is_an_error(asked: Any, word: str) -> None:
    for rest in ("", "-", "--", "x ", "--x ", "-s ", "-s api ", "--json "):
        asked(f"dshctl {word} {rest}")


def test_without_a_daemon_the_files_are_asked_and_none_is_started(dshctl: Dshctl) -> None:
    ran = dshctl("completion", "--line", "dshctl show ", DSHD_AUTOSTART="1")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert not dshctl.state.exists()
    test_offline.write(dshctl)
    assert dshctl("completion", "--line", "dshctl show ", DSHD_AUTOSTART="1").out.startswith("api\t")
    assert "deepseek" in dshctl("completion", "--line", "dshctl run --model ").out


def test_who_presses_tab_sees_no_error(dshctl: Dshctl, fake: Fake) -> None:
    ran = dshctl("completion", "--line", "dshctl show ")  # the fake refuses what it doesn't know
    assert (ran.code, ran.err) == (0, "")


def test_lines_that_are_not_finished_have_words() -> None:
    assert split("dshctl a ") == ["dshctl", "a", ""]
    assert split("dshctl 'a b") == ["dshctl", "a b"]
    assert split('dshctl "a ') == ["dshctl", "a "]
    assert split("dshctl a\\") == ["dshctl", "a\\"]


def test_a_script_is_printed_and_a_shell_must_be_named(dshctl: Dshctl) -> None:
    for shell, path in pages.COMPLETIONS.items():
        assert dshctl("completion", shell).out == Path(path).read_text()
    assert dshctl("completion").code == 2
    assert dshctl("completion", "tcsh").code == 2


SHELL = """
eval "$(cat {script})"
COMP_LINE={line!r} COMP_POINT=${{#COMP_LINE}}
read -ra COMP_WORDS <<<"$COMP_LINE"; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
compopt() {{ :; }}
_dshctl {program} 2>/dev/null; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [("dshctl ste", ["steer"]), ("dshctl show a", ["api", "a:b/c"]), ("dshctl show a:", ["b/c"]),
     ("dshctl set net=of", ["off"]), ("dshctl run -C {home}/ru", ["{home}/run"])],
)  # fmt: skip
def test_the_script_works_in_bash(asked: Any, dshctl: Dshctl, line: str, words: list[str]) -> None:
    program = dshctl.home / "dshctl"
    environ = " ".join(f"{name}={value!r}" for name, value in dshctl.environ.items())
    program.write_text(f'#!/bin/sh\nexec env {environ} {sys.executable} -m dshctl.cli "$@"\n')
    program.chmod(0o755)
    text = SHELL.format(script=pages.COMPLETIONS["bash"], line=line.format(home=dshctl.home), program=program)
    done = subprocess.run(
        ["bash", "--norc", "-c", text], capture_output=True, text=True, timeout=20, cwd=dshctl.home
    )
    assert done.stdout.splitlines() == [word.format(home=dshctl.home) for word in words], done.stderr


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "-n")])
def test_the_scripts_are_whole(shell: str, check: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    done = subprocess.run([shell, check, pages.COMPLETIONS[shell]], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
