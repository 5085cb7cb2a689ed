from __future__ import annotations

import errno
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dshd.tools import files as files_module
from dshd.tools import text, threads
from dshd.tools.files import edited
from dshd.tools.tool import ToolContext, ToolFailure
from tests.tools.doubles import context, execute

# -- read


async def test_lines_are_numbered_from_one(ctx: ToolContext) -> None:
    (ctx.dir / "a").write_text("one\ntwo\n")
    output = await execute(ctx, "read", path="a")
    assert output.text == "     1\tone\n     2\ttwo"
    assert output.summary == "2 lines"


async def test_a_window_says_where_it_ends_and_how_to_go_on(ctx: ToolContext) -> None:
    (ctx.dir / "a").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    output = await execute(ctx, "read", path="a", offset=10, limit=3)
    assert output.text.split("\n") == [
        "    10\tline 10",
        "    11\tline 11",
        "    12\tline 12",
        "[lines 10-12 of 100; go on with offset=13]",
    ]


async def test_windows_of_a_file_together_are_the_file(ctx: ToolContext) -> None:
    lines = [f"{n} " + "x" * 500 for n in range(1, 1001)]
    (ctx.dir / "a").write_text("\n".join(lines))
    seen: list[str] = []
    while len(seen) < 1000:
        output = await execute(ctx, "read", path="a", offset=len(seen) + 1)
        assert len(output.text.encode()) < 64 * 1024
        seen += [line.partition("\t")[2] for line in output.text.split("\n") if "\t" in line]
    assert seen == lines


@pytest.mark.parametrize(
    ("content", "offset", "said"),
    [
        ("", 1, "is empty"),
        ("a\nb\n", 3, "[end of file]"),
        ("a\nb\n", 4, "has 2 lines; there is no line 4"),
        ("", 5, "has 0 lines"),
    ],
)
async def test_what_is_not_there_is_said(ctx: ToolContext, content: str, offset: int, said: str) -> None:
    (ctx.dir / "a").write_text(content)
    assert said in (await execute(ctx, "read", path="a", offset=offset)).text


async def test_lines_end_at_newlines_only(ctx: ToolContext) -> None:
    (ctx.dir / "a").write_bytes("a\u2028b\x85c\x0cd\re\nf".encode())
    output = await execute(ctx, "read", path="a")
    assert output.text.count("\n") == 1
    assert "a\u2028b\x85c\x0cd\re" in output.text


async def test_bytes_that_are_not_utf8_are_shown_and_marked(ctx: ToolContext) -> None:
    (ctx.dir / "a").write_bytes(b"caf\xe9\nbefore\xe4\xe5after\nfine\n")
    output = await execute(ctx, "read", path="a")
    assert not output.is_error
    assert "caf\ufffd" in output.text
    assert "before\ufffd\ufffdafter" in output.text
    assert "[not valid UTF-8" in output.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"\x7fELF\0", "an ELF binary"),
        ("hallo".encode("utf-16"), "UTF-16"),
        (b"abc\0def", "is binary, 7 bytes"),
    ],
)
async def test_a_binary_file_is_described_not_shown(ctx: ToolContext, content: bytes, said: str) -> None:
    (ctx.dir / "a").write_bytes(content)
    output = await execute(ctx, "read", path="a")
    assert not output.is_error
    assert said in output.text
    assert "00000000  " in output.text
    assert "\0" not in output.text


async def test_a_file_of_one_endless_line_is_bounded_by_bytes(ctx: ToolContext) -> None:
    (ctx.dir / "a").write_bytes(b"x" * (50 << 20))
    output = await execute(ctx, "read", path="a")
    assert len(output.text) < 3000
    assert f"{50 * (1 << 20) - 2000:,} more bytes in this line" in output.text


async def test_a_huge_sparse_file_costs_neither_time_nor_memory(ctx: ToolContext) -> None:
    (ctx.dir / "a").touch()
    os.truncate(ctx.dir / "a", 1 << 40)
    with trio.fail_after(5):
        assert "1,099,511,627,776 bytes" in (await execute(ctx, "read", path="a")).text


