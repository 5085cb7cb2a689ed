"""The messages dialect over real HTTP, into the real daemon and out again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from tests.e2e import messages
from tests.e2e.harness import Home, eventually
from tests.e2e.model import Model, bash, raw, script
from tests.e2e.rpc import Rpc

Json = dict[str, Any]
CONFIG = """
[routes.claude]
adapter = "anthropic"
base_url = "{url}"
model = "claude-x"
max_tokens = 100
[budget]
turn_steps = 20
"""


@attrs.frozen
class Daemon:
    home: Home
    model: Model
    rpc: Rpc

    def new(self, name: str) -> str:
        shown = self.rpc.call(
            "session.create", dir=str(self.home.work), name=name, model="claude", mode="full"
        )
        return str(shown["session"]["id"])

    def send(self, session: str, text: str) -> str:
        return str(self.rpc.call("session.send", session=session, verb="followup", text=text)["message"])

    def ask(self, session: str, text: str) -> Json:
        result: Json = self.rpc.result(self.send(session, text))
        return result


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Model() as model, Home(CONFIG.format(url=model.url)) as home:
        home.start()
        with home.rpc() as rpc:
            yield Daemon(home, model, rpc)


def conversation(request: Json) -> list[Json]:
    """Its messages; that it keeps what the dialect asks for is asserted."""
    assert request["max_tokens"] == 100
    sent: list[Json] = request["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant"] * (len(sent) // 2) + ["user"]
    for before, after in zip(sent[1::2], sent[2::2], strict=True):
        asked = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
        given = [block.get("tool_use_id") for block in after["content"]]
        assert given[: len(asked)] == asked
        assert not any(given[len(asked) :])
    assert all(block.get("text", "x").strip() for message in sent for block in message["content"])
    marked = json.dumps(request).count('"cache_control"')
    assert 1 <= marked <= 4
    return sent


def test_thinking_calls_and_steers_go_round_and_every_request_is_made_again(daemon: Daemon) -> None:
    session, first = daemon.new("round"), len(daemon.model.requests)
    both = {
        "thinking": "two at once",
        "text": "I look.",
        "tools": [*bash("echo a; until [ -e go ]; do sleep 0.05; done")["tools"], *bash("echo b")["tools"]],
    }
    sent = daemon.send(session, script(both, {"thinking": "so", "text": "done"}))
    daemon.model.wait_requests(first + 1)
    daemon.rpc.call("session.send", session=session, verb="steer", text="use the new one")
    (daemon.home.work / "go").touch()
    result = daemon.rpc.result(sent)
    assert (result["outcome"], result["text"]) == ("completed", "done")
    assert daemon.ask(session, "and now?")["text"] == "echo: and now?"
    requests = [conversation(request) for request in daemon.model.requests[first:]]
    answer, results = requests[-1][1]["content"], requests[-1][2]["content"]
    assert answer[0] == {"type": "thinking", "thinking": "two at once", "signature": "signed two at once"}
    assert [block["type"] for block in answer] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in results][:3] == ["tool_result", "tool_result", "text"]
    assert results[2]["text"] == "use the new one"
    usage = [e["data"]["usage"] for e in daemon.home.log(session) if e["type"] == "assistant/message"]
    assert usage[0] == {"input": 7, "cached": 5, "output": 7, "reasoning": 0}
    (checked,) = daemon.home.json("fsck", "--requests", session)
    assert (checked["ok"], checked["requests"]["compared"]) == (True, 3)


def test_half_a_thought_is_not_sent_back_after_an_abort(daemon: Daemon) -> None:
    session, first = daemon.new("half"), len(daemon.model.requests)
    start = messages.event(
        "content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}
    )
    half = messages.event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"})
    sent = daemon.send(session, script(raw(start.encode(), half.encode(), 30.0)))
    eventually(lambda: "assistant/chunk" in [e["type"] for e in daemon.home.log(session)])
    daemon.rpc.call("session.abort", session=session)
    assert daemon.rpc.result(sent)["outcome"] == "aborted"
    assert daemon.ask(session, script({"text": "fine"}))["outcome"] == "completed"
    assert [m["role"] for m in conversation(daemon.model.requests[-1])] == ["user"]
    assert len(daemon.model.requests) == first + 2


def test_an_overload_in_the_stream_is_tried_again_and_a_refusal_is_not(daemon: Daemon) -> None:
    session, first = daemon.new("again"), len(daemon.model.requests)
    error = messages.event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    item = {"attempts": [raw(error.encode()), {"text": "fine"}]}
    assert daemon.ask(session, script(item))["text"] == "fine"
    assert len(daemon.model.requests) == first + 2
    refused = daemon.ask(session, script({"text": "I", "stop": "refusal"}))
    assert (refused["outcome"], refused["error"]["code"]) == ("error", "CONTENT_FILTERED")
    assert len(daemon.model.requests) == first + 3
