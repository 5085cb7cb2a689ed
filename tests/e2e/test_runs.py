"""Runs with the real programs: what stays of one that a limit stopped, and of one that is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Model, bash, script

CONFIG = """
model = "mock"
[routes.mock]
adapter = "openai"
base_url = "{url}"
model = "m"
price = {{ input = 100000, output = 0 }}
"""


@pytest.fixture
def home(model: Model) -> Iterator[Home]:
    with Home(CONFIG.format(url=model.url)) as home:
        home.start()
        yield home


def test_a_run_that_its_budget_stopped_is_seen_until_it_went_on(home: Home) -> None:
    steps = script(bash("true"), bash("true"), {"text": "all done"}, say="work")
    stopped = home.ctl("run", "--max-cost", "1", steps)
    assert stopped.returncode == 15
    assert "--add cost=" in stopped.stderr
    (view,) = home.json("ls")
    name = str(view["name"])
    assert (view["state"], view["needs"]) == ("parked", [{"kind": "parked", "id": None}])
    assert f"dshctl wake -s {name} --add cost=" in home.ok("status")
    assert home.ctl("status", "--short").stdout == "dshd 1p\n"
    assert home.ctl("status", "--check").returncode == 1
    assert home.ctl("ls").stdout.splitlines()[1].split()[:2] == [name, "parked"]
    home.ok("wake", "-s", name, "--add", "cost=9")
    home.ok("wait", "-s", name)
    assert home.ok("answer", "-s", name) == "all done"
    assert home.ctl("status", "--check").returncode == 0
    assert home.json("ls", "--all")[0]["state"] == "closed"
    assert home.ctl("ls", "--json").stdout.count('"session"') == 0


def test_what_was_spent_today_stays_spent_when_a_session_is_removed_and_imported(home: Home) -> None:
    def today() -> float:
        (status,) = home.json("status")
        return float(status["today"]["cost"])

    home.ok("new", "a")
    home.ok("followup", "-s", "a", "--wait", "hello")
    home.ok("export", "a", "-o", "a.tar")
    home.ok("rm", "--yes", "a")
    home.ok("import", "a.tar")
    home.ok("followup", "-s", "a", "--wait", "hello again")
    assert today() == 2.0
    home.ok("daemon", "restart")
    assert today() == 2.0
