"""`dshctl prompt show`, `compact` and `remember`, as people see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import SESSION, Fake
from tests.dshctl.test_schemas import COMPACTED, PROMPT


def test_prompt_show_is_a_table_of_sizes_and_says_what_was_cut(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["prompt.show"] = PROMPT
    assert dshctl("prompt", "show").out.splitlines() == [
        "api: 40 k of 64 k tokens, model fast; compacted from 51 k on",
        "",
        "identity                       95",
        "/home/you/src/api/AGENTS.md   8 k  its beginning, of 12 k: its budget is 8 k",
        "tools' schemas                2 k  2 tools: bash, read",
        "conversation                 30 k  212 messages, compacted 1 time",
    ]
    assert dshctl("prompt", "show", "api", "--text").out == "You are an agent\n"


def test_a_prompt_that_is_a_text_is_two_other_things(dshctl: Dshctl) -> None:
    done = dshctl("prompt", "fix", "the", "tests")
    assert done.code == 2
    assert "dshctl run 'TEXT'" in done.err


@pytest.mark.parametrize(
    ("changes", "sentence", "code"),
    [
        ({}, "api: compacted, 115 k -> 9 k of 128 k tokens (212 events summed up, 3 results cut short).", 0),
        ({"hidden": 0}, "api: compacted, 115 k -> 9 k of 128 k tokens (3 results cut short).", 0),
        ({"outcome": "nothing", "before": 950, "after": None},
         "api: nothing to compact; it is short as it is (950 of 128 k tokens).", 0),
        ({"outcome": "failed", "exit": 75, "error": {"code": "SERVER", "message": "the provider is down"}},
         "api: not compacted: the provider is down. The conversation is as it was.", 75),
        ({"outcome": "aborted", "exit": 12},
         "api: not compacted: it was aborted. The conversation is as it was.", 12),
    ],
)  # fmt: skip
def test_compact_says_what_became_of_it(
    dshctl: Dshctl, fake: Fake, changes: dict[str, Any], sentence: str, code: int
) -> None:
    fake.answers["session.show"] = {**SESSION, "phase": "idle"}
    fake.answers["session.compact"] = {**COMPACTED, **changes}
    assert dshctl("compact", "api") == (code, f"{sentence}\n", "")


def test_compact_says_that_a_running_turn_comes_first(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.show"] = SESSION
    fake.answers["session.compact"] = COMPACTED
    assert dshctl("compact").err == "dshctl: turn 12 runs; it is done at its next step.\n"


def test_maintenance_is_no_turn_where_it_is_shown(dshctl: Dshctl, fake: Fake) -> None:
    busy = {"phase": "maintenance", "doing": "compacting (118,000 tokens)", "since_at": None, "step": None}
    session = {**SESSION, **busy, "pending": {"next-turn": 0, "next-step": 0, "held": 0}}
    fake.answers["session.show"] = session
    fake.answers["queue.ls"] = {"type": "queue", "session": session, "messages": []}
    assert dshctl("queue").out == "api: compacting (118,000 tokens); nothing queued\n"
    assert "  running: compacting (118,000 tokens)" in dshctl("show").out.splitlines()


def test_remember_works_without_a_daemon_and_lists_what_is_known(
    dshctl: Dshctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSHD_STATE_DIR", str(tmp_path / "state"))
    top = tmp_path / "api"
    (top / ".git").mkdir(parents=True)
    assert dshctl("remember", "--user", "answer", "in German").code == 0
    kept = dshctl("remember", "-C", str(top), "run make check")
    assert kept.code == 0
    listed = dshctl("remember", "--list", "-C", str(top)).out
    assert [line for line in listed.splitlines() if line.startswith("  ")] == [
        "  - answer in German",
        "  - run make check",
    ]
    assert dshctl("remember", "--user", "-C", str(top), "x").code == 2
    assert dshctl("remember", "--list", "x").code == 2
