"""Messages behind something that goes wrong: they wait, say for what, and run when it is mended."""

from __future__ import annotations

import signal

from tests.e2e.harness import TIMEOUT, Home, texts
from tests.e2e.model import Model, bash, script

KEYED = """
model = "mock"
[routes.mock]
adapter = "openai"
base_url = "{url}"
model = "mock"
api_key_env = "NOT_SET"
"""


def test_what_waits_behind_a_turn_whose_time_is_up_is_kept_and_runs_when_asked_for(
    home: Home, model: Model
) -> None:
    home.start()
    home.ok("new", "--name", "short", "--max-time", "1")
    first = home.ok("followup", "-s", "short", script(bash("sleep 60")))
    rest = [home.ok("followup", "-s", "short", text) for text in ("second", "third")]
    assert home.ctl("wait", first).returncode == 15
    assert [home.ctl("wait", id).returncode for id in rest] == [18, 18]
    home.ok("wake", "-s", "short")
    home.ok("wait", *rest)
    assert texts(home.said())[1:] == ["second", "third"]


def test_a_message_to_a_session_that_can_not_start_yet_runs_when_it_can(home: Home, model: Model) -> None:
    (home.path / "config.toml").write_text(KEYED.format(url=model.url))
    daemon = home.start()
    sent = home.ok("followup", "hello")
    assert home.ctl("wait", sent).returncode == 9
    assert "NOT_SET" in home.ok("why", sent) + home.ok("status")
    assert home.json("message", sent)[0]["state"] == "pending"
    daemon.send_signal(signal.SIGKILL)
    daemon.wait(TIMEOUT)

    (home.path / "config.toml").write_text("nonsense = 1\n")
    assert home.ctl("followup", "again").returncode == 9
    (home.path / "config.toml").write_text(KEYED.format(url=model.url))
    home.start()
    assert home.json("message", sent)[0]["state"] == "pending"
    home.ok("key", "mock", input="sesame")
    home.ok("wake")
    home.ok("wait", sent)
    assert home.ok("answer", sent) == "echo: hello"
    assert texts(home.said()) == ["hello"]


def test_where_a_rule_says_ask_and_nobody_is_there_the_call_is_denied_at_once(
    home: Home, model: Model
) -> None:
    with (home.path / "config.toml").open("a") as config:
        config.write('[[rules]]\naction = "ask"\ntool = "bash"\ncommand = "deploy*"\n')
    answer = home.ok("run", "-q", script(bash("deploy now"), bash("echo fine"), {"text": "done"}), timeout=20)
    assert answer == "done"
    denied, allowed = (e["data"] for e in home.log(type="tool/result"))
    assert (denied["is_error"], denied["error"]["code"]) == (True, "DENIED")
    assert "nobody to ask" in denied["content"][0]["text"]
    assert not allowed["is_error"]


def test_a_send_at_the_end_of_a_turn_never_passes_a_steer_that_came_before_it(
    home: Home, model: Model
) -> None:
    home.start()
    home.ok("new", "--name", "order")
    for n in range(20):
        first = home.ok("followup", "-s", "order", script({"text": "one", "gate": f"g{n}"}, {"text": "two"}))
        model.wait_requests(len(home.log(type="request/sent")) or 1)
        with home.rpc() as rpc:
            ids = [
                rpc.post("session.send", session="order", verb=verb, text=f"{verb} {n}")
                for verb in ("steer", "followup")
            ]
            model.open(f"g{n}")
            receipts = [rpc.take(id) for id in ids]
        home.ok("wait", first, *(r["message"] for r in receipts))
    said = [text for text in texts(home.said()) if not text.startswith("@script")]
    assert said == [f"{verb} {n}" for n in range(20) for verb in ("steer", "followup")]
