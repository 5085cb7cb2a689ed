from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dshctl import text
from dshd.errors import Full, Invalid, NotFound
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, Fake


def gather(*words: str, stdin: bytes | None = b"", tty: bool = False, optional: bool = False) -> text.Text:
    return text.gather(words, None if stdin is None else io.BytesIO(stdin), tty, optional=optional)


def test_words_are_joined_by_single_spaces() -> None:
    assert gather("fix", "the", "tests").text == "fix the tests"


def test_with_words_stdin_is_not_touched() -> None:
    stdin = io.BytesIO(b"not for us")
    assert text.gather(("x",), stdin, False).text == "x"
    assert stdin.tell() == 0


def test_without_words_stdin_is_the_message_as_it_came() -> None:
    assert gather(stdin=b"one\ntwo\n").text == "one\ntwo\n"


def test_a_dash_stands_for_stdin_among_words() -> None:
    assert gather("review", "this:", "-", stdin=b"+a\n-b\n").text == "review this: +a\n-b\n"


def test_a_word_with_a_dash_in_it_is_a_word() -> None:
    assert gather("a-b", "--", "-c", stdin=b"no").text == "a-b -- -c"


def test_stdin_can_be_taken_once() -> None:
    with pytest.raises(Invalid, match="twice"):
        gather("-", "-")


@pytest.mark.parametrize(("stdin", "tty"), [(None, False), (b"", False), (b" \n\t\n", False), (b"", True)])
def test_nothing_to_say_is_an_error(stdin: bytes | None, tty: bool) -> None:
    with pytest.raises(Invalid):
        gather(stdin=stdin, tty=tty)


def test_a_terminal_is_never_read() -> None:
    with pytest.raises(Invalid, match="no text"):
        gather(stdin=b"typed", tty=True)


@pytest.mark.parametrize(
    ("raw", "shown", "count"),
    [
        (b"plain \xc3\xbc", "plain \u00fc", 0),
        (b"a\xffb", "a\ufffdb", 1),
        (b"a\0b\0", "a\ufffdb\ufffd", 2),
        (b"cut \xf0\x9f\x8c", "cut \ufffd", 1),
        ("typed \ufffd".encode(), "typed \ufffd", 0),
        (b"\xed\xa0\xbd", "\ufffd\ufffd\ufffd", 3),
        ("\u2028\u2029\u0085".encode(), "\u2028\u2029\u0085", 0),
    ],
)
def test_what_is_not_text_is_replaced_and_counted(raw: bytes, shown: str, count: int) -> None:
    assert text.clean(raw) == (shown, count)
    assert text.clean_word(raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")).text == shown.replace(
        "\ufffd" if b"\0" in raw else "\1", ""
    )


def test_over_8_mib_is_too_much_and_nothing_was_sent() -> None:
    with pytest.raises(Full) as full:
        gather(stdin=b"x" * (text.MAX_TEXT + 1))
    assert full.value.outcome == "not-written"


def test_an_endless_pipe_ends_in_an_error_and_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_TEXT", 1 << 20)
    with open("/dev/zero", "rb") as endless, pytest.raises(Full):
        text.gather((), endless, False)


def test_megabytes_come_through_stdin(dshctl: Dshctl, fake: Fake) -> None:
    """What is too long for one line is put before the send, in pieces."""
    fake.answers |= {"session.send": RECEIPT, "attachment.put": {"upload": "u1"}}
    big = b"line of text\n" * 300_000
    assert dshctl("followup", stdin=big).code == 0
    pieces = fake.params("attachment.put")
    assert "".join(piece["text"] for piece in pieces) == big.decode()
    assert [piece.get("upload") for piece in pieces] == [None] + ["u1"] * (len(pieces) - 1)
    assert fake.params("session.send")[0]["content"] == [{"type": "text", "upload": "u1"}]


def test_an_inherited_pipe_that_never_ends_does_not_hang_a_send(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    reading, writing = os.pipe()
    started = time.monotonic()
    try:
        assert dshctl.process("followup", "x", stdin=reading).code == 0
    finally:
        os.close(reading)
        os.close(writing)
    assert time.monotonic() - started < 10


def test_a_text_that_begins_with_a_dash_goes_behind_two(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    dshctl("followup", "--", "- item")
    dshctl("followup", "--", "--help me")
    assert [sent["text"] for sent in fake.params("session.send")] == ["- item", "--help me"]
    ran = dshctl("followup", "- item")
    assert ran.code == 2
    assert "dshctl followup -- '- TEXT'" in ran.err


def test_argv_is_utf8_whatever_the_locale(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    posix = {**dshctl.environ, "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run(
        [sys.executable.encode(), b"-m", b"dshctl.cli", b"followup", "ü你🌍".encode(), b"\xff"],
        env=posix, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=30,
    )  # fmt: skip
    assert fake.params("session.send")[0]["text"] == "ü你🌍 \ufffd"


def test_a_file_whose_name_looks_like_lines_wins(dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dshctl.home)
    (dshctl.home / "a:2").write_text("whole\n")
    (dshctl.home / "a").write_text("one\ntwo\nthree\n")
    assert text.file_block("a:2")["text"].endswith("now:\nwhole\n")
    assert text.file_block("a:1-2")["text"].endswith("now:\none\ntwo")
    with pytest.raises(Invalid):
        text.file_block("a:3-1")
    with pytest.raises(NotFound, match=str(dshctl.home / "b")):
        text.file_block("b:1")


@pytest.mark.parametrize(
    ("content", "lines", "has"),
    [("a\nb\n", "7-9", "2 lines"), ("a\nb", "3", "2 lines"), ("a\n", "2", "1 line"), ("", "1", "no lines")],
)
def test_lines_beyond_the_end_of_a_file_are_refused(
    dshctl: Dshctl, fake: Fake, tmp_path: Path, content: str, lines: str, has: str
) -> None:
    (tmp_path / "f").write_text(content)
    ran = dshctl("followup", "--file", f"{tmp_path}/f:{lines}", "look")
    assert ran.code == 2
    assert f"{tmp_path}/f has {has}." in " ".join(ran.err.split())
    assert not fake.params("session.send")


def test_lines_that_go_beyond_the_end_end_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\n")
    block = text.file_block(f"{tmp_path}/f:2-99")
    assert block["text"] == f"File {tmp_path}/f, lines 2-3, as it is now:\nb\nc"
    assert text.file_block(f"{tmp_path}/f:3")["text"].endswith("lines 3-3, as it is now:\nc")


def test_only_files_need_no_words(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    (dshctl.home / "a").write_text("x\n")
    assert dshctl("followup", "--file", str(dshctl.home / "a"), stdin=b"").code == 0
    assert len(fake.params("session.send")[0]["content"]) == 1
