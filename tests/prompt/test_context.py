from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest

from dshd.prompt.context import PREAMBLE, GitInfo, snapshot

ZONE = timezone(timedelta(hours=1))
NOW = datetime(2026, 11, 30, 14, 5, 33, tzinfo=ZONE)
DIR = Path("/home/you/src/api")


def test_a_snapshot_says_date_directory_git_permission_and_jobs() -> None:
    git = GitInfo(Path("/home/you/src"), "main", None, changes=True, doing="rebase")
    text = snapshot(DIR, NOW, git, ["j1 make watch"], mode="workspace")
    assert text.split("\n") == [
        PREAMBLE,
        "- date: Monday 2026-11-30, afternoon (UTC+0100)",
        "- directory: /home/you/src/api",
        "- git: branch main, unstaged changes, in the middle of a rebase, work tree /home/you/src",
        "- permission: workspace, files are written in the directory only; network off",
        "- running job: j1 make watch",
    ]


def test_it_changes_with_the_part_of_the_day_not_with_the_minute() -> None:
    texts = [snapshot(DIR, NOW.replace(hour=0, minute=0) + timedelta(minutes=n)) for n in range(24 * 60)]
    changes = sum(one != other for one, other in pairwise(texts))
    assert changes == 4
    assert len(set(texts)) == 4


def test_the_words_do_not_follow_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert "Monday" in snapshot(DIR, NOW)


@pytest.mark.parametrize(
    ("git", "line"),
    [
        (GitInfo(DIR, "main", None, False), "branch main, no unstaged changes"),
        (GitInfo(DIR, "main", None, None), "branch main"),
        (GitInfo(DIR, None, "0123456789", None), "detached at 0123456789"),
        (GitInfo(DIR, None, None, None), "detached at nothing"),
    ],
)
def test_how_a_work_tree_reads(git: GitInfo, line: str) -> None:
    assert f"- git: {line}" in snapshot(DIR, NOW, git).split("\n")
