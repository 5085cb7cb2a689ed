"""What a hook's end means: exit status, stdout, stderr."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshd.hooks.answers import LONGEST_REASON, Answer, Ended, answer_of

TOOL = "PreToolUse"


def said(found: Any, event: str = TOOL) -> Answer:
    return answer_of(Ended(exit=0, stdout=json.dumps(found).encode()), event)


def specific(**more: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": TOOL, **more}}


def test_exit_0_without_a_word_passes() -> None:
    assert answer_of(Ended(exit=0, stdout=b" \n", stderr=b"chatter"), TOOL) == answer_of(Ended(exit=0), TOOL)
    assert answer_of(Ended(exit=0), TOOL).outcome == "passed"


def test_exit_2_blocks_with_stderr_and_what_stdout_says_is_not_looked_at() -> None:
    answer = answer_of(Ended(exit=2, stdout=b'{"decision": "approve"}', stderr=b"not on main\n"), TOOL)
    assert (answer.outcome, answer.reason) == ("blocked", "not on main")


def test_a_reason_is_text_and_bounded_whatever_stderr_holds() -> None:
    answer = answer_of(Ended(exit=2, stderr=b"a\0\xff" + b"x" * 100_000), TOOL)
    assert answer.reason.startswith("a\ufffd\ufffdx")
    assert len(answer.reason) == LONGEST_REASON


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (Ended(exit=1, stderr=b"line 1\nTraceback: no"), "exit 1: Traceback: no"),
        (Ended(exit=127), "exit 127"),
        (Ended(failure="it took longer than 10 s and was ended"), "it took longer than 10 s and was ended"),
        (Ended(exit=0, stdout=b"checked 4 files"), "its answer is not JSON"),
        (Ended(exit=0, stdout=b"[1]"), "its answer is not a JSON object"),
        (Ended(exit=0, stdout=b"[" * 100_000), "its answer is not JSON"),
        (Ended(exit=0, stdout=b"{", cut=True), "it answered more than 64 KiB"),
    ],
)
def test_anything_else_is_a_failure_that_says_what_it_was(ended: Ended, why: str) -> None:
    assert (answer_of(ended, TOOL).outcome, answer_of(ended, TOOL).reason) == ("failed", why)


@pytest.mark.parametrize(
    "found",
    [
        {"decision": "blocked"},
        {"decision": True},
        {"decision": "reject", "reason": ["no"]},
        {"decision": "defer", "for": "soon"},
        {"decision": "defer", "for": True},
        {"messages": "one"},
        {"messages": [1]},
        {"messages": [" "]},
        {"messages": [{"content": [{"type": "text", "text": 5}]}]},
        {"messages": [{"content": [{"type": "image", "data": "x"}]}]},
        {"decision": "reject", "messages": [None]},
        specific(permissionDecision="maybe"),
    ],
)
def test_half_an_answer_is_none(found: Any) -> None:
    assert said(found).outcome == "failed"


def test_our_own_decisions() -> None:
    assert said({"decision": "reject", "reason": "why"}).reason == "why"
    deferred = said({"decision": "defer", "reason": "busy", "for": "1m30s"})
    assert (deferred.outcome, deferred.seconds) == ("deferred", 90.0)
    assert said({"decision": "defer"}).seconds is None
    added = said({"messages": ["a", {"text": "b", "id": "s1.1"}]})
    texts = [{"content": [{"type": "text", "text": text}]} for text in "ab"]
    assert added.messages == (texts[0], {**texts[1], "id": "s1.1"})
    assert said({"decision": "reject", "messages": ["s1.1", {"id": "s1.2"}]}).ids == ("s1.1", "s1.2")


def test_the_decisions_of_other_agents() -> None:
    assert said({"decision": "approve"}).outcome == "passed"
    assert said({"decision": "block", "reason": "why"}).outcome == "blocked"
    denied = said(specific(permissionDecision="deny", permissionDecisionReason="why"))
    assert (denied.outcome, denied.reason) == ("blocked", "why")
    assert said(specific(permissionDecision="ask")).ask
    assert said({"continue": False, "stopReason": "enough"}).stop == "enough"
    assert said({"continue": True}).stop is None
    assert said(specific(additionalContext="it is Monday")).context == ("it is Monday",)
    assert said({"systemMessage": "hm"}).says == "hm"


def test_what_is_said_of_another_event_is_not_heard() -> None:
    assert said(specific(permissionDecision="deny"), "PostToolUse").outcome == "passed"


def test_the_stricter_of_two_decisions_holds() -> None:
    both = {"decision": "approve", **specific(permissionDecision="deny")}
    assert said(both).outcome == "blocked"
    assert not said({"decision": "block", **specific(permissionDecision="ask")}).ask


def test_changed_arguments_are_told_of_and_not_taken() -> None:
    answer = said(specific(permissionDecision="allow", updatedInput={"command": "rm -rf /"}))
    assert (answer.outcome, answer.remark) == ("passed", "it can't change what a tool is called with")


def test_half_a_surrogate_pair_is_made_whole() -> None:
    answer = said({"decision": "reject", "reason": "a\ud83d"})
    assert answer.reason == "a\ufffd"
    (message,) = said({"messages": [{"content": [{"type": "text", "text": "b\ud83d"}]}]}).messages
    assert message["content"] == [{"type": "text", "text": "b\ufffd"}]


def test_members_that_we_do_not_know_are_no_mistake() -> None:
    assert said({"suppressOutput": True, "async": 1}).outcome == "passed"
