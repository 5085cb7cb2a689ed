"""What the real daemon keeps a sandboxed command from, and what it lets it do."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Model, bash, script


def run(home: Home, *commands: str) -> list[str]:
    """The results' texts."""
    items = [bash(command) for command in commands]
    sent = home.json("followup", "-s", "w", "--create", "--wait", script(*items, {"text": "done"}))
    assert sent[-1]["exit"] == 0
    return [e["data"]["content"][0]["text"] for e in home.log(type="tool/result")][-len(commands) :]


def test_what_would_be_run_by_itself_does_not_come_into_being_and_the_result_says_so(
    home: Home, model: Model
) -> None:
    (home.work / "old/.git/hooks").mkdir(parents=True)
    top, deep, hook = run(
        home,
        "P=prof; echo evil > .${P}ile; echo fine > file",
        "mkdir -p sub/.ssh .config/autostart; echo evil > sub/.bashrc; echo evil > sub/.ssh/rc",
        "echo evil > old/.git/hooks/pre-commit",
    )
    assert f"[{home.work}/.profile is protected here, so what the command did to it was undone]" in top
    for place in (".config/autostart", "sub/.bashrc", "sub/.ssh"):
        assert f"[{home.work}/{place} is protected here" in deep
    assert "Read-only file system" in hook
    left = sorted(str(path.relative_to(home.work)) for path in home.work.rglob("*"))
    assert left == [".config", "file", "old", "old/.git", "old/.git/hooks", "sub"]
    (session,) = home.sessions()
    kept = home.state / "sessions" / session / "spill" / "removed"
    assert len(list(kept.iterdir())) == 4


def test_repositories_can_be_made_and_cloned(home: Home, model: Model) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    made, cloned = run(
        home,
        "git init -q new && cd new && git config user.email a@b && git config user.name a"
        " && echo x > x && git add x && git commit -qm one",
        "git clone -q new/.git copy && ls copy/.git/hooks && git -C copy log --oneline | wc -l",
    )
    assert "[exit 0" in made
    assert "\n1\n[exit 0" in cloned
    assert "protected" not in made + cloned


def test_a_file_that_a_route_names_as_its_key_is_seen_by_no_tool(home: Home, model: Model) -> None:
    key = home.work / "key"
    key.write_text("sk-of-mine")
    key.chmod(0o644)
    with (home.path / "config.toml").open("a") as config:
        config.write(f'api_key_file = "{key}"\n')
    look = {"name": "read", "arguments": {"path": "key"}}
    search = {"name": "grep", "arguments": {"pattern": "sk-of"}}
    items = [bash("cat key; cp key other; cat other"), {"tools": [look]}, {"tools": [search]}]
    sent = home.json("followup", "-s", "w", "--create", "--wait", script(*items, {"text": "done"}))
    assert sent[-1]["exit"] == 0
    told = str(home.log(type="tool/result"))
    assert "hidden from tools" in told
    assert "sk-of-mine" not in told
    assert f"which others can read: chmod 600 {key}" in home.ok("config", "check")
