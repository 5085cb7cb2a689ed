"""What is copied before commands that nothing can be mounted for, and put back behind them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from dshd.tools.guarded import Guarded, guard, sweep


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "dir"
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / ".git/config").write_text("mine")
    (folder / ".git/hooks/pre-commit").write_text("mine, too")
    return folder


def begin(folder: Path) -> Guarded:
    return guard(folder, None, "true", folder.parent / "kept")


def tamper(folder: Path) -> None:
    (folder / ".git/config").write_text("evil")
    (folder / ".git/hooks/pre-commit").unlink()
    (folder / ".git/hooks/post-commit").write_text("evil")
    (folder / ".bashrc").write_text("evil")


def assert_as_it_was(folder: Path) -> None:
    assert (folder / ".git/config").read_text() == "mine"
    assert [path.name for path in (folder / ".git/hooks").iterdir()] == ["pre-commit"]
    assert not (folder / ".bashrc").exists()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_what_one_command_has_changed_is_not_what_another_puts_back(
    repository: Path, order: tuple[int, ...]
) -> None:
    standing = [begin(repository)]
    tamper(repository)
    standing += [begin(repository), begin(repository)]
    for number in order:
        sweep(standing[number], repository.parent / "removed")
    assert_as_it_was(repository)
    assert list((repository.parent / "kept").iterdir()) == []


def test_who_begins_when_all_have_ended_takes_what_is_there(repository: Path) -> None:
    sweep(begin(repository), repository.parent / "removed")
    begin(repository)  # and is forgotten
    gc.collect()
    (repository / ".git/config").write_text("my new one")
    later = begin(repository)
    tamper(repository)
    sweep(later, repository.parent / "removed")
    assert (repository / ".git/config").read_text() == "my new one"