async def test_reading_far_into_a_file_without_lines_stops_in_time(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "SECONDS", 0.05)
    (ctx.dir / "a").write_bytes(b"text" * 5000)
    os.truncate(ctx.dir / "a", 1 << 40)
    with trio.fail_after(10):
        output = await execute(ctx, "read", path="a", offset=2)
    assert output.is_error
    assert "too large to read so far in" in output.text


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1), st.integers(1, 40))
def test_a_line_is_cut_between_code_points(line: str, most: int) -> None:
    data = line.encode()
    kept, dropped = text.shorten(data, max(most, 4))
    assert len(kept) + dropped == len(data)
    assert len(kept) <= max(most, 4)
    assert line.startswith(kept.decode())


async def test_a_missing_file_brings_near_names(ctx: ToolContext) -> None:
    for name in ("README.md", "setup.py", "src"):
        (ctx.dir / name).touch()
    output = await execute(ctx, "read", path="READM.md")
    assert output.error == "NOT_FOUND"
    assert output.text == f"no such file: {ctx.dir}/READM.md. Near: README.md"


async def test_a_missing_directory_says_how_far_the_path_exists(ctx: ToolContext) -> None:
    (ctx.dir / "source").mkdir()
    output = await execute(ctx, "read", path="sourc/deep/a.py")
    assert f"({ctx.dir} has no sourc)" in output.text
    assert "Near: source" in output.text


async def test_a_directory_is_not_a_file_and_says_what_it_holds(ctx: ToolContext) -> None:
    (ctx.dir / "b.txt").touch()
    output = await execute(ctx, "read", path=".")
    assert output.error == "NOT_A_FILE"
    assert "It holds: b.txt" in output.text


@pytest.mark.parametrize("tool", ["read", "write", "edit"])
async def test_a_pipe_is_refused_at_once(ctx: ToolContext, tool: str) -> None:
    os.mkfifo(ctx.dir / "pipe")
    more = {"read": {}, "write": {"content": "x"}, "edit": {"old_string": "a", "new_string": "b"}}[tool]
    with trio.fail_after(5):
        output = await execute(ctx, tool, path="pipe", **more)
    assert output.error == "NOT_A_FILE"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "the path is empty"),
        ("a\0b", "can't hold a NUL"),
        ("x" * 5000, "too long"),
        ("f/below", "a file, not a directory"),
    ],
)
async def test_what_can_not_be_a_path_is_said(ctx: ToolContext, path: str, said: str) -> None:
    (ctx.dir / "f").touch()
    output = await execute(ctx, "read", path=path)
    assert output.is_error
    assert said in output.text


async def test_a_file_without_permission_says_so_with_its_path(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: object, **kwargs: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    (ctx.dir / "a").write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuses)
        output = await execute(ctx, "read", path="a")
    assert output.text == f"permission denied on {ctx.dir}/a"
    assert output.error == "EACCES"


async def test_a_name_that_is_not_utf8_is_never_fatal(ctx: ToolContext) -> None:
    (ctx.dir / os.fsdecode(b"caf\xe9.txt")).touch()
    output = await execute(ctx, "read", path="cafe.txt")
    output.text.encode()
    assert "Near: caf\ufffd.txt" in output.text


# -- write


