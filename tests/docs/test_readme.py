"""README.md and packaging: that what they promise is what is there."""

from __future__ import annotations

import re
import subprocess
import tomllib

from dshctl.words import LATER
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text()
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    ")][:2]


def test_the_readme_begins_with_two_commands_that_need_no_earlier_step() -> None:
    assert README.splitlines()[0].strip() == COMMANDS[0]
    assert README.splitlines()[1].strip() == COMMANDS[1]
    for command in COMMANDS:
        assert "python3 -m venv .venv && .venv/bin/pip install -q -e " in command
    assert COMMANDS[0].startswith("echo ")  # pip is silent for half a minute
    assert COMMANDS[0].endswith("dshctl run --model rehearsal 'what is in this directory?'")
    assert COMMANDS[1].endswith("python -m tests.check")


def test_ci_runs_the_readmes_second_command() -> None:
    lines = [line for line in README.splitlines() if "tests.check" in line]
    assert lines[0].strip() == COMMANDS[1]
    assert "grep -m 1 'tests\\.check' README.md" in (ROOT / ".ci" / "run").read_text()


def test_what_is_not_there_yet_is_named() -> None:
    named = set(re.findall(r"`([^`]+)`", README.partition("\nNot there yet: ")[2].partition("\n\n")[0]))
    assert named == {f"dshctl {word}" for word in LATER}


def test_every_source_in_the_table_of_other_agents_is_named() -> None:
    table = README.partition("## What other agents do")[2].partition("\n## ")[0]
    used = set(re.findall(r"\[(\d+)\][^:]", table))
    given = dict(re.findall(r"^\[(\d+)\]: (https://\S+)$", table, re.MULTILINE))
    assert used == set(given)
    assert len(set(given.values())) == len(given)


def test_everything_that_is_shared_data_is_packed() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    found = {path for patterns in packed.values() for pattern in patterns for path in ROOT.glob(pattern)}
    places = ("man", "systemd", "dshctl/schema", "dshctl/completions")
    wanted = {path for where in places for path in (ROOT / where).glob("*")}
    assert found == {path for path in wanted if not path.name.startswith("__")}


def test_nothing_lies_at_the_top_that_was_not_agreed() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    top = {name.split("/")[0] for name in tracked.stdout.splitlines()}
    agreed = {"README.md", "pyproject.toml", "dshctl", "dshd", "man", "systemd", "tests"}
    assert {name for name in top if not name.startswith(".")} <= agreed
