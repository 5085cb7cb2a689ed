"""Every recipe of dshd-cookbook(7), run as it stands on the page, in the order in which a night goes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.recipes import PAGE, recipes
from tests.e2e.harness import PROGRAMS, Home, eventually
from tests.e2e.model import Model, bash, script

RECIPES = recipes()
TRIED: set[str] = set()


class Kitchen(Home):
    """A home in which recipes are tried; its work directory is a repository."""

    model: Model

    def recipe(self, name: str, *, exit: int = 0) -> str:
        """Run it with ``sh -e`` in the work directory; what it printed."""
        TRIED.add(name)
        return self.sh(RECIPES[name], exit=exit)

    def sh(self, text: str, *, exit: int = 0, input: str | None = None, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["sh", "-ec", text], cwd=cwd or self.work, env=self.env, timeout=40,
            input=input or "", capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == exit, f"{text}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def cron(self, line: str) -> str:
        """As cron would: from the home, by /bin/sh, with hardly any environment, ``%`` being a newline."""
        *when, command = line.split(maxsplit=5)
        assert len(when) == 5
        assert "%" not in command
        few = {name: self.env[name] for name in ("HOME", "DSHD_HOME")} | {"PATH": f"{PROGRAMS}:/usr/bin:/bin"}
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=self.work, env=few, timeout=40, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def home() -> Iterator[Kitchen]:
    with Model() as model, Kitchen() as home:
        home.model = model
        (home.work / "src" / "api").mkdir(parents=True)
        (home.work / "src" / "api" / "token.py").write_text("pass\n")
        home.sh("git init -q . && git config user.email you@h && git config user.name you")
        yield home


def test_a_model_server_of_ones_own(home: Kitchen) -> None:
    config = RECIPES["local"].replace("http://127.0.0.1:8080/v1", home.model.url)
    assert config != RECIPES["local"]
    TRIED.add("local")
    priced = 'price = { input = 100000.0, output = 0.0 }\nmodel = "mock"\n'
    (home.path / "config.toml").write_text(config)
    home.start()
    shown = home.recipe("reload")
    assert "ok    local" in shown
    assert "echo: what is in this directory?" in shown
    (home.path / "config.toml").write_text(f"{config}{priced}{RECIPES['limits']}")
    TRIED.add("limits")
    assert "right" in home.sh("dshctl config check && dshctl daemon reload")


def test_a_night(home: Kitchen) -> None:
    line = RECIPES["cron"]
    TRIED.add("cron")
    message = home.cron(line)
    assert home.cron(line) == message  # twice is once
    home.ok("wait", message)
    assert home.recipe("schedule").strip().startswith("c")
    shown = home.recipe("nine")
    assert "echo: triage the new issues" in shown
    assert "triage the new issues" in shown
    home.recipe("script")
    assert (home.work / "report.md").read_text() == "echo: triage the new issues\n"


def test_steering_from_an_editor_and_a_hook_that_injects(home: Kitchen) -> None:
    running = home.ok("followup", script({"gate": "go", **bash("true")}, {"text": "done"}))
    home.model.wait_requests(1)
    TRIED.add("vim")
    mapping = RECIPES["vim"]
    assert mapping.startswith("xnoremap ")
    home.sh(mapping.partition("!")[2].partition("<CR>")[0], input="def f(): ...\n")
    home.recipe("ref")
    hook = home.work / ".git" / "hooks" / "post-commit"
    hook.write_text(RECIPES["hook"])
    TRIED.add("hook")
    hook.chmod(0o755)
    home.sh("git commit -q --allow-empty -m 'Fix login'")
    queued = [m for m in home.json("queue") if m["type"] == "message"]
    assert [m["verb"] for m in queued] == ["steer", "steer", "inject"]
    assert queued[0]["text"].startswith("look at this: def f(): ...")
    assert "token.py" in queued[1]["text"]
    assert queued[2]["text"].strip().endswith("Fix login")
    assert queued[2]["source"]["kind"] == "hook"
    home.model.open("go")
    home.ok("wait", running)
    home.sh("git init -q . && git commit -q --allow-empty -m x", cwd=_elsewhere(home))


def _elsewhere(home: Kitchen) -> Path:
    """A repository with the same hook, for which there is no session: it says nothing."""
    other = home.path.parent / "other"
    (other / ".git" / "hooks").mkdir(parents=True)
    hook = other / ".git" / "hooks" / "post-commit"
    hook.write_text(RECIPES["hook"])
    hook.chmod(0o755)
    home.sh("git config --global user.email you@h && git config --global user.name you")
    return other


def test_after_a_crash(home: Kitchen) -> None:
    home.ok("followup", script(bash("touch began; sleep 60"), {"text": "all done"}))
    eventually((home.work / "began").exists, what="the command runs")
    home.sh(f"kill -9 {home.json('ping')[-1]['pid']}")
    shown = home.recipe("crash")
    assert "interrupted" in shown
    assert shown.rstrip().endswith("all done")


def test_budgets(home: Kitchen) -> None:
    """A call costs 1, and there were a few of them today."""
    steps = script(bash("true"), bash("true"), {"text": "went on"})
    stopped = home.ctl("followup", "-s", "nightly", "--wait", steps)
    assert stopped.returncode == 15, stopped.stderr
    assert "local" in home.recipe("budget")
    home.ok("wait", "-s", "nightly")
    assert home.ok("answer", "-s", "nightly") == "went on"


def test_when_no_daemon_can_be_started(home: Kitchen) -> None:
    home.ok("daemon", "stop")
    shown = home.recipe("spool", exit=3)
    assert shown.startswith("spool:")
    assert "1 spooled send to be taken up" in shown
    home.sh("dshctl daemon start")
    eventually(lambda: home.ctl("message", shown.split()[0]).returncode == 0)


def test_every_recipe_was_tried() -> None:
    assert len(RECIPES) == PAGE.read_text().count(".Bd -literal")
    assert set(RECIPES) == TRIED
