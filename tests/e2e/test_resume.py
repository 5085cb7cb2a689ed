"""A session goes on where it was, whatever became of its model, its client or the daemon meanwhile."""

from __future__ import annotations

import json

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home
from tests.e2e.model import Model, script

TWO_ROUTES = (
    CONFIG
    + """
[routes.other]
adapter = "openai"
base_url = "{url}"
model = "other"
context_window = 1000000
"""
)


def whole(home: Home, session: str) -> None:
    """Each number once, none missing, and memory is what the log says."""
    events = home.log(session)
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert home.json("fsck", "--requests", session)[0]["ok"]


def test_with_another_model_the_same_log_goes_on(home: Home, model: Model) -> None:
    (home.path / "config.toml").write_text(TWO_ROUTES.format(url=model.url))
    home.start()
    id = home.ok("new", "--name", "api")
    home.ok("followup", "-s", "api", "--wait", "the first thing")
    home.ok("set", "api", "model=other")
    home.ok("followup", "-s", "api", "--wait", "the second thing")
    home.ok("daemon", "stop")
    home.start()
    home.ok("followup", "-s", "api", "--wait", "the third thing")
    whole(home, id)
    last = model.requests[-1]
    assert last["model"] == "other"
    assert "the first thing" in json.dumps(last["messages"])


def test_without_its_route_a_session_waits_and_goes_on_when_it_is_back(home: Home, model: Model) -> None:
    (home.path / "config.toml").write_text(TWO_ROUTES.format(url=model.url))
    home.start()
    id = home.ok("new", "--name", "api", "--model", "other")
    home.ok("followup", "-s", "api", "--wait", "before")
    home.ok("daemon", "stop")
    (home.path / "config.toml").write_text(CONFIG.format(url=model.url))
    home.start()
    lost = home.ctl("followup", "-s", "api", "--wait", "meanwhile")
    assert lost.returncode == 9
    assert "other" in lost.stderr
    home.ok("daemon", "stop")
    (home.path / "config.toml").write_text(TWO_ROUTES.format(url=model.url))
    home.start()
    home.ok("wake", "-s", "api")
    home.ok("wait", "-s", "api")
    assert home.ok("followup", "-s", "api", "--wait", "after") == "echo: after"
    said = json.dumps(model.requests[-1]["messages"])
    assert said.index("before") < said.index("meanwhile") < said.index("after")
    whole(home, id)


def test_many_that_say_something_in_a_new_directory_at_once_say_it_in_one_session(
    home: Home, model: Model
) -> None:
    home.start()
    asking = [home.popen("followup", f"thing {n}") for n in range(6)]
    assert [child.wait() for child in asking] == [0] * 6
    (id,) = home.sessions()
    home.ok("wait", "-s", id)
    assert len(home.said(id)) == 6
    whole(home, id)


def test_a_client_that_is_killed_while_a_turn_streams_stops_nothing(home: Home, model: Model) -> None:
    home.start()
    id = home.ok("new", "--name", "api")
    asking = home.popen("followup", "-s", "api", "--follow", script({"text": "said", "gate": "go"}))
    home.wait_event("request/sent", session=id)
    asking.kill()
    asking.wait()
    model.open("go")
    assert home.ok("wait", "-s", "api") == ""
    assert home.ok("answer", "-s", "api") == "said"
    whole(home, id)
