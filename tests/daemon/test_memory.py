"""What is remembered: where it is kept, and what a session is told of it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from dshd import memory
from dshd.errors import Full, NoSpace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "src" / "api"
    (top / ".git").mkdir(parents=True)
    (top / "deep" / "down").mkdir(parents=True)
    return top


def test_a_note_is_of_the_project_around_the_directory_and_told_to_its_sessions_only(
    tmp_path: Path, project: Path
) -> None:
    state = str(tmp_path / "state")
    memory.remember(state, memory.project_of(str(project / "deep")), "tests run with make check")
    memory.remember(state, None, "answer in German")
    there = memory.told(state, str(project / "deep" / "down"))
    assert there == (
        f"Remembered for all projects:\n- answer in German\n\n"
        f"Remembered for {project}:\n- tests run with make check"
    )
    assert memory.told(state, str(tmp_path)) == "Remembered for all projects:\n- answer in German"


def test_two_projects_of_one_name_have_two_files(tmp_path: Path) -> None:
    assert memory.file_of("/s", "/a/api") != memory.file_of("/s", "/b/api")
    assert memory.file_of("/s", "/").startswith("/s/memory/root-")


def test_notes_are_private_lines_that_a_person_may_edit(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    path = memory.remember(state, "/src/api", "first\nwith a second line")
    memory.remember(state, "/src/api", "  second ")
    assert Path(path).read_text() == "# /src/api\n- first\n  with a second line\n- second\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    Path(path).write_text("# /src/api\n- edited, without an end")
    memory.remember(state, "/src/api", "third")
    assert memory.notes(state, "/src/api") == ["edited, without an end", "third"]


def test_what_is_too_large_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    path = Path(memory.remember(state, None, "kept"))
    with pytest.raises(Full, match="at most 4 KiB"):
        memory.remember(state, None, "x" * 5000)
    path.write_text("- x\n" * (memory.MOST // 4))
    with pytest.raises(Full, match="are the most") as refused:
        memory.remember(state, None, "one more")
    assert refused.value.hint == f"$EDITOR {path}"
    assert "one more" not in path.read_text()


def test_on_a_full_disk_a_note_is_refused_and_half_a_line_is_cut_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = str(tmp_path / "state")
    path = memory.remember(state, None, "kept")
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        write(descriptor, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(NoSpace, match="not remembered"):
        memory.remember(state, None, "lost")
    assert Path(path).read_text() == "- kept\n"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "memory").mkdir(parents=True)
    (tmp_path / "elsewhere").write_text("")
    (state / "memory" / memory.EVERYWHERE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="not remembered"):
        memory.remember(str(state), None, "x")
    assert (tmp_path / "elsewhere").read_text() == ""
