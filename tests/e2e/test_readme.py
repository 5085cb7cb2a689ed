"""README.md's walk of the three verbs, as it stands there, on the rehearsal model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT
from tests.e2e.harness import Home
from tests.e2e.model import Model

WALK = (ROOT / "README.md").read_text().partition("## The three verbs in a minute")[2].partition("\n## ")[0]


@pytest.fixture
def bare() -> Iterator[Home]:
    """A home without any configuration, as a newcomer's is."""
    with Home() as home:
        (home.work / ".gitignore").write_text("build/\n")
        (home.work / "Makefile").touch()
        (home.work / "src").mkdir()
        yield home


def test_the_walk_shows_in_the_log_which_step_took_which(bare: Home) -> None:
    lines = re.findall(r"\$ (dshctl .*)", WALK)
    commands = [shlex.split(line.replace("sleep 20", "sleep 3")) for line in lines]
    assert [command[1] for command in commands] == ["followup", "steer", "inject", "followup", "queue"]
    for command in commands:
        said = bare.ok(*command[1:])
    assert re.findall(r"(?m)^next (?:step|turn)$", said) == ["next step", "next turn"]
    bare.ok("wait")
    taken = [(e["data"]["verb"], e["data"]["turn"], e["data"]["step"]) for e in bare.said()]
    assert taken == [("followup", 1, 1), ("steer", 1, 2), ("inject", 1, 2), ("followup", 2, 1)]
    log = bare.ok("log")
    for line in ("you steered: read .gitignore", "you told it: it is Monday", "  I was told: it is Monday"):
        assert line in log


def test_the_first_command_ends_with_the_answer_alone_on_stdout(bare: Home) -> None:
    done = bare.ctl("run", "--model", "rehearsal", "what is in this directory?")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "2 entries: Makefile, src")
    assert "started dshd" in done.stderr
    assert "Go on: dshctl followup -s" in done.stderr


def test_the_address_of_a_server_is_all_that_a_run_needs(bare: Home, model: Model) -> None:
    done = bare.ctl("run", "hello", env={**bare.env, "OPENAI_BASE_URL": model.url})
    assert (done.returncode, done.stdout) == (0, "echo: hello\n"), done.stderr
    assert model.requests[0]["model"] == "mock"


def test_every_text_gets_an_answer_from_the_rehearsal_model(bare: Home) -> None:
    for text in ("do something clever", "ask", "wait 0s", "write a.txt: hello", "read nothing.txt"):
        assert bare.ctl("run", "--model", "rehearsal", text).stdout, text
    assert (bare.work / "a.txt").read_text().strip() == "hello"
    assert bare.ctl("run", "--model", "rehearsal", "fail").returncode == 10
