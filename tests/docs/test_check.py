"""The command that checks everything: what it leaves out, and how what went wrong is shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import check
from tests.jobs import Job, Result, counted, run

ROOT = Path(__file__).resolve().parents[2]


def python(name: str, code: str, **more: bool) -> Job:
    return Job(name, [sys.executable, "-c", code], **more)


def ran(*jobs: Job, limit_s: float = 30) -> dict[str, Result]:
    return {result.name: result for result in run(jobs, 2, lambda _: None, limit_s)}


def test_every_test_there_is_belongs_to_one_job() -> None:
    mine = [path for name in check.folders() for path in (ROOT / "tests" / name).rglob("test_*.py")]
    assert sorted(mine) == sorted((ROOT / "tests").rglob("test_*.py"))
    assert len(check.folders()) == len(set(check.folders()))


def test_what_fails_is_shown_whole_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    bad = python("bad", "print('one'); print('two'); exit(3)")
    results = ran(bad, python("good", "print('fine')", tells=True))
    assert (results["bad"].good, results["good"].good) == (False, True)
    assert [check.told(results[name]) for name in ("bad", "good")] == [False, True]
    shown = capsys.readouterr().out
    assert "one\ntwo\n" in shown
    assert shown.endswith("ok       good  fine\n")


def test_what_never_ends_has_failed() -> None:
    result = ran(python("hangs", "print('begun', flush=True); import time; time.sleep(60)"), limit_s=1)
    assert not result["hangs"].good
    assert result["hangs"].output == "begun\n"


def test_what_is_left_behind_delays_nobody() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '20']); print('done')"
    assert ran(python("leaves", code), limit_s=10)["leaves"].good


def test_what_is_not_installed_is_said_and_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.told(ran(Job("page", ["no-such-program"]))["page"])
    assert capsys.readouterr().out == "SKIPPED  page  no-such-program is not installed here\n"


def test_the_counts_of_all_folders_are_one_line() -> None:
    lines = ["2 failed, 40 passed, 1 skipped in 3.20s", "1 error in 0.5s", "60 passed in 70.00s (0:01:10)"]
    assert counted(lines) == "2 failed, 100 passed, 1 skipped, 1 error"
    assert counted([]) == "no tests"
