from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshd.prompt.instructions import MARK, find_instructions


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two levels below it, and a file above it that is none of its business."""
    deep = tmp_path / "repo/lib/deep"
    deep.mkdir(parents=True)
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "AGENTS.md").write_text("above the repository")
    return tmp_path / "repo"


def texts(directory: Path, config: Path | None = None) -> list[str]:
    return [text for _, text in find_instructions(directory, config)]


def test_the_users_file_comes_first_then_from_the_root_down_to_the_session(project: Path) -> None:
    config = project.parent / "config"
    (config / "AGENTS.md").write_text("the user's")
    for name in (".", "lib", "lib/deep"):
        (project / name / "AGENTS.md").write_text(f"of {name}")
    found = find_instructions(project / "lib/deep", config)
    assert [text for _, text in found] == ["the user's", "of .", "of lib", "of lib/deep"]
    assert found[0][0] == f"{config}/AGENTS.md (the user's)"
    assert found[3][0] == f"{project}/lib/deep/AGENTS.md"


def test_directories_below_and_beside_the_session_are_not_looked_at(project: Path) -> None:
    (project / "lib/deep/AGENTS.md").write_text("below")
    (project / "other").mkdir()
    (project / "other/AGENTS.md").write_text("beside")
    assert texts(project / "lib") == []


def test_outside_of_a_repository_only_the_sessions_directory_counts(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/AGENTS.md").write_text("above")
    (tmp_path / "a/b/AGENTS.md").write_text("here")
    assert texts(tmp_path / "a/b") == ["here"]


def test_a_work_tree_whose_git_is_a_file_has_its_root_there(project: Path) -> None:
    (project / "AGENTS.md").write_text("outer")
    (project / "lib/.git").write_text("gitdir: ../.git/modules/lib\n")
    (project / "lib/AGENTS.md").write_text("inner")
    assert texts(project / "lib/deep") == ["inner"]


def test_equal_texts_are_given_once(project: Path) -> None:
    (project / "AGENTS.md").write_text("same\n")
    (project / "lib/AGENTS.md").write_text("same")
    (project / "lib/deep/AGENTS.md").symlink_to("../AGENTS.md")
    assert texts(project / "lib/deep") == ["same"]


def test_a_link_may_lead_within_the_project_but_not_out_of_it(project: Path) -> None:
    (project / "GUIDE.md").write_text("the guide")
    (project / "AGENTS.md").symlink_to("GUIDE.md")
    (project.parent / "secret").write_text("sk-123")
    (project / "lib/AGENTS.md").symlink_to(project.parent / "secret")
    assert texts(project / "lib") == ["the guide"]


@pytest.mark.parametrize("content", [b"", b"  \n\n", b"\0\0\0", b"abc\0def"])
def test_a_file_that_says_nothing_is_passed_over(project: Path, content: bytes) -> None:
    (project / "AGENTS.md").write_bytes(content)
    assert texts(project) == []


def test_what_is_not_a_file_is_passed_over(project: Path) -> None:
    (project / "AGENTS.md").mkdir()
    os.mkfifo(project / "lib/AGENTS.md")
    (project / "lib/deep/AGENTS.md").symlink_to("nowhere")
    assert texts(project / "lib/deep") == []
    assert texts(project / "gone") == []


def test_bytes_that_are_not_utf8_and_other_line_ends_are_no_obstacle(project: Path) -> None:
    (project / "AGENTS.md").write_bytes(b"\xef\xbb\xbfcaf\xe9\r\ntwo\r\n")
    assert texts(project) == ["caf\ufffd\ntwo"]


def test_a_long_file_is_cut_between_code_points_and_marked(project: Path) -> None:
    (project / "AGENTS.md").write_text("x" + "😀" * 100_000)
    (text,) = texts(project)
    assert text.endswith(MARK)
    assert set(text.removesuffix(MARK)) == {"x", "😀"}
    assert len(text.encode()) < 66_000