async def test_a_new_file_has_its_directories_and_the_permission_of_the_place(ctx: ToolContext) -> None:
    ctx.dir.chmod(0o755)
    old = os.umask(0o077)
    try:
        output = await execute(ctx, "write", path="a/b/c.txt", content="one\ntwo\n")
    finally:
        os.umask(old)
    assert (ctx.dir / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert stat.S_IMODE((ctx.dir / "a/b/c.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE((ctx.dir / "a/b").stat().st_mode) == 0o755
    assert output.summary == "+2 -0"
    assert "made" in output.text
    assert "2 lines, 8 bytes" in output.text


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o700])
async def test_a_replaced_file_keeps_its_mode(ctx: ToolContext, mode: int) -> None:
    (ctx.dir / "a").write_text("old\n")
    (ctx.dir / "a").chmod(mode)
    output = await execute(ctx, "write", path="a", content="new\nmore\n")
    assert stat.S_IMODE((ctx.dir / "a").stat().st_mode) == mode
    assert output.summary == "+2 -1"


async def test_writing_through_a_link_keeps_the_link(ctx: ToolContext) -> None:
    (ctx.dir / "real").write_text("old")
    (ctx.dir / "link").symlink_to("real")
    await execute(ctx, "write", path="link", content="new")
    assert (ctx.dir / "link").is_symlink()
    assert (ctx.dir / "real").read_text() == "new"


async def test_a_short_write_is_continued(ctx: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    await execute(ctx, "write", path="a", content="0123456789")
    monkeypatch.undo()
    assert (ctx.dir / "a").read_text() == "0123456789"


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
async def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fails(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    (ctx.dir / "a").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        output = await execute(ctx, "write", path="a", content="new")
    assert output.error == "ENOSPC"
    assert "is as it was" in output.text
    assert (ctx.dir / "a").read_text() == "old"
    assert os.listdir(ctx.dir) == ["a"]


async def test_lone_surrogates_are_written_as_replacement_characters(ctx: ToolContext) -> None:
    await execute(ctx, "write", path="a", content="x\ud83dy")
    assert (ctx.dir / "a").read_text() == "x\ufffdy"


# -- edit


async def test_an_edit_changes_what_it_names_and_nothing_else(ctx: ToolContext) -> None:
    (ctx.dir / "a").write_bytes(b"one\r\ntwo \xff\nthree")
    output = await execute(ctx, "edit", path="a", old_string="three", new_string="3\n4")
    assert (ctx.dir / "a").read_bytes() == b"one\r\ntwo \xff\n3\n4"
    assert output.summary == "+2 -1"
    assert "1 replacement, line 3" in output.text


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ({"old_string": "x", "new_string": "y"}, "AMBIGUOUS", "3 times (lines 1, 2, 4)"),
        ({"old_string": "nothing", "new_string": "y"}, "NO_MATCH", "not in the file"),
        ({"old_string": "  deep", "new_string": "y"}, "NO_MATCH", "on line 3"),
        ({"old_string": "", "new_string": "y"}, "INVALID_ARGS", "use write"),
        ({"old_string": "x", "new_string": "x"}, "INVALID_ARGS", "the same"),
    ],
)
async def test_an_unclear_edit_changes_nothing_and_says_why(
    ctx: ToolContext, args: dict[str, str], code: str, said: str
) -> None:
    (ctx.dir / "a").write_text("x\nx\n\tdeep\nx\n")
    output = await execute(ctx, "edit", path="a", **args)
    assert output.error == code
    assert said in output.text
    assert (ctx.dir / "a").read_text() == "x\nx\n\tdeep\nx\n"


async def test_replace_all_replaces_all(ctx: ToolContext) -> None:
    (ctx.dir / "a").write_text("x x\nx")
    output = await execute(ctx, "edit", path="a", old_string="x", new_string="y", replace_all=True)
    assert (ctx.dir / "a").read_text() == "y y\ny"
    assert "3 replacements" in output.text


def test_an_edit_of_crlf_text_keeps_its_line_ends() -> None:
    data, count, line = edited(b"a\r\nb\r\nc\r\n", "a\nb", "A\nB\nB2", False)
    assert (data, count, line) == (b"A\r\nB\r\nB2\r\nc\r\n", 1, 1)


def test_overlapping_occurrences_are_counted_as_they_would_be_replaced() -> None:
    with pytest.raises(ToolFailure, match="2 times"):
        edited(b"aaaa", "aa", "b", False)


async def test_an_edit_of_a_missing_file_makes_no_directory(ctx: ToolContext) -> None:
    output = await execute(ctx, "edit", path="new/a", old_string="a", new_string="b")
    assert output.error == "NOT_FOUND"
    assert os.listdir(ctx.dir) == []


async def test_a_file_that_was_changed_between_reading_and_writing_is_left_alone(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ctx.dir / "a").write_text("old")
    inner = files_module._write_temporary

    def meanwhile(*args: object) -> None:
        inner(*args)  # type: ignore[arg-type]
        (ctx.dir / "a").write_text("somebody else's")

    monkeypatch.setattr(files_module, "_write_temporary", meanwhile)
    output = await execute(ctx, "edit", path="a", old_string="old", new_string="new")
    assert output.error == "CHANGED"
    assert (ctx.dir / "a").read_text() == "somebody else's"
    assert os.listdir(ctx.dir) == ["a"]


LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b""]), max_size=8).map(b"\n".join)


