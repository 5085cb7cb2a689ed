"""Events as an editor is told of them, and what it asks and is answered, in the other side's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshctl.acp import translating
from dshctl.acp.peer import Peer
from dshctl.acp.threads import Prompt, Thread
from dshctl.acp.updates import MOST, Updates
from dshd import wire
from dshd.errors import DshError, Full, Invalid
from tests.dshctl.fake import SESSION
from tests.dshctl.test_schemas import APPROVAL

Json = dict[str, Any]


def event(type: str, **data: Any) -> Json:
    return {"type": type, "data": {"turn": 1, "step": 1, **data}}


def kinds(updates: list[Json]) -> list[Any]:
    return [(one["sessionUpdate"], one.get("content", {}).get("text")) for one in updates]


def chunk(*texts: str, type: str = "text-delta", index: int = 0) -> Json:
    return event("assistant/chunk", chunks=[{"type": type, "index": index, "text": text} for text in texts])


def message(*blocks: Json) -> Json:
    return event("assistant/message", content=list(blocks))


def text(said: str, type: str = "text") -> Json:
    return {"type": type, "text": said}


def call(name: str, id: str = "c1", **arguments: Any) -> Json:
    return {"type": "tool-call", "id": id, "name": name, "arguments": json.dumps(arguments)}


def test_what_streamed_is_told_once() -> None:
    updates = Updates("/src")
    told = updates.feed(chunk("one", " two")) + updates.feed(chunk("hm", type="reasoning-delta", index=1))
    assert kinds(told) == [
        ("agent_message_chunk", "one"),
        ("agent_message_chunk", " two"),
        ("agent_thought_chunk", "hm"),
    ]
    assert updates.feed(message(text("hm", "reasoning"), text("one two"))) == []
    assert kinds(updates.feed(message(text("three")))) == [("agent_message_chunk", "three")]


def test_a_failed_attempt_does_not_swallow_the_next_ones_text() -> None:
    updates = Updates("/src")
    updates.feed(chunk("same"))
    updates.feed(event("llm/retry"))
    assert kinds(updates.feed(message(text("same")))) == [("agent_message_chunk", "same")]


def test_a_call_is_asked_for_begun_and_done() -> None:
    updates = Updates("/src")
    (asked,) = updates.feed(message(call("bash", command="make test")))
    assert (asked["sessionUpdate"], asked["title"], asked["kind"], asked["status"]) == (
        "tool_call", "$ make test", "execute", "pending",
    )  # fmt: skip
    (begun,) = updates.feed(event("tool/call", call="c1", name="bash"))
    assert (begun["toolCallId"], begun["status"]) == ("c1", "in_progress")
    (done,) = updates.feed(event("tool/result", call="c1", content=[text("x" * (MOST + 5))], is_error=True))
    assert done["status"] == "failed"
    assert done["content"][0]["content"]["text"].endswith("[... 5 characters more]")
    assert updates.feed(event("tool/result", call="c1", content=[])) == [], "of which nobody knows"


def test_an_edit_is_a_diff_at_its_place() -> None:
    updates = Updates("/src")
    (asked,) = updates.feed(message(call("edit", path="a/b.py", old_string="x", new_string="y")))
    diff = {"type": "diff", "path": "/src/a/b.py", "oldText": "x", "newText": "y"}
    assert asked["locations"] == [{"path": "/src/a/b.py"}]
    assert asked["content"] == [diff]
    (done,) = updates.feed(event("tool/result", call="c1", content=[text("ok")]))
    assert done["content"] == [diff]
    (asked,) = updates.feed(message(call("write", path="/c", content="new")))
    assert asked["content"][0] == {"type": "diff", "path": "/c", "oldText": None, "newText": "new"}


def test_a_plan_and_a_mode_are_told() -> None:
    updates = Updates("/src")
    (plan,) = updates.feed(
        event("todo/write", items=[{"text": "a", "state": "done"}, {"text": "b", "state": "active"}])
    )
    assert [(e["content"], e["status"]) for e in plan["entries"]] == [
        ("a", "completed"),
        ("b", "in_progress"),
    ]


def test_what_people_said_is_told_only_of_the_past() -> None:
    updates = Updates("/src")
    said = event("user/message", content=[text("do it")], source={"kind": "user"})
    assert updates.feed(said) == []
    updates.replays = True
    assert kinds(updates.feed(said)) == [("user_message_chunk", "do it")]
    assert updates.feed(event("user/message", content=[text("time")], source={"via": "context"})) == []
    assert updates.feed({**said, "surface": {"replace": [1, 2]}}) == []


def test_arguments_that_are_no_json_break_nothing() -> None:
    (asked,) = Updates("/src").feed(
        message({"type": "tool-call", "id": "c", "name": "edit", "arguments": "{"})
    )
    assert asked["rawInput"] == {}


# ---------------------------------------------------------------- words


def test_a_prompts_blocks_become_text() -> None:
    blocks = [
        text("look at"),
        {"type": "resource_link", "uri": "file:///a%20b/c.py#L3:7", "name": "c.py"},
        {"type": "resource_link", "uri": "https://x.example/y", "name": "y"},
        {"type": "resource", "resource": {"uri": "file:///d", "text": "body"}},
    ]
    assert [block["text"] for block in translating.content(blocks)] == [
        "look at", "See the file /a b/c.py (L3:7)", "See https://x.example/y",
        "the file /d, as it is in the editor:\nbody",
    ]  # fmt: skip


@pytest.mark.parametrize("blocks", [None, [], [{"type": "image"}], [text("  ")], [{"type": "resource"}]])
def test_a_prompt_that_can_not_be_said_is_refused(blocks: Any) -> None:
    with pytest.raises(Invalid):
        translating.content(blocks)


def test_a_prompt_over_a_line_is_refused() -> None:
    with pytest.raises(Full):
        translating.content([text("x" * (wire.MAX_INLINE + 1))])


@pytest.mark.parametrize(
    ("outcome", "why"),
    [("completed", "end_turn"), ("max-tokens", "max_tokens"), ("budget", "max_turn_requests"),
     ("blocked", "refusal"), ("aborted", "cancelled"), ("removed", "cancelled")],
)  # fmt: skip
def test_how_a_turn_ended_is_why_the_agent_stopped(outcome: str, why: str) -> None:
    assert translating.stop({"outcome": outcome}) == why


def test_an_error_is_one() -> None:
    with pytest.raises(DshError, match="no key"):
        translating.stop({"outcome": "error", "error": {"message": "no key"}})


def test_only_an_option_that_was_offered_answers() -> None:
    chosen: Json = {"outcome": {"outcome": "selected", "optionId": "session"}}
    found = translating.answered("a1", chosen)
    assert found == wire.ApprovalAnswerParams(id="a1", answer="allow", scope="session")
    deny = translating.answered("a1", {"outcome": {"outcome": "selected", "optionId": "deny"}})
    assert deny is not None
    assert deny.answer == "deny"
    for nothing in (None, {}, {"outcome": {"outcome": "cancelled"}}, {"outcome": {"optionId": "always"}}):
        assert translating.answered("a1", nothing) is None


def test_a_prompt_is_answered_when_its_turn_was_told_to_its_end() -> None:
    thread = Thread(SESSION)
    prompt = Prompt(3, [text("x")])
    thread.prompts.append(prompt)
    assert thread.ended() == []
    prompt.result = {"turn": 12, "outcome": "completed"}
    assert thread.ended() == []
    thread.updates.feed(event("turn/end") | {"data": {"turn": 12}})
    assert thread.ended() == [prompt]
    assert thread.prompts == []


def test_lines_of_an_editor_are_requests_or_answers() -> None:
    sent: list[Json] = []
    answers: list[Json | None] = []
    peer = Peer(lambda line: sent.append(json.loads(line)))
    peer.ask("m", {}, answers.append)
    peer.ask("m", {}, answers.append)
    got = list(peer.feed(b'{"id":2,"error":{}}\n{"id":1,"result":{"a":1}}\nno\n[]\n{"id":9,"result":1}\n'))
    assert (got, answers) == ([], [None, {"a": 1}])
    assert [one["error"]["code"] for one in sent[2:]] == [-32700, -32600]
    assert list(peer.feed(b'{"id":"x","method":"m"')) == []
    assert list(peer.feed(b',"params":[1]}\n{"method":"n"}\n')) == [("x", "m", {}), (None, "n", {})]


def test_a_subagents_call_is_none_of_the_threads_own() -> None:
    """Calls are numbered in each session: the same number may be another's there."""
    updates = Updates("/src")
    updates.feed(message(call("read", id="t1_1_1", path="a")))
    asked = {**APPROVAL, "session": "s5h8w2c1", "call": "t1_1_1"}
    told = updates.call(asked, "s4h8w2c1")
    assert (told["toolCallId"], told["title"]) == ("s5h8w2c1:t1_1_1", "rm -rf build/")
    assert updates.call({**asked, "session": "s4h8w2c1"}, "s4h8w2c1")["toolCallId"] == "t1_1_1"
    assert translating.permission("s4h8w2c1", told)["sessionId"] == "s4h8w2c1"
