from __future__ import annotations

from typing import Any

import pytest

from dshd.errors import NotConfigured
from dshd.plugins import PreStep, Reject
from dshd.plugins.content_filter import ContentFilter


def message(id: str, *texts: str) -> dict[str, Any]:
    return {
        "id": id,
        "content": [{"type": "text", "text": text} for text in texts],
        "source": {"kind": "user"},
    }


def step(*messages: dict[str, Any]) -> PreStep:
    return PreStep("s1", 1, 1, messages)


async def test_what_matches_nothing_passes_unchanged() -> None:
    proposal = step(message("s1.1", "hello"), message("s1.2", "wait, stop, abort"))
    assert await ContentFilter({"deny": ["secret"]}).pre_step(proposal) is proposal
    assert await ContentFilter({"deny": []}).pre_step(proposal) is proposal


async def test_only_the_messages_that_match_are_rejected() -> None:
    plugin = ContentFilter({"deny": [r"\bsk-[a-z0-9]+", "(?i)password"]})
    proposal = step(
        message("s1.1", "fine"), message("s1.2", "my PASSWORD"), message("s1.3", "a", "key sk-abc")
    )
    answer = await plugin.pre_step(proposal)
    assert isinstance(answer, Reject)
    assert answer.messages == ("s1.2", "s1.3")
    assert "/(?i)password/" in answer.reason


async def test_the_reason_does_not_repeat_what_was_said() -> None:
    answer = await ContentFilter({"deny": ["sk-.*"]}).pre_step(step(message("s1.1", "sk-very-secret")))
    assert isinstance(answer, Reject)
    assert "very-secret" not in answer.reason


async def test_an_empty_step_and_blocks_that_are_no_text_pass() -> None:
    plugin = ContentFilter({"deny": ["."]})
    assert isinstance(await plugin.pre_step(step()), PreStep)
    image = {"id": "s1.1", "content": [{"type": "image", "hash": "h"}]}
    assert isinstance(await plugin.pre_step(step(image)), PreStep)


async def test_a_message_that_another_plugin_added_is_not_looked_at() -> None:
    proposal = step({"content": [{"type": "text", "text": "x"}]})
    assert await ContentFilter({"deny": ["x"]}).pre_step(proposal) is proposal


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, r"a list of regular expressions @ \$\.plugins\.content_filter\.deny$"),
        ({"deny": "secret"}, r"a list of regular expressions @"),
        ({"deny": ["ok", "(open"]}, r"a regular expression \(.*\) @ \$\.plugins\.content_filter\.deny\[1\]$"),
        ({"dney": []}, r"unknown key; did you mean deny\? @ \$\.plugins\.content_filter\.dney$"),
    ],
)
def test_settings_that_make_no_sense_are_config_errors_with_their_path(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(NotConfigured, match=said):
        ContentFilter(config)
