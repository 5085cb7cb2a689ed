"""What earlier daemons left is ended, and nothing of what they were asked to keep."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshd.spawn import orphans, tree

FORKS = "read x; sleep 1000 & read x; kill $!"


@pytest.fixture
def kept() -> Iterator[subprocess.Popen[str]]:
    """A process that is to be spared; it forks when a line comes."""
    with subprocess.Popen(["bash", "-c", FORKS], stdin=subprocess.PIPE, text=True) as process:
        yield process
        process.communicate("\n\n")


def forked(process: subprocess.Popen[str]) -> int:
    """Have it fork; the child's pid."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    limit = time.monotonic() + 10
    while not (found := tree.descendants(process.pid)):
        assert time.monotonic() < limit
    return next(iter(found))


def test_what_a_kept_job_forks_while_the_others_are_looked_for_is_its_own(
    kept: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    children: list[int] = []

    def left(state: Path) -> set[int]:
        children.extend([] if children else [forked(kept)])
        return {kept.pid, *children}

    monkeypatch.setattr(orphans, "left_behind", left)
    assert orphans.kill_orphans(tmp_path, [kept.pid]) == []
    assert all(map(tree.is_alive, [kept.pid, *children]))


def test_one_whose_parent_ends_while_it_is_looked_at_is_looked_at_again(
    kept: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its parent's parent takes it, and that is one of those that stay."""
    child, real, ended = forked(kept), tree.ancestors, [4_000_000]

    def ancestors(pid: int) -> list[int]:
        return [ended.pop()] if ended else real(pid)  # a number that no process has any more

    monkeypatch.setattr(orphans, "left_behind", lambda state: {child})
    monkeypatch.setattr(tree, "ancestors", ancestors)
    assert orphans.kill_orphans(tmp_path, [kept.pid]) == []
    assert tree.is_alive(child)


def test_what_is_nobodys_is_ended_also_where_something_is_kept(
    kept: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "1000"]) as stray:
        monkeypatch.setattr(orphans, "left_behind", lambda state: {stray.pid})
        assert orphans.kill_orphans(tmp_path, [kept.pid]) == [stray.pid]
    assert tree.is_alive(kept.pid)
