"""Against the real program, where there is one: what it writes is what we read."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from dshd.prompt.context import GitInfo
from dshd.prompt.git import MOST_ENTRIES, entries, git_info, git_root


def git(directory: Path, *args: str) -> str:
    if shutil.which("git") is None:
        pytest.skip("git is not installed here")
    env = {"PATH": os.environ["PATH"], "HOME": str(directory.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    names = ["-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", "-C", str(directory), *names, *args],
        env=env,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    repo = tmp_path / "repo"
    git(repo, "init", "-q")
    for name in ("a.txt", "dir/b.txt", "dir/run.sh"):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text(f"{name}\n")
    (repo / "link").symlink_to("a.txt")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "one")
    return repo


def info(directory: Path) -> GitInfo:
    found = git_info(directory)
    assert found is not None
    return found


def test_a_fresh_commit_has_a_branch_and_no_changes(repo: Path) -> None:
    assert info(repo) == GitInfo(repo, "main", None, changes=False)
    assert info(repo / "dir").root == repo


def test_outside_of_a_work_tree_there_is_nothing(tmp_path: Path) -> None:
    assert git_info(tmp_path) is None
    (tmp_path / ".git").mkdir()
    assert git_info(tmp_path) is None


def test_before_the_first_commit_there_is_a_branch(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert info(tmp_path) == GitInfo(tmp_path, "main", None, changes=False)


def test_a_detached_head_is_told_by_its_commit(repo: Path) -> None:
    git(repo, "checkout", "-q", "--detach")
    assert info(repo).branch is None
    assert git(repo, "rev-parse", "HEAD").startswith(info(repo).commit or "?")


@pytest.mark.parametrize(
    "change",
    [
        lambda repo: (repo / "a.txt").write_text("other content\n"),
        lambda repo: (repo / "a.txt").write_text("A.TXT\n"),
        lambda repo: (repo / "dir/b.txt").unlink(),
        lambda repo: (repo / "dir/run.sh").chmod(0o755),
        lambda repo: ((repo / "link").unlink(), (repo / "link").symlink_to("b.txt")),
        lambda repo: ((repo / "a.txt").unlink(), (repo / "a.txt").mkdir()),
    ],
)
@pytest.mark.parametrize("version", ["2", "4"])
def test_a_changed_tracked_file_is_noticed_as_git_does(repo: Path, change: object, version: str) -> None:
    git(repo, "update-index", "--index-version", version)
    assert info(repo).changes is False
    change(repo)  # type: ignore[operator]
    assert git(repo, "diff", "--name-only") != ""
    assert info(repo).changes is True


def test_a_touched_file_and_an_untracked_one_are_no_changes(repo: Path) -> None:
    os.utime(repo / "a.txt", (1, 1))
    (repo / "new").write_text("x")
    assert info(repo).changes is False


@pytest.mark.parametrize("version", [2, 4])
def test_the_index_is_read_as_git_lists_it(repo: Path, version: int) -> None:
    (repo / ("long/" * 20)).mkdir(parents=True)
    for n in range(50):
        (repo / ("long/" * 20) / f"{'x' * n}{n}").write_text("x")
    git(repo, "add", ".")
    git(repo, "update-index", "--index-version", str(version))
    names = [entry.name.decode() for entry in entries((repo / ".git/index").read_bytes())]
    assert names == git(repo, "ls-files").split("\n")


def test_a_merge_that_is_not_finished_is_said(repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "a.txt").write_text("theirs\n")
    git(repo, "commit", "-qam", "theirs")
    git(repo, "checkout", "-q", "main")
    (repo / "a.txt").write_text("ours\n")
    git(repo, "commit", "-qam", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, "merge", "other")
    assert info(repo).doing == "merge"
    assert info(repo).changes is True


def test_a_linked_work_tree_has_its_own_branch(repo: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", str(repo.parent / "side"))
    assert info(repo.parent / "side") == GitInfo(repo.parent / "side", "side", None, changes=False)


def test_nothing_that_a_repository_names_is_run(repo: Path) -> None:
    mark = repo.parent / "ran"
    for key in ("core.fsmonitor", "core.sshCommand", "filter.x.clean", "core.pager", "diff.external"):
        git(repo, "config", key, f"touch {mark}")
    (repo / ".gitattributes").write_text("* filter=x\n")
    os.utime(repo / "a.txt", (1, 1))
    info(repo)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content", [b"", b"DIRC", b"DIRC\0\0\0\x09\0\0\0\1", b"\0" * 100, b"DIRC\0\0\0\2\0\0\0\5abc"]
)
def test_an_index_that_can_not_be_read_leaves_it_open(repo: Path, content: bytes) -> None:
    (repo / ".git/index").write_bytes(content)
    assert info(repo).changes is None


def test_a_huge_index_leaves_it_open_and_takes_no_time(repo: Path) -> None:
    header = b"DIRC" + (2).to_bytes(4, "big") + (MOST_ENTRIES + 1).to_bytes(4, "big")
    (repo / ".git/index").write_bytes(header + b"x" * (8 << 20))
    began = time.process_time()
    assert info(repo).changes is None
    assert time.process_time() - began < 1


def test_a_pipe_in_place_of_any_file_does_not_hang(repo: Path) -> None:
    for name in ("HEAD", "index"):
        (repo / ".git" / name).unlink()
        os.mkfifo(repo / ".git" / name)
        git_info(repo)
    assert git_root(repo) == repo


def test_a_git_file_that_names_nothing_is_no_work_tree(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert git_info(tmp_path) is None
    (tmp_path / ".git").write_bytes(b"\xff\0nonsense")
    assert git_info(tmp_path) is None
