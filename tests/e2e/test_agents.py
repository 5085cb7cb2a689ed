"""Subagents with the real programs: work for others, and what becomes of it when the daemon dies."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from tests.e2e.harness import Home, eventually, texts
from tests.e2e.model import Model, bash, script

Json = dict[str, Any]
WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


def agent(**args: Any) -> Json:
    return {"tools": [{"name": "agent", "arguments": args}]}


def parents(*items: Json) -> str:
    """A script with scripts in it, for those that it starts."""
    return f"@script {json.dumps(items).replace('@script', chr(92) + 'u0040script')}"


def test_a_parent_goes_on_with_what_its_subagent_found_though_the_daemon_is_killed(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    prompt = script(bash(WAIT_FOR_GO), {"text": "found it"})
    home.ok("followup", parents(agent(action="start", prompt=prompt), agent(action="wait"), {"text": "x"}))
    eventually(lambda: len(home.sessions()) == 2, what="the subagent's session")
    (row,) = home.json("agents")
    (parent,) = [one for one in home.sessions() if one != row["id"]]
    assert (row["state"], row["session"]) == ("running", parent)
    home.wait_event("tool/call", session=row["id"])
    eventually(lambda: home.json("show", parent)[0]["waits"] == "agent")
    assert [one["id"] for one in home.json("ls")] == [parent]
    assert len(home.json("ls", "--all")) == 2
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    (home.work / "go").touch()
    home.start()
    ended = home.wait_event("subagent/ended", session=parent)["data"]
    assert (ended["id"], ended["outcome"]) == (row["id"], "interrupted")
    home.wait_event("turn/end", 2, session=parent)
    told = [e for e in home.log(parent, "user/message") if e["data"]["source"]["kind"] == "agent"]
    assert len(told) == 1
    assert texts(told)[0].startswith(f"Subagent {row['id']} has ended: interrupted.")

    home.ok("followup", "--wait", "-s", parent, parents(
        agent(action="start", prompt="what is there?"), agent(action="wait"), {"text": "thank you"},
    ))  # fmt: skip
    results = home.log(parent, "tool/result")
    assert "echo: what is there?" in results[-1]["data"]["content"][0]["text"]
    assert home.ok("agents") == "No subagent works."
    assert len(home.json("agents", "ls", "--all")) == 2
    home.ok("rm", "--yes", "--force", parent)
    assert home.sessions() == []
