"""What is said to a running agent: which step of which turn takes it, and in which order."""

from __future__ import annotations

from typing import Any

from tests.e2e.harness import Home, texts
from tests.e2e.model import Model, bash, script

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


def taken_by(event: dict[str, Any]) -> tuple[int, int]:
    """(turn, step) of a ``user/message``"""
    return event["data"]["turn"], event["data"]["step"]


def go(home: Home) -> None:
    (home.work / "go").touch()


def test_each_verb_is_taken_where_it_belongs_while_a_tool_runs(home: Home, model: Model) -> None:
    home.start()
    first = home.ok("followup", script(bash(WAIT_FOR_GO), {"text": "all done"}, say="first"))
    home.wait_event("tool/call")

    (steer,) = home.json("steer", "use the new fixture")
    (inject,) = home.json("inject", "it is Monday")
    (second,) = home.json("followup", "second")
    assert [r["queue"] for r in (steer, inject, second)] == ["next-step", "next-step", "next-turn"]
    assert [r["position"] for r in (steer, inject, second)] == [1, 2, 1]
    assert {r["phase"] for r in (steer, inject, second)} == {"running"}
    assert steer["turn"] == 1
    assert steer["waits_for"].startswith("bash: while")
    go(home)

    assert home.ok("followup", "--wait", "third") == "echo: third"
    entered = home.said()
    assert texts(entered)[1:] == ["use the new fixture", "it is Monday", "second", "third"]
    assert [taken_by(e) for e in entered] == [(1, 1), (1, 2), (1, 2), (2, 1), (3, 1)]
    assert home.ok("answer", first) == "all done"


def test_a_steer_between_two_parallel_results_comes_after_both(home: Home, model: Model) -> None:
    home.start()
    calls = [{"name": "bash", "arguments": {"command": c}} for c in ("echo one", WAIT_FOR_GO)]
    home.ok("followup", script({"tools": calls}, {"text": "done"}))
    home.wait_event("tool/result")
    steer = home.ok("steer", "and now this")
    go(home)
    home.ok("wait", steer)
    roles = [m["role"] for m in model.requests[1]["messages"]]
    at = roles.index("assistant")
    assert roles[at : at + 4] == ["assistant", "tool", "tool", "user"]
    assert model.requests[1]["messages"][at + 3]["content"] == "and now this"


def test_ten_quick_steers_are_ten_messages_in_one_step(home: Home, model: Model) -> None:
    home.start()
    home.ok("followup", script(bash(WAIT_FOR_GO), {"text": "done"}))
    home.wait_event("tool/call")
    with home.rpc() as rpc:
        sent = [rpc.post("session.send", cwd=str(home.work), verb="steer", text=f"n{n}") for n in range(10)]
        receipts = [rpc.take(id) for id in sent]
    go(home)
    home.ok("wait")
    steered = home.said()[1:]
    assert {taken_by(event) for event in steered} == {(1, 2)}
    assert texts(steered) == [f"n{n}" for n in range(10)]
    assert len({r["message"] for r in receipts}) == 10


def test_a_lone_inject_wakes_nobody_and_rides_along(home: Home, model: Model) -> None:
    home.start()
    home.ok("followup", "--wait", "hello")
    fact = home.ok("inject", "it is Monday")
    assert home.ctl("wait", fact).returncode == 18
    assert len(home.log(type="turn/start")) == 1
    home.ok("followup", "--wait", "what day is it?")
    assert texts(home.said()) == ["hello", "it is Monday", "what day is it?"]


def test_a_messages_text_is_never_a_command(home: Home, model: Model) -> None:
    home.start()
    home.ok("followup", script(bash(WAIT_FOR_GO), {"text": "done"}))
    home.wait_event("tool/call")
    for word in ("stop", "abort", "wait", "/clear"):
        home.ok("steer", word)
    go(home)
    home.ok("wait")
    assert texts(home.said())[1:] == ["stop", "abort", "wait", "/clear"]
    assert home.log(type="turn/end")[0]["data"]["reason"] == "completed"