@given(LINES, LINES)
def test_lines_added_and_removed_balance_with_the_length(old: bytes, new: bytes) -> None:
    def count(data: bytes) -> int:
        return data.count(b"\n") + bool(data and not data.endswith(b"\n"))

    added, removed = text.changed_lines(old, new)
    assert added - removed == count(new) - count(old)
    assert added >= 0
    assert removed >= 0
    assert (old == new) == (added == removed == 0)


async def test_a_session_whose_directory_is_gone_is_told_so(ctx: ToolContext) -> None:
    ctx.dir.rmdir()
    output = await execute(ctx, "write", path="a", content="x")
    assert f"the session's directory is gone: {ctx.dir}" in output.text
    assert not ctx.dir.exists()
    assert (await execute(ctx, "read", path="a")).error == "NOT_FOUND"


# -- a file system that hangs


async def test_a_read_that_hangs_ends_in_time_and_an_abort_does_not_wait_for_it(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    monkeypatch.setattr(files_module, "_read", lambda *_: held.wait(20))
    monkeypatch.setattr(threads, "READ_LIMIT", 0.2)
    try:
        with trio.fail_after(5):
            output = await execute(ctx, "read", path="a")
        assert output.error == "TIMEOUT"
        monkeypatch.setattr(threads, "READ_LIMIT", 60.0)
        with trio.fail_after(5), trio.move_on_after(0.2) as abort:
            await execute(ctx, "read", path="a")
        assert abort.cancelled_caught
    finally:
        held.set()


async def test_a_write_ends_before_an_abort_does_so_nothing_is_changed_after_it(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def slowly(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.5)
        rename(*args, **kwargs)

    with monkeypatch.context() as patch, trio.fail_after(5), trio.CancelScope() as abort:
        patch.setattr(os, "rename", slowly)
        abort.deadline = trio.current_time() + 0.1
        await execute(ctx, "write", path="a", content="x")
    assert (ctx.dir / "a").read_text() == "x"


async def test_a_write_that_hangs_holds_an_abort_no_longer_than_its_limit(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    monkeypatch.setattr(files_module, "_write", lambda *_: held.wait(20))
    monkeypatch.setattr(threads, "WRITE_LIMIT", 0.3)
    try:
        with trio.fail_after(5), trio.move_on_after(0.1):
            output = await execute(ctx, "write", path="a", content="x")
            assert "whether the file was written is unknown" in output.text
    finally:
        held.set()


# -- two sessions


async def test_sessions_in_different_directories_do_not_mix_up_relative_paths(tmp_path: Path) -> None:
    contexts = []
    for name in ("one", "two"):
        (tmp_path / name / "work").mkdir(parents=True)
        contexts.append(context(tmp_path / name / "work", session=name))

    async def say_who(ctx: ToolContext) -> None:
        await execute(ctx, "write", path="who", content=ctx.session)

    async with trio.open_nursery() as nursery:
        for ctx in contexts * 5:
            nursery.start_soon(say_who, ctx)
    assert [(ctx.dir / "who").read_text() for ctx in contexts] == ["one", "two"]
