"""Budgets with the real programs: a limit is reached, said, survives, is raised; a day is everybody's."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.harness import Home, alive, eventually, running, texts
from tests.e2e.model import Model, bash, script

# An answer of the model server is 10 tokens in and 5 out: at this price, a dollar.
CONFIG = """
model = "mock"
[routes.mock]
adapter = "openai"
base_url = "{url}"
model = "m"
price = {{ input = 100000, output = 0 }}
[budget]
{limits}
"""
Make = Callable[[str], Home]


@pytest.fixture
def make(model: Model) -> Iterator[Make]:
    """A home with these limits."""
    with ExitStack() as homes:
        yield lambda limits: homes.enter_context(Home(CONFIG.format(url=model.url, limits=limits)))


def kill(home: Home, daemon: Any) -> None:
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    eventually(lambda: not home.answers(), what="it is dead")


def work(steps: int) -> str:
    """So many calls of a tool, then an answer; a dollar each."""
    return script(*[bash("true")] * steps, {"text": "all done"}, say="work")


def test_a_cost_that_is_reached_is_said_everywhere_survives_and_is_raised(make: Make, model: Model) -> None:
    home = make("turn_cost = 2")
    daemon = home.start()
    done = home.ctl("followup", "-s", "nightly", "--create", "--wait", work(4))
    assert done.returncode == 15
    assert "nightly: turn 1 used its budget up: turn cost $2.00 of $2.00.\n" in done.stderr
    assert "dshctl wake -s nightly --add cost=0.8\n" in done.stderr
    behind = home.ok("inject", "-s", "nightly", "a fact")
    waits = home.ok("followup", "-s", "nightly", "--no-wake", "next")
    for _ in range(2):
        shown = json.loads(home.ok("show", "nightly", "--json"))
        park = shown["parked"]
        assert (park["by"], park["what"], park["count"]) == ("budget", "turn_cost", 2)
        assert park["budget"]["add"] == "cost=0.8"
        assert "turn cost $2.00, 2 wait" in home.ok("status")
        assert "dshctl wake -s nightly" in home.ok("status")
        assert "turn cost $2.00 (dshctl wake -s nightly)" in home.ok("queue", "-s", "nightly")
        why = home.ok("why", waits)
        assert "because turn cost $2.00 is used up" in why
        assert "dshctl wake -s nightly --add cost=0.8" in why
        stuck = home.ctl("wait", waits)
        assert stuck.returncode == 18
        assert "(budget: $2.00 a turn); 2 wait" in " ".join(stuck.stderr.split())
        kill(home, daemon)
        daemon = home.start()
    assert home.ctl("wake", "-s", "nightly", "--add", "steps=4").returncode == 5
    assert home.ctl("wake", "-s", "nightly", "--add", "cost=x").returncode == 2
    assert home.ok("wake", "-s", "nightly", "--add", "cost=8") == "nightly: goes on with turn 2; 2 queued."
    home.ok("wait", waits)
    home.ok("wait", "-s", "nightly")
    (session,) = home.sessions()
    starts = [event["data"].get("retry_of") for event in home.log(session, "turn/start")]
    assert starts == [None, 1, None]
    assert home.ok("answer", "-s", "nightly", "-n", "2") == "all done"
    assert texts(home.said(session))[1:] == ["a fact", "next"]
    assert json.loads(home.ok("message", behind, "--json"))["outcome"] == "completed"
    assert home.ctl("wake", "-s", "nightly", "--add", "cost=1").returncode == 5
    home.ok("fsck")


def test_a_day_is_all_sessions_and_outlives_kills_and_deletions(make: Make, model: Model) -> None:
    home = make("day_cost = 4")
    daemon = home.start()
    assert home.ctl("run", "--rm", work(0)).returncode == 0
    assert home.ctl("followup", "-s", "one", "--create", "--wait", work(1)).returncode == 0
    kill(home, daemon)
    daemon = home.start()
    assert "$3.00 of $4" in home.ok("status")
    assert home.ctl("followup", "-s", "two", "--create", "--wait", work(3)).returncode == 15
    kill(home, daemon)
    home.start()
    stuck = home.ctl("followup", "-s", "one", "--wait", "more")
    assert stuck.returncode == 18
    assert "(budget: $4.00 a day); 1 wait" in " ".join(stuck.stderr.split())
    asked = len(model.requests)
    refused = home.ctl("wake", "-s", "one")
    assert refused.returncode == 5
    assert "day cost $4.00 of $4.00 is used up" in refused.stderr
    home.ok("wake", "-s", "two", "--add", "cost=10")
    home.ok("wait", "-s", "two")
    assert home.ok("answer", "-s", "two") == "all done"
    home.ok("wake", "--all")
    home.ok("wait", "-s", "one")
    assert len(model.requests) == asked + 4
    assert "$8.00 of $14" in home.ok("status")
    home.ok("fsck")


def test_steps_and_time_of_one_run_are_its_own(make: Make, model: Model) -> None:
    home = make("")
    home.start()
    (*_, result) = home.json("run", "--max-steps", "1", work(2), exit=15)
    assert result["budget"] == {
        "what": "turn_steps",
        "limit": 1,
        "spent": 1,
        "currency": None,
        "add": "steps=1",
    }
    sleeps = script(bash("exec sleep 4711"), {"text": "awake"}, say="sleep")
    (*_, result) = home.json("run", "--max-time", "1", "--mode", "full", sleeps, exit=15)
    assert (result["outcome"], result["budget"]["what"]) == ("budget", "turn_time")
    assert not [pid for pid in running("4711") if alive(pid)]
    home.ok("wake", "-s", result["session"], "--add", "time=1s")
    home.ok("wait", result["message"])
    assert home.ok("answer", result["message"]) == "awake"


def test_a_cost_without_a_price_is_refused_where_it_is_set(home: Home, model: Model) -> None:
    home.start()
    refused = home.ctl("run", "--max-cost", "2", "x")
    assert refused.returncode == 9
    assert 'a cost limit needs prices, and route "mock" has none.' in refused.stderr
    assert home.sessions() == []
    home.ok("new", "--name", "api")
    assert home.ctl("set", "api", "max-cost=2").returncode == 9
    assert home.ok("set", "api", "max-steps=5") == "api: max_steps 5 steps."
